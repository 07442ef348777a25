"""`coach resume`: lets an ended run go on in its own directory, after showing the command."""

from __future__ import annotations

import argparse
import os

from coach.cli.acting import add_answers, is_confirmed
from coach.cli.launch import print_launched
from coach.cli.reading_io import slurm_io
from coach.cli.text import add_format, print_line, say
from coach.config import BACKENDS, Settings
from coach.workflows.launching.resume import perform_resume, plan_resume


def configure(parser: argparse.ArgumentParser) -> None:
    """One run, and `--yes` to answer the question in advance."""
    parser.add_argument("run", metavar="RUN", help="a run of yours that has ended: its id, or its job's")
    parser.add_argument(
        "--backend", choices=BACKENDS, default="auto", help="refuse a run of another backend (default: auto)"
    )
    add_format(parser)
    add_answers(parser)


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Exit status: 0 resumed, 1 not confirmed, 2 refused."""
    io = slurm_io(settings)
    action = plan_resume(args.run, settings, os.environ, io, args.backend)
    (command,) = action.commands
    if args.dry_run:
        for note in action.notes:
            say(note)
        print_line(command)
        return 0
    if not is_confirmed(command, args.yes, action.notes):
        say("nothing was resumed")
        return 1
    done = perform_resume(action, settings, os.environ, io)
    for note in done.notes:
        say(note)
    print_launched([done], [done.state], args.format)
    return 0
