"""`coach init`: proposes a coach.toml from the batch files and scripts in the working directory."""

from __future__ import annotations

import argparse
from pathlib import Path

from coach.cli.text import print_line, print_verbatim, say
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
        say(line)
    for line in proposal.left_out:
        say(f"left out: {line}")
    if not proposal.text:
        raise UserError(
            f"{directory}: no batch file and no training script here",
            "`coach launch -- COMMAND` launches any command",
        )
    if args.dry_run:
        print_verbatim(proposal.text)
    else:
        print_line(str(write(proposal, directory)))
    return 0
