"""`coach drill --all`: launch one drill after the other, and show whether coach finds what is planted.

It is separate from drill.py, which is for learners, because this command shows all answers.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from coach.cli.acting import end_as_by_ctrl_c
from coach.cli.text import print_json, print_line, print_table, say
from coach.config import Settings, Switch
from coach.launch.recipe import Recipe, find_drills
from coach.model.errors import UserError
from coach.model.launching.launch import LaunchRequest
from coach.sources.io import SystemIo
from coach.workflows.launching.prepare import look_at_site
from coach.workflows.readonly import refuse_if_readonly
from coach.workflows.teaching.drill_answer import tell_answer
from coach.workflows.teaching.drills import why_skipped
from coach.workflows.watching.launch_watch import Launches


def run(args: argparse.Namespace, backend: str, settings: Settings, io: SystemIo) -> int:
    """Exit status: 0 if each drill that ran was found, else 1; 130 after an interrupt, which cancels the
    running drill."""
    refuse_if_readonly(settings, "launches nothing", Switch.LAUNCH, Switch.DRILLS)
    drills = choose([name.strip() for name in args.only.split(",")] if args.only is not None else ())
    end_as_by_ctrl_c()
    launches = Launches(settings, os.environ, io, backend, say)
    given = LaunchRequest("", backend, environment=args.environment, python=args.python)
    site = look_at_site(backend, io)
    results: list[dict[str, Any]] = []
    is_stopped = False
    try:
        for recipe in drills:
            assert recipe.drill is not None
            results.append(_result(recipe, why_skipped(recipe.drill, site), given, launches, io))
            say(f"{len(results)} of {len(drills)}  {recipe.name}: {_standing(results[-1])}")
    except KeyboardInterrupt:
        is_stopped = True
    if args.format == "json":
        print_json("drills", results)
    else:
        _print(results)
    return 130 if is_stopped else int(any(each["diagnosed"] is False for each in results))


def choose(names: Sequence[str]) -> tuple[Recipe, ...]:
    """The drills of these names; all if there are none. Raises UserError for one that does not exist or
    cannot be read."""
    drills, problems = find_drills()
    if problems:
        raise problems[0]
    known = {drill.name: drill for drill in drills}
    for name in names:
        if name not in known:
            raise UserError(f"--only {name}: no such drill", f"one of {', '.join(known)}")
    return tuple(known[name] for name in names) if names else drills


def _result(
    recipe: Recipe, skipped: str | None, given: LaunchRequest, launches: Launches, io: SystemIo
) -> dict[str, Any]:
    """Launch the drill, wait for its end, and compare its primary finding with the planted cause."""
    drill = recipe.drill
    assert drill is not None
    result: dict[str, Any] = {"name": recipe.name, "planted": drill.planted, "run_dir": None, "found": None}
    result |= {"diagnosed": None, "seconds_to_finding": None, "skipped": skipped}
    if skipped is not None:
        return result
    causes = (drill.planted, *drill.also)
    try:
        ran = launches.run(
            replace(given, recipe=recipe.name),
            causes=causes,
            on_launched=lambda submitted: tell_answer(Path(submitted.run_dir), io),
        )
    except UserError as refused:
        # What an environment lacks says nothing of coach; another refusal does.
        return result | {"skipped": refused.message, "diagnosed": None if recipe.requires else False}
    found = ran.primary.cause if ran.primary is not None else None
    result |= {"run_dir": ran.submitted.run_dir, "found": found, "diagnosed": found in causes}
    return result | {"seconds_to_finding": ran.seconds_to_finding if drill.is_live else None}


def _standing(result: dict[str, Any]) -> str:
    if result["skipped"] is not None:
        return f"skipped: {result['skipped']}"
    return "found" if result["diagnosed"] else f"{result['planted']} was not found"


def _print(results: Sequence[dict[str, Any]]) -> None:
    print_table(
        ("DRILL", "PLANTED", "FOUND", ""),
        [(str(each["name"]), str(each["planted"]), each["found"], _standing(each)) for each in results],
    )
    num_run = sum(each["skipped"] is None for each in results)
    num_found = sum(each["diagnosed"] is True for each in results)
    print_line(f"{num_found} of {num_run} found, {len(results) - num_run} skipped")
