"""`coach ladder`: launches a ladder of recipes as one group, and prints its table beside the document's
figures."""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from coach.analysis.comparing.sweep_table import Group
from coach.cli import report
from coach.cli.cluster import backend_of
from coach.cli.compare import print_group
from coach.cli.launch import launch
from coach.cli.launch_request import add_environment, add_resources, add_ways, request_of
from coach.cli.reading_io import Io, slurm_io
from coach.cli.text import FORMATS, print_json, print_line, print_table, printable
from coach.config import BACKENDS, Settings
from coach.model.errors import UserError
from coach.model.launching.launch import Plan, Submitted
from coach.render.ladder import cells_of, rung_object, verdict_of
from coach.workflows.launching.ladders import find_ladders, get_ladder, request_of_ladder
from coach.workflows.launching.sweep import NoGroup, read_group

_OF_LAUNCH: dict[str, Any] = {
    **dict.fromkeys(("num_random", "at_once", "until_done", "resume_with", "brake", "share")),
    "sweep": (),
}
"""Options of `launch` that a ladder does not have."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what",
        nargs="?",
        metavar="NAME",
        help="a ladder (without it, they are listed), the path of its TOML, or the id of a run of one that was "
        "launched: prints its table",
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
    add_ways(parser, (*FORMATS, "csv", "markdown"))
    parser.set_defaults(**_OF_LAUNCH)


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Exit status: 0 launched (with --wait: each rung gave a result), 1 a rung ended otherwise, 2 refused."""
    if args.what is None:
        return _list(args.format, settings)
    io = slurm_io(settings)
    try:
        ladder = get_ladder(args.what, settings)
    except UserError as unknown:
        try:
            group = read_group(args.what, settings, io, backend_of(args.backend, settings))
            if not group.rungs:
                raise UserError(f"{args.what}: its group is no ladder", f"coach compare {args.what}")
            _print(group, args.format)
        except NoGroup:
            raise unknown from None
        return 0

    def answer(plan: Plan, submitted: Sequence[Submitted], io: Io) -> int:
        group = read_group(submitted[0].run_id, settings, io, plan.backend)
        _print(group, args.format)
        return 0 if not args.wait or all(rung.is_result for rung in group.rungs) else 1

    request = request_of_ladder(ladder, request_of(args))
    return launch(request, args, settings, answer if args.wait or args.format != "text" else None)


def _list(format_: str, settings: Settings) -> int:
    ladders, problems = find_ladders(settings)
    if format_ == "json":
        print_json("ladders", [asdict(ladder) for ladder in ladders])
    else:
        names = [", ".join(rung.name for rung in ladder.rungs) for ladder in ladders]
        rows = [(each.name, each.title, rungs) for each, rungs in zip(ladders, names, strict=True)]
        print_table(("LADDER", "TITLE", "RUNGS"), rows)
    for problem in problems:
        report(problem)
    return 2 if problems else 0


def _print(group: Group, format_: str) -> None:
    """The table of a ladder. CSV and JSON have the same names and plain numbers."""
    rungs = [rung_object(each) for each in group.rungs]
    if format_ == "json":
        print_json("rungs", rungs, more={"ladder": group.recipe, "group_id": group.group_id})
    elif format_ == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(rungs[0])
        writer.writerows(
            [printable(str("" if cell is None else cell)) for cell in each.values()] for each in rungs
        )
    elif format_ == "markdown":
        head, *cells = cells_of(group.rungs)
        told = [(*row, verdict_of(rung)) for row, rung in zip(cells, group.rungs, strict=True)]
        for row in ((*head, "VERDICT"), ("---",) * (len(head) + 1), *told):
            print_line(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |")
    else:
        print_group(group)
