"""`coach run -- COMMAND`: runs a user's own command under the same supervisor that a launch starts on the
nodes."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from coach import installed
from coach.config import Settings, Switch
from coach.launch.snapshot import kept_snapshot
from coach.model.errors import UserError
from coach.model.launching.launch import NOWHERE
from coach.node import supervise

configure = supervise.configure


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Run the command and return its exit status."""
    wanted, lock = settings.launch.share, settings.lock_of("launch.share")
    if args.share is not None and args.share != wanted and lock is not None:
        raise UserError(
            f"--share {args.share}: {lock.words}", f"leave it out: the site's is {wanted or NOWHERE}"
        )
    share = args.share or wanted
    args.share = None if share == NOWHERE else share
    if settings.why_off(Switch.JOB_VERDICT) is None:
        args.judge = args.judge or sys.executable
    args.comment = args.comment or settings.launch.has_comment
    file = installed.one_file()
    if file is not None and args.command not in ([], ["--"]):
        # The sampler and the modules for the training are separate programs, so they need real files.
        code = kept_snapshot(settings.runs_root)
        if code is not None:
            words = [sys.executable, str(code / "coach" / "node"), "run", *_words(args, settings, file)]
            os.execv(words[0], words)
    return supervise.run(args, settings.runs_root)


def _words(args: argparse.Namespace, settings: Settings, file: Path) -> list[str]:
    """The same options for node code that is started by path."""
    options = {
        "--runs-root": settings.runs_root,
        "--run-dir": args.run_dir,
        "--recipe": args.recipe,
        "--interval": args.interval,
        "--share": args.share,
        "--judge": args.judge,
        "--judge-file": file,
    }
    words = [f"{name}={value}" for name, value in options.items() if value is not None]
    words += [name for name, is_said in (("--gpm", args.gpm), ("--comment", args.comment)) if is_said]
    return [*words, *args.command]
