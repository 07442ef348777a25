"""Turn a fix into a new launch: the parent's request with the fix's changes, shown as a diff, started as a
child run.

The user decides what happens to a parent that is still running: it may hold the only good checkpoint, or the
only GPUs.
"""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Mapping
from dataclasses import MISSING, fields, replace
from enum import StrEnum
from typing import Any

from coach.config import Settings
from coach.launch.parameters import show
from coach.launch.recipe import Recipe, get_recipe, recipe_of
from coach.launch.record import request_from
from coach.launch.spelling import format_time, parse_time
from coach.model.errors import UserError
from coach.model.judging.finding import Fix
from coach.model.launching.launch import AppliedFix, LaunchRequest, Plan, Resources, Submitted
from coach.model.slurm.cluster import is_final
from coach.model.slurm.job_action import Verb
from coach.model.training.run import Run
from coach.sources.io import Io
from coach.workflows.jobs.job_actions import HasEnded, perform, plan_action
from coach.workflows.launching.prepare import check_startable
from coach.workflows.launching.start import command_of, read_script, start, written_run

_RUN_JSON = re.compile(r"<<'COACH_RUN_JSON'\n.*?\nCOACH_RUN_JSON\n", re.DOTALL)
_COUNTS = ("num_nodes", "gpus_per_node", "nproc_per_node", "cpus_per_task")
_LAUNCH_KEYS = (*_COUNTS, "recipe", "mem", "time", "signal", "exclude", "env")


class ParentChoice(StrEnum):
    """What becomes of a parent that is still active."""

    CANCEL = "cancel"
    KEEP = "keep"
    WAIT = "wait"
    """The child starts when the parent has ended."""


def recipe_of_run(run: Run) -> Recipe:
    """The recipe that launched the run, or its own program as a recipe. Raises UserError if it is gone."""
    return recipe_of(request_from(run))


def request_for_fix(run: Run, fix: Fix, rule: str, recipe: Recipe | None = None) -> LaunchRequest:
    """The run's own request with the fix's changes. `recipe` is the run's recipe, if it is already loaded.

    Raises UserError for a change that this recipe does not know.
    """
    base = request_from(run)
    changes = dict(fix.changes)
    name = changes.pop("recipe", None)
    if name is not None:
        recipe = get_recipe(str(name))
        base = replace(base, own=None)
    recipe = recipe or recipe_of(base)
    parameters = {key: value for key, value in changes.items() if key not in _LAUNCH_KEYS}
    unknown = [key for key in parameters if key not in recipe.parameters]
    if unknown:
        raise UserError(f"the fix changes {', '.join(unknown)}, which recipe {recipe.name} does not have")
    kept = {key: value for key, value in base.set.items() if key in recipe.parameters}
    counts: dict[str, Any] = {name: changes[name] for name in _COUNTS if name in changes}
    return replace(
        base,
        recipe=str(name) if name is not None else base.recipe,
        backend=run.backend,
        set={**kept, **parameters},
        env={**base.env, **_env(changes.get("env"))},
        **counts,
        mem=_text(changes, "mem", base.mem),
        time_limit_s=_seconds(changes["time"]) if "time" in changes else base.time_limit_s,
        signal=_text(changes, "signal", base.signal),
        exclude=_text(changes, "exclude", base.exclude),
        parent_run_id=run.run_id,
        fix=AppliedFix(rule, fix.title, fix.changes),
        resume_from=None,
    )


def changes(parent: Run, plan: Plan) -> tuple[tuple[str, str, str], ...]:
    """What changes from parent to child: (name, old value, new value)."""
    resources = {name: getattr(plan.resources, name) for name in plan.resources.__dataclass_fields__}
    rows: list[tuple[str, Any, Any]] = [("recipe", parent.recipe, plan.recipe)]
    rows += [(name, parent.parameters.get(name), value) for name, value in plan.parameters.items()]
    # A run of an older coach lacks the fields that were added since.
    unsaid = {item.name: item.default for item in fields(Resources) if item.default is not MISSING}
    rows += [(name, parent.resources.get(name, unsaid.get(name)), value) for name, value in resources.items()]
    return tuple((name, _word(name, old), _word(name, new)) for name, old, new in rows if old != new)


