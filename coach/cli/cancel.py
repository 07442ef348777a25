"""`coach cancel`: end an own run or job, after showing how."""

from __future__ import annotations

import argparse
import os
import sys
import time

from coach.cli.text import printable
from coach.config import Settings
from coach.model.errors import UserError
from coach.sources.io import SystemIo, scrubbed_environment
from coach.workflows.cancel import cancel, plan_cancel


def configure(parser: argparse.ArgumentParser) -> None:
    """One target, and the answer to the question if it is known before."""
    parser.add_argument("target", metavar="ID", help="a run id or a job id of yours")
    parser.add_argument("--yes", action="store_true", help="do not ask")


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Exit status: 0 cancelled, 1 not confirmed, 2 refused."""
    cancellation = plan_cancel(args.target, settings, os.environ, SystemIo(scrubbed_environment(os.environ)))
    if args.yes:
        print(printable(cancellation.command), file=sys.stderr)
    elif not _is_confirmed(cancellation.command):
        print("coach: nothing was cancelled", file=sys.stderr)
        return 1
    cancel(cancellation, os.environ, time.time())
    return 0


def _is_confirmed(command: str) -> bool:
    if not sys.stdin.isatty():
        raise UserError(f"to be confirmed: {command}", "there is no terminal to ask on; --yes confirms it")
    print(
        f"{printable(command)}   y cancels it, anything else does not: ", end="", file=sys.stderr, flush=True
    )
    return sys.stdin.readline().strip().lower() == "y"
