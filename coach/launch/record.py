"""run.json as a launch first writes it, before the run starts. Pure.

The batch script holds the record too, so a script printed by --dry-run and submitted by hand makes the same
run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from coach import runs
from coach.launch.recipe import Recipe
from coach.model.errors import UserError
from coach.model.launching.environment import Environment
from coach.model.launching.launch import AppliedFix, LaunchRequest, OwnKind, OwnProgram, Plan, Resources
from coach.model.training.run import Run
from coach.node.secret_words import mask_command

_NOT_SAID = (
    *("parent_run_id", "fix", "defaulted"),
    *("sweep", "num_random", "at_once", "brake", "sweep_point", "ladder", "group_before"),
)
"""Fields of a request that run.json keeps elsewhere, or that are used only while planning."""

_JSON_TYPES: Mapping[str, type] = {
    "int": int,
    "bool": bool,
    "Mapping[str, str]": dict,
    "Mapping[str, str | Scalar]": dict,
    "tuple[str, ...]": list,
    "OwnProgram": dict,
}
"""Type of a request's field → the type of its value in run.json, unless it is a text."""


def run_record(
    plan: Plan,
    recipe: Recipe,
    *,
    user: str,
    created_time_s: float,
    python: str,
    coach_version: str,
    git: Mapping[str, Any] | None,
    has_comment: bool = False,
) -> dict[str, Any]:
    """All keys of run.json; a value that is not known yet is null."""
    request = plan.request
    return {
        "schema": runs.SCHEMA,
        "run_id": plan.run_id,
        "recipe": plan.recipe,
        "trainer": recipe.trainer,
        "parameters": dict(plan.parameters),
        "parameter_info": {
            name: {"default": parameter.default, "usual": list(parameter.usual) if parameter.usual else None}
            for name, parameter in recipe.parameters.items()
        },
        "resources": asdict(plan.resources),
        "launch": _used(said(request), plan.resources),
        "backend": plan.backend,
        "cluster": None,
        "job_id": plan.run_id if plan.backend == "local" else None,
        "user": user,
        "created_time_s": created_time_s,
        "submitted_time_s": None,
        "started_time_s": None,
        "ended_time_s": None,
        "state": None,
        "environment": _environment(plan.environment, python, request.setup or ()),
        "requires": {"torch": recipe.torch} if recipe.torch else {},
        **_command(recipe.own),
        "versions": {"coach": coach_version, "python": None, "torch": None},
        "device": {"type": None, "name": None},
        "dataset": {"name": None, "path": None, "is_synthetic": None},
        "git": dict(git) if git is not None else None,
        "parent_run_id": request.parent_run_id,
        "fix": None if request.fix is None else _fix(request.fix),
        "resume_from": request.resume_from,
        "uneven_by_design": recipe.uneven_by_design,
        "remedies": {name: dict(changes) for name, changes in recipe.remedies.items()},
        **({} if plan.mem_need_mib is None else {"mem_need_mib": plan.mem_need_mib}),
        **({"expects": list(recipe.expects)} if recipe.expects else {}),
        **({"drill": recipe.name} if is_drill(request, recipe) else {}),
        **({"squeue_comment": True} if has_comment and plan.backend == "slurm" else {}),
        **_group(request),
    }


def _group(request: LaunchRequest) -> dict[str, Any]:
    """The run's place in its group, and the ladder that the group is."""
    values = {"sweep": request.sweep_point, "ladder": request.ladder}
    return {name: asdict(value) for name, value in values.items() if value is not None}


def _command(own: OwnProgram | None) -> dict[str, Any]:
    """The `command` of a batch file. It tells `coach run` in the job that no script of coach records the
    output and the end."""
    return {"command": mask_command(own.words)} if own is not None and own.kind is OwnKind.BATCH else {}