def script_diff(parent_script: str, parent_run_id: str, plan: Plan) -> tuple[str, ...]:
    """A unified diff of the two scripts, without the id and the record, which differ between any two runs."""
    before = _comparable(parent_script, parent_run_id)
    after = _comparable(plan.script, plan.run_id)
    diff = difflib.unified_diff(before, after, "parent", "child", n=2, lineterm="")
    return tuple(diff)


def read_parent_script(parent: Run) -> str:
    """The batch script that the parent was launched with; empty if it cannot be read."""
    try:
        return read_script(parent)
    except OSError:
        return ""


def relaunch(
    plan: Plan,
    parent: Run,
    choice: ParentChoice,
    settings: Settings,
    env: Mapping[str, str],
    io: Io,
) -> Submitted:
    """Cancel or keep the parent as the user chose, and start the child.

    A parent to be cancelled goes first, which frees its resources; but only after the child has passed every
    check that can be made here and is written. If one of the two steps is refused, raises UserError that says
    what happened to both.
    """
    is_active = not is_final(parent.state)
    after = _after(plan, parent, choice)
    if is_active and choice is not ParentChoice.CANCEL:
        # The plan assumed that the parent goes; now it stays, and counts.
        check_startable(plan.backend, settings, env, io)
    with written_run(plan, settings, io):
        if not is_active or choice is not ParentChoice.CANCEL:
            return start(plan, settings, env, after)
        _cancel_parent(parent, settings, env, io)
        try:
            return start(plan, settings, env, after)
        except UserError as error:
            raise UserError(
                f"the parent {parent.run_id} was cancelled, but its child was refused: {error.message}",
                error.hint,
            ) from None


def commands_of(
    plan: Plan, parent: Run, choice: ParentChoice, settings: Settings, env: Mapping[str, str], io: Io
) -> tuple[str, ...]:
    """The exact commands of `relaunch`, in their order. Raises UserError if the parent cannot be
    cancelled."""
    cancel: tuple[str, ...] = ()
    if choice is ParentChoice.CANCEL and not is_final(parent.state):
        with contextlib.suppress(HasEnded):
            cancel = plan_action(Verb.CANCEL, (parent.run_id,), settings, env, io).commands
    return (*cancel, command_of(plan, _after(plan, parent, choice)))


def _after(plan: Plan, parent: Run, choice: ParentChoice) -> Run | None:
    """The parent, if the child starts only after its end. A local run takes seconds to end after its cancel,
    and no scheduler keeps its GPUs from the child until then."""
    if is_final(parent.state) or choice is ParentChoice.KEEP:
        return None
    return parent if choice is ParentChoice.WAIT or plan.backend == "local" else None


def _cancel_parent(parent: Run, settings: Settings, env: Mapping[str, str], io: Io) -> None:
    try:
        perform(plan_action(Verb.CANCEL, (parent.run_id,), settings, env, io), env, io.now())
    except HasEnded:
        pass  # the parent ended by itself in between
    except UserError as error:
        raise UserError(
            f"nothing was launched: the parent {parent.run_id} was not cancelled: {error.message}", error.hint
        ) from None


def _comparable(script: str, run_id: str) -> list[str]:
    return _RUN_JSON.sub("<<'COACH_RUN_JSON' …\n", script).replace(run_id, "RUN_ID").splitlines()


def _text(changes: Mapping[str, Any], key: str, before: str | None) -> str | None:
    return str(changes[key]) if key in changes else before


def _env(value: Any) -> dict[str, str]:
    return {str(key): str(item) for key, item in value.items()} if isinstance(value, Mapping) else {}


def _seconds(value: Any) -> int:
    return value if isinstance(value, int) else parse_time(str(value), "the fix's time")


def _word(name: str, value: Any) -> str:
    if value is None:
        return "–"
    if name == "time_limit_s" and isinstance(value, int):
        return format_time(value)
    return show(value)
