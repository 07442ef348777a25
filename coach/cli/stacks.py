"""`coach stacks`: shows the position of each rank of a running training, and the rank that delays the
others."""

from __future__ import annotations

import argparse
import os
from dataclasses import asdict

from coach.analysis.measured.stack_groups import merge, report
from coach.cli.acting import is_confirmed
from coach.cli.reading_io import slurm_io
from coach.cli.text import add_format, print_json, print_line, say
from coach.config import Settings
from coach.model.training.stacks import Stacks
from coach.workflows.jobs.stacks import plan_stacks, take_stacks


def configure(parser: argparse.ArgumentParser) -> None:
    """One run or job, and `--yes` to answer the question in advance."""
    parser.add_argument("target", metavar="RUN", help="the id of your running job or run")
    parser.add_argument(
        "--python", metavar="FILE", help="an interpreter that the nodes see (default: the training's)"
    )
    parser.add_argument(
        "--yes", action="store_true", help="do not ask before entering a job that coach did not launch"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the exact command, do nothing")
    add_format(parser)


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Exit status: 0 taken, even if only some nodes answered; 1 not confirmed; 2 refused, or no node
    answered."""
    io = slurm_io(settings)
    plan = plan_stacks(args.target, settings, os.environ, io, args.python)
    if args.dry_run:
        print_line(plan.command)
        return 0
    if plan.must_ask and not is_confirmed(plan.command, args.yes, plan.notes):
        say("no stacks were taken")
        return 1
    print_stacks(take_stacks(plan, settings, os.environ), args.format)
    return 0


def print_stacks(stacks: Stacks, form: str) -> None:
    merged = merge(stacks)
    if form == "text":
        for row in report(stacks, merged):
            print_line(" " * row.indent + row.text)
        return
    more = {
        "summary": merged.sentence,
        "odd_ranks": [rank.rank for rank in merged.odd],
        "absent_ranks": list(merged.absent),
        "num_silent_nodes": stacks.num_silent_nodes,
        "because": stacks.because,
        "folder": stacks.folder,
    }
    ranks = [asdict(rank) for rank in stacks.ranks]
    for rank in ranks:
        del rank["taken_s"]  # all were taken now
    print_json("ranks", ranks, more=more)