def is_drill(request: LaunchRequest, recipe: Recipe) -> bool:
    """True if this launch has a planted fault that the learner must still find."""
    return recipe.drill is not None and request.fix is None and not request.is_mended


def _environment(environment: Environment, python: str, setup: Sequence[str]) -> dict[str, Any]:
    return {
        "kind": str(environment.kind),
        "name": environment.name,
        "path": environment.path,
        "modules": list(environment.modules),
        "image": environment.image,
        "binds": list(environment.binds),
        "python": python,
        "setup": [*environment.setup, *setup],
        "torch": environment.torch,
    }


def said(request: LaunchRequest) -> dict[str, Any]:
    """The fields of a request that were set, as JSON, from which a relaunch makes the same request."""
    result: dict[str, Any] = {}
    for item in fields(request):
        value = getattr(request, item.name)
        if value is None or item.name in _NOT_SAID:
            continue
        if isinstance(value, Mapping):
            value = dict(value)
        elif isinstance(value, tuple):
            value = list(value)
        elif isinstance(value, OwnProgram):
            value = {
                "kind": str(value.kind),
                "words": list(value.words),
                "directory": value.directory,
                "offers": list(value.offers),
                "name": value.name,
                "parameters": dict(value.parameters),
                **({"array_task": value.array_task} if value.array_task is not None else {}),
            }
        if value not in ({}, []):
            result[item.name] = value
    return result


def _used(launch: Mapping[str, Any], resources: Resources) -> dict[str, Any]:
    """The launch as a relaunch shall repeat it: in the same partition, which coach may have chosen, and
    without config values that it did not use."""
    unused = {name for name in ("gpu_type", "cpus_per_gpu") if getattr(resources, name) is None}
    unused |= {"cpus_per_task"} if resources.cpus_per_gpu is not None else set()
    kept = {name: value for name, value in launch.items() if name not in unused}
    is_batch = launch.get("own", {}).get("kind") == OwnKind.BATCH
    return kept if is_batch or resources.partition is None else {**kept, "partition": resources.partition}


def request_from(run: Run) -> LaunchRequest:
    """The request of a run, the inverse of `said`; tolerant: keys and types that this version does not know
    are left out. Raises UserError for a run that is not this user's: its record is another's text, and names
    programs."""
    if run.why_not_mine is not None:
        raise UserError(f"{run.why_not_mine}: coach starts nothing from the run {run.run_id}")
    launch = run.launch
    values: dict[str, Any] = {}
    for item in fields(LaunchRequest):
        value = launch.get(item.name)
        if item.name not in _NOT_SAID and isinstance(
            value, _JSON_TYPES.get(str(item.type).removesuffix(" | None"), str)
        ):
            values[item.name] = tuple(map(str, value)) if isinstance(value, list) else value
    if "own" in values:
        values["own"] = _own_program(values["own"])
    return LaunchRequest(**{"recipe": run.recipe, **values})


def _own_program(value: Mapping[str, Any]) -> OwnProgram | None:
    """The own program in run.json; None if the record does not hold enough to start it again."""
    words, directory, kind = value.get("words"), value.get("directory"), value.get("kind")
    offers = value.get("offers") or []
    if not (isinstance(words, list) and words and isinstance(offers, list)):
        return None
    if not isinstance(directory, str) or kind not in set(OwnKind):
        return None
    name, named, task = value.get("name"), value.get("parameters"), value.get("array_task")
    return OwnProgram(
        OwnKind(kind),
        tuple(map(str, words)),
        directory,
        tuple(map(str, offers)),
        name if isinstance(name, str) else None,
        {str(key): str(option) for key, option in named.items()} if isinstance(named, dict) else {},
        task if isinstance(task, int) else None,
    )


def _fix(fix: AppliedFix) -> dict[str, Any]:
    trial = {} if fix.trial_steps is None else {"trial_steps": fix.trial_steps}
    return {"rule": fix.rule, "title": fix.title, "changes": dict(fix.changes), **trial}
