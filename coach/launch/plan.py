"""A request becomes a plan: everything checked, every default filled in, the script rendered. Pure.

What is shown is what will be submitted, so the plan holds the whole script, and nothing is decided after it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

from coach.launch.batch_file import read, resources_of
from coach.launch.batch_file import render as render_batch
from coach.launch.long_job import check_long
from coach.launch.meanings import parameter_meanings, resource_meanings
from coach.launch.own_program import own_command
from coach.launch.recipe import Recipe, resolve_parameters
from coach.launch.recipe_file import MAX_RESTARTS
from coach.launch.record import is_drill, run_record
from coach.launch.resources import Resolved, Site, resolve_resources
from coach.launch.script import Paths, render
from coach.launch.spelling import check_printable
from coach.model.errors import UserError
from coach.model.launching.environment import Environment
from coach.model.launching.launch import LaunchRequest, OwnKind, Plan, Resources

_SBATCH_KEY = re.compile(r"[a-z][a-z0-9-]{0,40}", re.ASCII)
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_OWN_OPTIONS = {
    "nodes": "--nodes",
    "gpus": "--gpus",
    "gpus-per-node": "--gpus",
    "time": "--time",
    "partition": "--partition",
    "account": "--account",
    "qos": "--qos",
    "reservation": "--reservation",
    "constraint": "--constraint",
    "mem": "--mem",
    "exclude": "--exclude",
    "cpus-per-task": "--cpus-per-task",
    "cpus-per-gpu": "--cpus-per-gpu",
}
"""sbatch options that have an option of coach's own, through which they are checked."""

_RESERVED = frozenset(
    [
        "array",
        "chdir",
        "error",
        "export",
        "export-file",
        "get-user-env",
        "gpus-per-task",
        "job-name",
        "ntasks",
        "ntasks-per-node",
        "ntasks-per-gpu",
        "open-mode",
        "output",
        "parsable",
        "requeue",
        "no-requeue",
        "signal",
        "test-only",
        "wait",
        "wrap",
    ]
)
"""sbatch options on which the script itself relies."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What the workflow found out before: where everything lies and who launches."""

    paths: Paths
    user: str
    created_time_s: float
    coach_version: str
    git: Mapping[str, Any] | None
    notes: tuple[str, ...] = ()
    environment: Environment = field(default_factory=Environment)
    locked: Mapping[str, str] = field(default_factory=dict)
    """Field of the request → the site's reason why nobody else may set it."""


def _text_of(recipe: Recipe) -> str | None:
    """The text of an own Python program."""
    if recipe.own is None or recipe.path.suffix != ".py":
        return None
    try:
        return recipe.path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UserError(f"{recipe.path}: {error.strerror}") from None


def make_plan(request: LaunchRequest, recipe: Recipe, site: Site, facts: Facts, run_id: str) -> Plan:
    """Check everything and render the script. Raises UserError for the first thing that cannot be."""
    if request.max_restarts is None:
        request = replace(request, max_restarts=recipe.max_restarts)
    _check_texts(request, site.backend)
    _check_environment(facts.environment)
    source = _text_of(recipe) if request.until_done is not None else None
    request = replace(request, resume_with=check_long(request, recipe.own, site.backend, source))
    check_run_dir(facts.paths.run_dir)
    parameters, unusual = resolve_parameters(recipe, request.set)
    is_batch = recipe.own is not None and recipe.own.kind is OwnKind.BATCH
    resolved = (
        _batch_resources(request, recipe, site)
        if is_batch
        else resolve_resources(request, recipe, parameters, site)
    )
    if is_drill(request, recipe):  # what is unusual about a drill is for the learner to find
        unusual, resolved = (), replace(resolved, notes=(), warnings=())
    plan = Plan(
        request=request,
        run_id=run_id,
        run_dir=facts.paths.run_dir,
        backend=site.backend,
        recipe=recipe.name,
        title=recipe.title,
        parameters=parameters,
        resources=resolved.resources,
        script="",
        notes=facts.notes + resolved.notes + _gpm_notes(request, resolved.resources),
        warnings=unusual + resolved.warnings,
        choices=resolved.choices,
        locked=facts.locked,
        meanings={**resource_meanings(resolved), **parameter_meanings(recipe.parameters.values())},
        environment=facts.environment,
        command=own_command(recipe.own, parameters) if recipe.own is not None else (),
    )
    record = run_record(
        plan,
        recipe,
        user=facts.user,
        created_time_s=facts.created_time_s,
        python=facts.paths.python,
        coach_version=facts.coach_version,
        git=facts.git,
    )
    if is_batch:
        script = render_batch(plan, facts.paths, record, facts.coach_version)
    else:
        script = render(plan, recipe.trainer, facts.paths, record, facts.coach_version)
    own_trainers = str(recipe.own_trainers) if recipe.own_trainers else None
    return replace(
        plan, script=script, run_json=record, code_dir=facts.paths.code_dir, own_trainers=own_trainers
    )


