"""`coach timelimit`: lowers the time limit of own jobs, after showing the commands."""

from __future__ import annotations

import argparse

from coach.analysis.spelling.slurm import whole_minutes
from coach.cli import acting
from coach.config import Settings
from coach.launch.spelling import parse_time
from coach.model.slurm.job_action import Verb


def configure(parser: argparse.ArgumentParser) -> None:
    """The limit comes first, so that any number of jobs can follow."""
    parser.add_argument("limit", metavar="TIME", help="in Slurm's spelling: 30 (minutes), 30:00, 1-12:00:00")
    acting.configure(parser)


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Exit status: see `run_action`."""
    limit_s = whole_minutes(parse_time(args.limit, "TIME"))
    return acting.run_action(Verb.TIMELIMIT, args, settings, args.targets, limit_s)
