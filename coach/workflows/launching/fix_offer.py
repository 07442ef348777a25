"""Turn a finding's fix into a launch that can be shown, tried short, and started.

Command, screens and drills all call `offer`. It refuses a launch that goes round in circles: a fifth fix in a
row, or a launch that the chain of fixes already contains.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from coach.analysis.comparing.steady_state import MAX_BLOCKS, MIN_BLOCK, MIN_WARMUP_STEPS, newest_step
from coach.analysis.comparing.two_runs import measure
from coach.analysis.spelling.slurm import whole_minutes
from coach.config import Settings
from coach.launch.recipe import Recipe, recipe_of
from coach.lookback.history import History
from coach.model.errors import UserError
from coach.model.judging.finding import Finding, Fix
from coach.model.launching.launch import LaunchRequest, Plan
from coach.model.slurm.cluster import is_final
from coach.model.snapshot import TargetSnapshot
from coach.model.training.run import Run
from coach.sources.io import Io
from coach.workflows.jobs.lost_work import lost_of_run
from coach.workflows.launching.further import refuse_further
from coach.workflows.launching.relaunch import (
    ParentChoice,
    changes,
    commands_of,
    read_parent_script,
    recipe_of_run,
    request_for_fix,
    script_diff,
)
from coach.workflows.launching.relaunch_offer import RelaunchOffer
from coach.workflows.launching.sweep import prepare

TRIAL_STEPS = math.ceil((MAX_BLOCKS * MIN_BLOCK + MIN_WARMUP_STEPS) / 0.9)
"""Steps of a trial: enough for all blocks of a confidence interval after the warm-up."""
_START_UP_S = 180
"""Time until the first step: a cold network file system, torch imported by many ranks at once."""
_SLACK = 2.0


@dataclass(frozen=True, slots=True)
class Remedy:
    """A fix of a finding that a launch can carry out."""

    finding: Finding
    fix: Fix
    request: LaunchRequest


def remedies(run: Run, findings: Iterable[Finding]) -> tuple[Remedy, ...]:
    """The fixes made of typed changes that this recipe knows, in the order of the findings."""
    recipe = recipe_of_run(run)
    found: list[Remedy] = []
    for finding in findings:
        for fix in finding.launch_fixes:
            with contextlib.suppress(UserError):  # a fix for another recipe stays advice in the finding
                found.append(remedy_of(run, finding, fix, recipe))
    return tuple(found)


def remedy_of(run: Run, finding: Finding, fix: Fix, recipe: Recipe | None = None) -> Remedy:
    """One fix of a finding. `recipe` is the run's recipe, if it is already loaded.

    Raises UserError when the recipe does not know the change.
    """
    return Remedy(finding, fix, request_for_fix(run, fix, finding.rule, recipe))


def as_trial(
    request: LaunchRequest, num_steps: int, step_time_s: float | None, parent_steps: int | None = None
) -> LaunchRequest:
    """The same launch for a few steps, with its own time limit.

    Raises UserError for a recipe that cannot be tried short.

    A trial is never longer than its run: at most `max_steps`, or the `parent_steps` that completed it.
    """
    if num_steps < 1:
        raise UserError(f"--trial {num_steps}: at least one step")
    parameter = recipe_of(request).parameters.get("max_steps")
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


def offer(
    parent: Run,
    remedy: Remedy,
    snapshot: TargetSnapshot,
    history: History,
    settings: Settings,
    env: Mapping[str, str],
    io: Io,
    *,
    trial_steps: int | None = None,
) -> RelaunchOffer:
    """Plan a fix as a child run of `parent`, shortened to `trial_steps` steps if given.

    `parent` carries its present state; `snapshot` and `history` hold the data read of it. Raises UserError if
    the child cannot be launched, or if the chain of fixes has to end.
    """
    request = remedy.request
    newest = newest_step(history)
    if trial_steps is not None:
        step_time = measure(snapshot, history).step_time
        whole_steps = newest.step if newest is not None and parent.state == "COMPLETED" else None
        request = as_trial(
            request, trial_steps, step_time.value if step_time is not None else None, whole_steps
        )
    plan = prepare(request, settings, env, io, io.now())
    refuse_further(plan, parent, settings, io)
    return RelaunchOffer(
        parent,
        remedy.finding,
        remedy.fix,
        plan,
        script_diff(read_parent_script(parent), parent.run_id, plan),
        changes(parent, plan),
        not is_final(parent.state),
        newest.step if newest is not None else None,
        max(snapshot.checkpoints, key=lambda checkpoint: checkpoint.step, default=None),
        lost_of_run(io, parent),
        dict(_commands(plan, parent, settings, env, io)),
    )


def _commands(
    plan: Plan, parent: Run, settings: Settings, env: Mapping[str, str], io: Io
) -> Iterator[tuple[str, tuple[str, ...]]]:
    for choice in ParentChoice:
        with contextlib.suppress(UserError):
            yield choice.value, commands_of(plan, parent, choice, settings, env, io)
