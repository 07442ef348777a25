"""`coach nodes --reserved`: the reservations, with who may use which nodes, and when."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from coach.cli.cluster import backend_of
from coach.cli.reading_io import slurm_io
from coach.cli.text import format_count, format_time, print_bad_rows, print_json, print_table, say
from coach.config import Settings
from coach.model.errors import UserError
from coach.model.slurm.accounting import Part
from coach.model.slurm.cluster import Reservation
from coach.sources.machine.user import user_name
from coach.workflows.jobs.place_in_queue import read_reservations


def run(args: argparse.Namespace, settings: Settings) -> int:
    part = _ask(settings, args.backend)
    if part.value is None:
        raise UserError(part.error or "the reservations are not known")
    if args.format == "json":
        hidden = {} if part.error is None else {"hidden": ["reservations"]}
        print_json("reservations", map(asdict, part.value), part.num_bad_rows, hidden)
        return 0
    if part.error is not None:
        say(part.error)
    print_table(
        ("NAME", "STATE", "FROM", "TO", "COUNT", "NODES", "PARTITION", "USERS", "ACCOUNTS", "FLAGS"),
        [_row(each) for each in part.value],
        "llllr",
    )
    print_bad_rows(part.num_bad_rows)
    return 0


def _ask(settings: Settings, backend: str | None) -> Part[tuple[Reservation, ...]]:
    """One question to Slurm. On a machine without it, nothing can be reserved."""
    if backend_of(backend, settings) == "local":
        return Part((), None)
    io = slurm_io(settings)
    return read_reservations(io, user_name())


def _row(each: Reservation) -> tuple[str | None, ...]:
    return (
        each.name,
        each.state,
        format_time(each.start_time_s),
        format_time(each.end_time_s),
        format_count(each.num_nodes),
        each.nodes,
        each.partition,
        ",".join(each.users) or None,
        ",".join(each.accounts) or None,
        ",".join(each.flags) or None,
    )
