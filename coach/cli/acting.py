"""Shared code of the commands that change jobs: show the exact commands, ask for confirmation, then report
the result."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Sequence
from types import FrameType

from coach.analysis.jobs.eligible_jobs import list_jobs
from coach.cli.text import print_line, printable, say
from coach.model.errors import UserError
from coach.model.slurm.job_action import JobAction, Outcome


def add_answers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--dry-run", action="store_true", help="print the exact commands, do nothing")


def carry_out(action: JobAction, args: argparse.Namespace, perform: Callable[[JobAction], Outcome]) -> int:
    """List the jobs, print the commands, ask, run them, report the result. Exit status: 0 done for all named
    targets, 1 not confirmed, 2 refused or some left out."""
    for each in action.left_out:
        say(f"left out: {each.words}")
    for row in () if args.yes else list_jobs(action.jobs, {}):
        print_line(f"  {row}", sys.stderr)
    if args.dry_run:
        for note in action.notes:
            say(note)
        for command in action.commands:
            print_line(command)
        return 2 if action.left_out else 0
    if not is_confirmed(" && ".join(action.commands), args.yes, action.notes):
        say(f"nothing was {action.verb.done}")
        return 1
    outcome = perform(action)
    say(outcome.words)
    return 2 if action.left_out or outcome.refused else 0


def is_confirmed(command: str, is_known: bool, notes: Sequence[str] = (), *, flags: str = "--yes") -> bool:
    """Show a command and ask for confirmation. True if it may run. `flags` confirm it without a question."""
    for note in notes:
        say(note)
    if is_known:
        print_line(command, sys.stderr)
        return True
    if not sys.stdin.isatty():
        raise UserError(f"to be confirmed: {command}", f"there is no terminal to ask on; {flags} confirms it")
    question = f"{printable(command)}   y does it, anything else does not: "
    print(question, end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() == "y"


def end_as_by_ctrl_c() -> None:
    """From now on SIGTERM, SIGHUP and SIGINT raise KeyboardInterrupt; under `nohup` SIGHUP stays ignored."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number is signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
            continue
        signal.signal(number, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
