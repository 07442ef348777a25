"""The part of `coach launch` for an own training: its options, its program, and `--as-is`."""

from __future__ import annotations

import argparse
import json
import os
import shlex
from dataclasses import replace
from pathlib import Path

from coach.cli.text import print_line, say
from coach.config import Settings
from coach.launch.own_program import is_own, own_request, read_own_program
from coach.model.errors import UserError
from coach.model.launching.launch import OFFERS, LaunchRequest
from coach.workflows.launching.recipes import launch_name
from coach.workflows.launching.start import submit_as_is


def add_own(parser: argparse.ArgumentParser) -> None:
    """Add the target, and the options that only a script, a command or a batch file takes."""
    parser.usage = "coach launch [options] RECIPE | SCRIPT | BATCH FILE [-- ARGUMENTS …] | -- COMMAND …"
    parser.add_argument(
        "what",
        nargs="?",
        metavar="WHAT",
        help=(
            "a recipe (`coach recipes` lists them; the path of a TOML, or a folder with one), a Python "
            "script, or a batch file; nothing before `-- COMMAND …`"
        ),
    )
    parser.add_argument(
        "--with",
        dest="offers",
        metavar="OFFER",
        action="append",
        default=[],
        help="let coach add to your own training: "
        f"{'; '.join(f'{name} {what}' for name, what in OFFERS.items())}",
    )
    parser.add_argument(
        "--as-is", action="store_true", help="hand a batch file to sbatch unread; coach follows its job"
    )


def with_program(request: LaunchRequest, args: argparse.Namespace, settings: Settings) -> LaunchRequest:
    """The request with its target, an own program or a recipe. Raises UserError if it is neither."""
    if args.as_is and args.what is None:
        raise UserError("--as-is: the batch file is missing", "for example `coach launch --as-is job.sbatch`")
    recipe = None if args.as_is else _named_recipe(args.what, settings)
    if recipe is None and is_own(args.what):
        behind = args.behind or ()
        own = read_own_program(args.what, behind, Path.cwd(), args.offers, is_unread=args.as_is)
        return replace(request, own=own) if args.as_is else own_request(own, request)
    misplaced = {"arguments after --": args.behind, "--with": args.offers, "--as-is": args.as_is}
    for words, value in misplaced.items():
        if value:
            raise UserError(
                f"{words}: only for a script, a command or a batch file; {args.what} is not one of them",
                "a recipe's parameters are set by --set KEY=VALUE",
            )
    return replace(request, recipe=recipe or launch_name(args.what, settings))


def _named_recipe(what: str | None, settings: Settings) -> str | None:
    """The recipe that a bare word names, also if a file of that name lies here; None for another word, and
    for a path."""
    if what is None or "/" in what or Path(what).suffix:
        return None
    try:
        name = launch_name(what, settings)
    except UserError:
        return None
    if Path(what).is_file():
        say(f"{what} is a recipe; ./{what} names the file")
    return name


def launch_as_is(request: LaunchRequest, args: argparse.Namespace, settings: Settings) -> int:
    """Print only the job: there is no run, and so no run directory."""
    own = request.own
    assert own is not None
    if args.dry_run:
        print(shlex.join(("sbatch", *own.words)))
        return 0
    accepted = submit_as_is(own, settings, os.environ)
    for line in accepted.lines:
        say(f"sbatch: {line}")
    fields = {"run_id": None, "run_dir": None, "job_id": accepted.job_id, "state": "PENDING"}
    if args.format == "json":
        print(json.dumps({"schema": 1, **fields, "runs": []}, indent=2))
    else:
        for name, value in fields.items():
            print_line(f"{name:<8}{value or '–'}")
    return 0
