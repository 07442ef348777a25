"""`coach release`: lets own held jobs start, after showing the commands."""

from __future__ import annotations

import argparse

from coach.cli.acting import configure as configure
from coach.cli.acting import run_action
from coach.config import Settings
from coach.model.slurm.job_action import Verb


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Exit status: see `run_action`."""
    return run_action(Verb.RELEASE, args, settings, args.targets)
