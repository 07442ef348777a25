"""Checks the texts of a launch: each can be shown and stand in a script, and none sets an option that the
script sets itself."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from coach.launch.recipe_file import MAX_RESTARTS
from coach.launch.spelling import check_printable
from coach.model.errors import UserError
from coach.model.launching.environment import Environment
from coach.model.launching.launch import LaunchRequest

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
"""sbatch option → coach's own option for it, which has its own checks."""

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


def check_run_dir(run_dir: str) -> None:
    """Refuse a path that cannot be written in an #SBATCH line, even in quotes."""
    check_printable(run_dir, "runs_root")
    if not PurePosixPath(run_dir).is_absolute() or set(run_dir) & set("'\"\\"):
        raise UserError(
            f"runs_root: {run_dir!r}: quotes and backslashes cannot be part of a batch script",
            "set runs_root in config.toml to another directory",
        )


def check_texts(request: LaunchRequest) -> None:
    """Raise UserError for the first text that cannot be shown, or that sbatch would read differently."""
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
        check_sbatch_option(key, value)


def check_environment(environment: Environment) -> None:
    """Raise UserError for a text that cannot be shown."""
    places = (environment.path, environment.image, environment.python, *environment.binds, *environment.setup)
    for text in (*places, *environment.modules, *environment.variables.values()):
        check_printable(text or "", "environment")


def check_sbatch_option(key: str, value: str) -> None:
    """Raise UserError for an option that sbatch does not have, that coach sets, or that has another spelling
    in coach."""
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
            f"--sbatch gres={value}: --gpus and --gpu-type request GPUs",
            "use --gpu-request gres if the site wants them as GRES",
        )
    if value:
        _check_value(value, f"--sbatch {key}")


def _check_value(value: str, option: str) -> None:
    check_printable(value, option)
    if not value.strip():
        raise UserError(f"{option} {value!r}: a value is missing")
    if set(value) & set("'\"\\"):
        raise UserError(f"{option} {value!r}: quotes and backslashes cannot stand in an #SBATCH line")
