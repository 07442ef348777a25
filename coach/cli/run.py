"""`coach run -- COMMAND`: the same supervisor that a launch starts on the nodes, for a user's own command."""

from __future__ import annotations

import argparse
import sys

from coach.config import Settings, Switch
from coach.model.errors import UserError
from coach.model.launching.launch import NOWHERE
from coach.node import supervise

configure = supervise.configure


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Run the command; its exit status."""
    wanted, lock = settings.launch.share, settings.lock_of("launch.share")
    if args.share is not None and args.share != wanted and lock is not None:
        raise UserError(
            f"--share {args.share}: {lock.words}", f"leave it out: the site's is {wanted or NOWHERE}"
        )
    said = args.share or wanted
    args.share = None if said == NOWHERE else said
    if settings.why_off(Switch.JOB_VERDICT) is None:
        args.judge = args.judge or sys.executable
    args.comment = args.comment or settings.launch.has_comment
    return supervise.run(args, settings.runs_root)
