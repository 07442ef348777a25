"""`coach run -- COMMAND`: the same supervisor that a launch starts on the nodes, for a user's own command."""

from __future__ import annotations

import argparse

from coach.config import Settings
from coach.node import supervise

configure = supervise.configure


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Run the command; its exit status."""
    return supervise.run(args, settings.runs_root)
