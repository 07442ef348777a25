"""`coach shell`: opens a shell in the allocation of an own running job, after showing the command."""

from __future__ import annotations

import argparse
import os
import sys

from coach.cli.acting import add_answers, is_confirmed
from coach.cli.reading_io import slurm_io
from coach.cli.text import print_line, say
from coach.config import Settings
from coach.model.errors import UserError
from coach.model.slurm.job_action import Verb
from coach.workflows.jobs.job_actions import open_shell, plan_action


def configure(parser: argparse.ArgumentParser) -> None:
    """One job, and `--yes` to answer the question in advance."""
    parser.add_argument("target", metavar="ID", help="a job id or a run id of yours")
    add_answers(parser)


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Exit status: the shell's; 1 not confirmed, 2 refused."""
    io = slurm_io(settings)
    action = plan_action(Verb.SHELL, (args.target,), settings, os.environ, io)
    if args.dry_run:
        print_line(action.commands[0])
        return 0
    if not sys.stdin.isatty():
        raise UserError(f"{action.commands[0]}: a shell needs a terminal", "--dry-run prints the command")
    if not is_confirmed(action.commands[0], args.yes, action.notes):
        say("no shell was opened")
        return 1
    return open_shell(action, os.environ)
