"""`coach init`: proposes a coach.toml from the batch files and scripts in the working directory."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from coach.cli.text import print_verbatim, printable
from coach.model.errors import UserError
from coach.workflows.launching.proposal import propose, write

LOADS_SETTINGS = False


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="print the file, write nothing")


def run(args: argparse.Namespace) -> int:
    """Exit status 2 if there is nothing to launch, or a coach.toml exists already."""
    directory = Path.cwd()
    proposal = propose(directory)
    for line in proposal.understood:
        _say(line)
    for line in proposal.left_out:
        _say(f"left out: {line}")
    if not proposal.text:
        raise UserError(
            f"{directory}: no batch file and no training script here",
            "`coach launch -- COMMAND` launches any command",
        )
    if args.dry_run:
        print_verbatim(proposal.text)
    else:
        print(printable(str(write(proposal, directory))))
    return 0


def _say(line: str) -> None:
    print(f"coach: {printable(line)}", file=sys.stderr)
