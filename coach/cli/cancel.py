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
    parser.add_argument(
        "--group", action="store_true", help="all runs of the sweep that this run was launched with"
    )
    parser.add_argument("--yes", action="store_true", help="do not ask")


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Exit status: 0 cancelled, 1 not confirmed, 2 refused."""
    io = SystemIo(scrubbed_environment(os.environ))
    targets = _group_of(args.target, settings, io) if args.group else [args.target]
    planned = [plan_cancel(target, settings, os.environ, io) for target in targets]
    command = " && ".join(cancellation.command for cancellation in planned)
    if args.yes:
        print(printable(command), file=sys.stderr)
    elif not _is_confirmed(command):
        print("coach: nothing was cancelled", file=sys.stderr)
        return 1
    for cancellation in planned:
        cancel(cancellation, os.environ, time.time())
    return 0


def _group_of(target: str, settings: Settings, io: SystemIo) -> list[str]:
    """The runs of a sweep that have not ended, the last first: else each would start as the one before it ends."""
    from coach.analysis.sweep import group_of
    from coach.model.cluster import is_final
    from coach.workflows.targets import list_runs

    known = list_runs(io, settings.runs_root)
    named = next((run for run in known if target in (run.run_id, run.job_id)), None)
    if named is None or named.sweep is None:
        raise UserError(f"{target}: not a run of a sweep", "without --group it is cancelled alone")
    alive = [run.run_id for run in group_of(named.sweep.group_id, known) if not is_final(run.state)]
    if not alive:
        raise UserError(f"{target}: all runs of its group have ended")
    return alive[::-1]


def _is_confirmed(command: str) -> bool:
    if not sys.stdin.isatty():
        raise UserError(f"to be confirmed: {command}", "there is no terminal to ask on; --yes confirms it")
    print(
        f"{printable(command)}   y cancels it, anything else does not: ", end="", file=sys.stderr, flush=True
    )
    return sys.stdin.readline().strip().lower() == "y"
