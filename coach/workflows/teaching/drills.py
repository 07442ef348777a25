"""List the drills: what each needs that is missing here, and how far a learner has come.

Command line and screen both list through this module, so neither reveals an answer that the other withholds.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from coach.config import Settings, Switch
from coach.launch.recipe import Recipe, drill_names, find_drills, get_recipe, lesson_of
from coach.launch.resources import Site
from coach.launch.spelling import parse_mem_mib
from coach.model.errors import UserError
from coach.model.teaching.drill import Answer, Drill, Need
from coach.model.training.run import Run
from coach.sources.io import Io
from coach.sources.runs.run_files import read_answer
from coach.workflows.judging.targets import known_runs
from coach.workflows.launching.prepare import look_at_site


@dataclass(frozen=True, slots=True)
class DrillEntry:
    """One drill of the list: what it needs that is missing here, and how far the learner has come."""

    recipe: Recipe
    skipped: str | None
    """Why it cannot show its symptom here; None if it can, or if that is not known."""
    run: Run | None = None
    """Its newest run."""
    answer: Answer | None = None
    """The answer for that run."""
    lesson: str = ""
    """Empty until it is settled."""
    was_solved: bool = False
    """True if an older run was solved."""

    @property
    def is_solved(self) -> bool | None:
        """None before the first answer."""
        if self.was_solved:
            return True
        return None if self.answer is None else self.answer.is_solved

    @property
    def standing(self) -> str:
        """The learner's progress, as the list shows it."""
        if self.answer is not None and self.answer.is_settled:
            tries = f" at try {self.answer.num_tries}" if self.answer.num_tries > 1 else ""
            return f"solved{tries}" if self.answer.is_right else "given up"
        if self.was_solved:
            return "solved before"
        if self.answer is not None:
            return "spoiled" if self.answer.spoiled else "try again"
        if self.run is not None:
            return "answer first"
        return "" if self.skipped is None else f"skipped: {self.skipped}"


def known_drills(
    settings: Settings, io: Io, backend: str
) -> tuple[tuple[DrillEntry, ...], tuple[UserError, ...]]:
    """All drills by name, and an error for each that cannot be read. `backend` is `slurm` or `local`. Raises
    UserError if the site has switched drills off."""
    off = settings.why_off(Switch.DRILLS)
    if off is not None:
        raise UserError(f"coach has no drills here: {off}", "ask the site")
    drills, problems = find_drills()
    try:
        site = look_at_site(backend, io)
    except UserError as no_answer:  # the launch will then report what is missing
        site, problems = None, (*problems, no_answer)
    made: dict[str, list[Run]] = {}
    for run in known_runs(settings, io):
        if run.drill is not None:
            made.setdefault(run.drill, []).append(run)
    return tuple(_entry(recipe, site, made.get(recipe.name, []), io) for recipe in drills), problems


def _entry(recipe: Recipe, site: Site | None, newest_first: Sequence[Run], io: Io) -> DrillEntry:
    skipped = why_skipped(recipe.drill, site) if site is not None and recipe.drill is not None else None
    if not newest_first:
        return DrillEntry(recipe, skipped)
    run, *older = newest_first
    answer = read_answer(io, Path(run.run_dir))
    if answer is not None and answer.is_settled:
        return DrillEntry(recipe, skipped, run, answer, lesson_of(recipe))
    earlier = (read_answer(io, Path(each.run_dir)) for each in older)
    was_solved = any(said is not None and said.is_right for said in earlier)
    return DrillEntry(recipe, skipped, run, answer, was_solved=was_solved)


def why_skipped(drill: Drill, site: Site) -> str | None:
    """Why a drill cannot show its symptom on this site; None if it can, or if the site hides its
    resources."""
    reasons = {
        Need.GPU: _why_no_gpu(drill.options.get("gpus_per_node") or 1, site),
        Need.SLURM: None if site.backend == "slurm" else "needs Slurm: this is the local backend",
        Need.ROOT: None if os.geteuid() == 0 else "needs root",
        Need.TWO_NODES: None
        if site.backend == "local"
        or site.hidden
        or any(partition.num_nodes > 1 for partition in site.partitions)
        else "needs two nodes: no partition has them",
    }
    unmet = next((why for need in drill.needs if (why := reasons[need]) is not None), None)
    return unmet if unmet is not None else _why_no_room(drill.options, site)


def _why_no_gpu(wanted: int, site: Site) -> str | None:
    most = max((sum(gpu.total for gpu in node.gpus) for node in site.nodes), default=0)
    if most >= wanted or "nodes" in site.hidden:
        return None
    what = "a GPU" if wanted == 1 else f"{wanted} GPUs in one node"
    return f"needs {what}: there {'is' if most < 2 else 'are'} {most or 'none'} here"


def _why_no_room(options: Mapping[str, Any], site: Site) -> str | None:
    """The kind of node that a launch with these options needs and the site lacks; None if there is one, or if
    that is not known."""
    mem = options.get("mem")
    rooms = (
        ("CPUs", options.get("cpus_per_task"), [node.num_cpus for node in site.nodes]),
        (
            "MiB of memory",
            parse_mem_mib(mem, "mem") if mem else None,
            [node.memory_mib for node in site.nodes],
        ),
    )
    for what, wanted, sizes in rooms:
        most = max((size for size in sizes if size is not None), default=None)
        if wanted is not None and most is not None and wanted > most:
            return f"needs a node with {wanted} {what}: the largest here has {most}"
    return None


def get_drill(name: str) -> Drill:
    """A drill by its name. Raises UserError with the nearest names."""
    try:
        drill = get_recipe(name).drill
    except UserError:
        if "/" in name or name.endswith(".toml"):
            raise
        near = get_close_matches(name, drill_names(), 1)
        hint = f"did you mean {near[0]}?" if near else "`coach drill` lists them"
        raise UserError(f"unknown drill {name!r}", hint) from None
    if drill is None:
        raise UserError(f"{name} is not a drill", "`coach drill` lists them")
    return drill
