"""`coach ladder`: launches a ladder of recipes as one group, and prints its table beside the document's
figures."""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from coach.analysis.comparing.ladder_table import Climbed, ladder_table
from coach.cli.cluster import backend_of
from coach.cli.launch import launch
from coach.cli.launch_request import add_environment, add_resources, add_share, add_ways, request_of
from coach.cli.reading_io import slurm_io
from coach.cli.text import FORMATS, csv_cell, print_json, print_line, print_table, say
from coach.config import BACKENDS, Settings
from coach.model.errors import UserError
from coach.render.ladder import cells_of, rung_object, verdict_of
from coach.workflows.launching.ladders import find_ladders, get_ladder, request_of_ladder
from coach.workflows.launching.sweep import NoGroup, read_members

_OF_LAUNCH: dict[str, Any] = {
    **dict.fromkeys(("num_random", "at_once", "until_done", "resume_with", "brake")),
    "sweep": (),
}
"""Options of `launch` that a ladder does not have."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what",
        nargs="?",
        metavar="NAME",
        help="a ladder (without it, they are listed), the path of its TOML, or the id of a run of one, whose "
        "table is printed",
    )
    parser.add_argument("--backend", choices=BACKENDS, default="auto", help="where it trains (default: auto)")
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="a parameter of every rung that has it; rung=A,B launches these rungs, repeats=3 each of them 3 "
        "times, world_size=2 with at most 2 ranks",
    )
    parser.add_argument(
        "--sbatch", metavar="KEY=VALUE", action="append", default=[], help="one more option of sbatch"
    )
    add_resources(parser)
    add_environment(parser)
    add_share(parser)
    add_ways(parser, (*FORMATS, "csv", "markdown"))
    parser.set_defaults(**_OF_LAUNCH)


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Exit status: 0 launched (with --wait: each rung gave a result), 1 a rung ended otherwise, 2 refused."""
    if args.what is None:
        return _list(args.format, settings)

    def show(run_id: str, backend: str) -> int:
        """Print the table; 1 if a run of it did not complete."""
        group_id, read = read_members(run_id, settings, slurm_io(settings), backend)
        ladder = read[0][0].ladder
        if ladder is None:
            raise UserError(f"{run_id}: a sweep, no ladder", f"coach compare {run_id}")
        rows = ladder_table(ladder, read)
        _print(rows, {"ladder": ladder.name, "group_id": group_id}, args.format)
        if all(row.is_result for row in rows):
            return 0
        say(f"the table again: coach ladder {group_id}")
        return 1 if args.wait else 0

    try:
        ladder = get_ladder(args.what, settings)
    except UserError as unknown:
        try:
            return show(args.what, backend_of(args.backend, settings))
        except NoGroup:
            raise unknown from None
    return launch(request_of_ladder(ladder, request_of(args)), args, settings, show)


def _list(format_: str, settings: Settings) -> int:
    ladders, problems = find_ladders(settings)
    if format_ == "json":
        print_json("ladders", [asdict(ladder) for ladder in ladders])
    else:
        rows = [(each.name, each.title, ", ".join(rung.name for rung in each.rungs)) for each in ladders]
        print_table(("LADDER", "TITLE", "RUNGS"), rows)
    for problem in problems:
        say(f"{problem.message}{f'; {problem.hint}' if problem.hint else ''}")
    return 2 if problems else 0


def _print(rows: Sequence[Climbed], names: Mapping[str, str], format_: str) -> None:
    """The table of a ladder. CSV and JSON have the same names and plain numbers."""
    rungs = [rung_object(row) for row in rows]
    head, *cells = cells_of(rows)
    verdicts = [verdict_of(row) for row in rows]
    if format_ == "json":
        print_json("rungs", rungs, more=names)
    elif format_ == "csv":
        writer = csv.DictWriter(sys.stdout, rungs[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(
            {key: csv_cell(value) if isinstance(value, str) else value for key, value in each.items()}
            for each in rungs
        )
    elif format_ == "markdown":
        told = [(*row, verdict) for row, verdict in zip(cells, verdicts, strict=True)]
        for row in ((*head, "VERDICT"), ("---",) * (len(head) + 1), *told):
            print_line(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |")
    else:
        print_table(head, cells, "l" + "r" * (len(head) - 1))
        print_line("")
        print_table(
            ("RUNG", "VERDICT"), [(row[0], verdict) for row, verdict in zip(cells, verdicts, strict=True)]
        )
