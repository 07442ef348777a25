"""A finding's fix becomes a launch that can be shown, tried short, and started: one way for the command, the screens and the drills.

Refused here, for all of them, is what would go round in circles: a fifth fix in a row, and a launch that the chain has seen before.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from coach.analysis.comparing.fix_chain import ancestry, siblings, why_no_further
from coach.analysis.comparing.steady_state import MAX_BLOCKS, MIN_BLOCK, MIN_WARMUP_STEPS
from coach.analysis.spelling.slurm import whole_minutes
from coach.config import Settings
from coach.launch.recipe import Recipe, get_recipe
from coach.model.errors import UserError
from coach.model.judging.finding import Finding, Fix
from coach.model.launching.launch import LaunchRequest, Plan
from coach.model.training.metrics import Step
from coach.model.training.run import Run
from coach.sources.io import Io
from coach.sources.runs.run_index import RunIndex
from coach.workflows.judging.targets import list_runs
from coach.workflows.launching.prepare import prepare
from coach.workflows.launching.relaunch import request_for_fix

TRIAL_STEPS = math.ceil((MAX_BLOCKS * MIN_BLOCK + MIN_WARMUP_STEPS) / 0.9)
"""So many give as many blocks as an interval is made of, behind their warm-up."""
_START_UP_S = 180
"""Until the first step: an environment on a cold network file system, torch imported by many ranks at once."""
_SLACK = 2.0


@dataclass(frozen=True, slots=True)
class Remedy:
    """A fix of a finding that a launch can carry out."""

    finding: Finding
    fix: Fix
    request: LaunchRequest


def remedies(run: Run, findings: Iterable[Finding], recipe: Recipe | None = None) -> tuple[Remedy, ...]:
    """Those of the findings' fixes that are typed changes this recipe knows, in their order: the primary finding's first."""
    recipe = recipe or get_recipe(run.recipe)
    found = []
    for finding in findings:
        for fix in finding.fixes:
            if fix.changes:
                try:
                    found.append(Remedy(finding, fix, request_for_fix(run, fix, finding.rule, recipe)))
                except UserError:
                    continue  # of another recipe's parameters: it stands in the finding as advice
    return tuple(found)


def as_trial(
    request: LaunchRequest, num_steps: int, step_time_s: float | None, parent_steps: int | None = None
) -> LaunchRequest:
    """The same launch for a few steps, with a time limit of its own.

    Raises UserError for a recipe that cannot be tried short.

    A trial is never longer than the run: than its `max_steps`, or than the `parent_steps` that completed it.
    """
    if num_steps < 1:
        raise UserError(f"--trial {num_steps}: at least one step")
    parameter = get_recipe(request.recipe).parameters.get("max_steps")
    if parameter is None:
        raise UserError(f"recipe {request.recipe} has no max_steps: it cannot be tried short")
    limits = (request.set.get("max_steps", parameter.default), parent_steps)
    num_steps = min([num_steps, *(int(limit) for limit in limits if limit)])
    limit_s = request.time_limit_s
    if step_time_s is not None:
        needed_s = whole_minutes(math.ceil(_START_UP_S + _SLACK * num_steps * step_time_s))
        limit_s = needed_s if limit_s is None else min(limit_s, needed_s)
    fix = request.fix
    tried = None if fix is None else replace(fix, trial_steps=num_steps)
    return replace(request, set={**request.set, "max_steps": num_steps}, time_limit_s=limit_s, fix=tried)


def steps_of_whole(run: Run, newest: Step | None) -> int | None:
    """The steps that the run needed; None where it has not completed."""
    return newest.step if newest is not None and run.state == "COMPLETED" else None


def plan_child(
    request: LaunchRequest, parent: Run, settings: Settings, env: Mapping[str, str], io: Io
) -> Plan:
    """The plan of a child run. Raises UserError when it cannot be launched, or when the chain of fixes has to end."""
    plan = prepare(request, settings, env, io, time.time())
    refuse_further(plan, parent, settings, io)
    return plan


def refuse_further(plan: Plan, parent: Run, settings: Settings, io: Io) -> None:
    """Raise UserError when this child would be one fix too many, or one that was tried before, of the parent or of its own."""
    known = list_runs(io, settings.runs_root, RunIndex(settings.cache_dir, settings.runs_root))
    why = why_no_further(plan, ancestry(parent, known), siblings(parent, known))
    if why is not None:
        raise UserError(
            f"no further fix: {why}", f"`coach compare {parent.run_id}` shows the chain, and its best run"
        )
