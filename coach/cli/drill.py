"""`coach drill`: the planted faults to train on, one of them launched, a learner's answer judged."""

from __future__ import annotations

import argparse
import os
import sys

from coach.cli.launch import add_ways, launch, pairs
from coach.cli.text import print_json, print_table, printable
from coach.config import BACKENDS, Settings
from coach.launch.recipe import Recipe, find_drills
from coach.model.errors import UserError
from coach.model.launch import LaunchRequest
from coach.sources.io import SystemIo, scrubbed_environment
from coach.workflows.backend import resolve_backend
from coach.workflows.drill import get_drill, why_skipped
from coach.workflows.prepare import look_at_site


def configure(parser: argparse.ArgumentParser) -> None:
    """A name launches one; without one they are listed."""
    parser.add_argument("drill", nargs="?", help="launch this one")
    parser.add_argument("--backend", choices=BACKENDS, default="auto")
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], help="a parameter of the drill"
    )
    add_ways(parser)


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Exit status of a launch like that of `coach launch`; of the list 2 when a drill cannot be read."""
    if args.drill is not None:
        get_drill(args.drill)
        asked = LaunchRequest(args.drill, args.backend, set=pairs(args.set, "--set"))
        return launch(asked, args, settings)
    drills, problems = find_drills()
    backend = args.backend if args.backend != "auto" else settings.launch.backend
    io = SystemIo(scrubbed_environment(os.environ))
    try:
        site = look_at_site(resolve_backend(backend, os.environ, settings), io)
        skipped = [why_skipped(recipe.drill, site) if recipe.drill else None for recipe in drills]
    except UserError as no_answer:  # what is needed is then asked at the launch
        skipped, problems = [None] * len(drills), (*problems, no_answer)
    if args.format == "json":
        print_json("drills", [_as_json(recipe, why) for recipe, why in zip(drills, skipped, strict=True)])
    else:
        rows = [
            (recipe.name, recipe.title, f"skipped: {why}" if why else "")
            for recipe, why in zip(drills, skipped, strict=True)
        ]
        print_table(("DRILL", "THE COMPLAINT", "STATE"), rows)
    for problem in problems:
        print(f"coach: {printable(problem.message)}", file=sys.stderr)
    return 2 if problems else 0


def _as_json(recipe: Recipe, skipped: str | None) -> dict[str, object]:
    unknown = ("planted", "run_dir", "diagnosed", "seconds_to_finding", "fixed", "throughput_ratio")
    return {
        "name": recipe.name,
        "title": recipe.title,
        **dict.fromkeys(unknown),
        "skipped": skipped,
    }