def _batch_resources(request: LaunchRequest, recipe: Recipe, site: Site) -> Resolved:
    """What a batch file asks for. Slurm checks it: coach knows no site as well as the file's author."""
    if site.backend != "slurm":
        raise UserError(
            f"{recipe.trainer}: a batch file needs Slurm",
            f"`coach launch -- bash {recipe.trainer}` runs it here",
        )
    resources = resources_of(read(recipe.path), request)
    note = f"{recipe.trainer}, with its own #SBATCH lines and what you say beside them"
    return Resolved(resources, (note,), (), {"partition": tuple(p.name for p in site.partitions)}, {})


def _gpm_notes(request: LaunchRequest, resources: Resources) -> tuple[str, ...]:
    if not request.has_gpm:
        return ()
    if resources.gpus_per_node == 0:
        return ("no GPU: GPM has nothing to measure",)
    return (
        "GPM: SM, tensor and DRAM activity are measured too, from counters that profilers of kernels use",
    )


def check_run_dir(run_dir: str) -> None:
    """A path in an #SBATCH line can be quoted, but not everything can be written in quotes."""
    check_printable(run_dir, "runs_root")
    if not PurePosixPath(run_dir).is_absolute() or set(run_dir) & set("'\"\\"):
        raise UserError(
            f"runs_root: {run_dir!r}: quotes and backslashes cannot stand in a batch script",
            "set runs_root in config.toml to another directory",
        )


def _check_texts(request: LaunchRequest, backend: str) -> None:
    if request.max_restarts is not None and not 0 <= request.max_restarts <= MAX_RESTARTS:
        raise UserError(f"--max-restarts {request.max_restarts}: must be 0 to {MAX_RESTARTS}")
    for key in ("partition", "account", "qos", "reservation", "constraint", "mem", "gpu_type", "exclude"):
        value = getattr(request, key)
        if value:
            _check_value(value, f"--{key.replace('_', '-')}")
    if request.share is not None:
        check_printable(request.share, "--share")
    for line in request.setup or ():
        check_printable(line, "setup")
    if request.python is not None and not check_printable(request.python, "--python").strip():
        raise UserError("--python '': expected the path of an interpreter")
    if request.resume_from is not None:
        check_printable(request.resume_from, "resume_from")
    for name, value in request.env.items():
        if not _ENV_NAME.fullmatch(name):
            raise UserError(f"env {name!r}: not the name of an environment variable")
        check_printable(value, f"env {name}")
    for key, value in request.sbatch.items():
        _check_sbatch(key, value)


def _check_environment(environment: Environment) -> None:
    places = (environment.path, environment.image, environment.python, *environment.binds, *environment.setup)
    for text in (*places, *environment.modules, *environment.variables.values()):
        check_printable(text or "", "environment")


def _check_sbatch(key: str, value: str) -> None:
    if not _SBATCH_KEY.fullmatch(key):
        raise UserError(
            f"--sbatch {key!r}: not an option of sbatch", "expected its long name, for example comment=text"
        )
    if key in _OWN_OPTIONS:
        raise UserError(f"--sbatch {key}: coach has an option of its own for it", f"use {_OWN_OPTIONS[key]}")
    if key in _RESERVED:
        raise UserError(f"--sbatch {key}: the script relies on its own value of {key}", "leave it out")
    if key == "gres" and "gpu" in value:
        raise UserError(
            f"--sbatch gres={value}: GPUs are asked for by --gpus and --gpu-type",
            "use --gpu-request gres where the site wants them spelt as GRES",
        )
    if value:
        _check_value(value, f"--sbatch {key}")


def _check_value(value: str, option: str) -> None:
    check_printable(value, option)
    if not value.strip():
        raise UserError(f"{option} {value!r}: a value is missing")
    if set(value) & set("'\"\\"):
        raise UserError(f"{option} {value!r}: quotes and backslashes cannot stand in an #SBATCH line")
