"""Chooses the training environment and its Python. Later sources win: recipe, then site and user, then
`--env`, then `--python` for the interpreter.

On a login node coach has no torch, and the training environment may exist only in the job or in an image. A
problem that is visible here is refused here. The rest is left to the job.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from importlib.util import find_spec

from coach.analysis.spelling.environment import spelt_environment, with_absolute_paths
from coach.launch.recipe import Recipe
from coach.model.errors import UserError
from coach.model.launching.environment import Environment, EnvironmentKind
from coach.model.launching.launch import OwnKind, OwnProgram


def choose_environment(
    said: str | None,
    recipe: Recipe,
    known: Mapping[str, Environment],
    env: Mapping[str, str],
    directory: str,
) -> tuple[Environment, str | None]:
    """The environment of a launch, with absolute paths, and the words with which a relaunch can ask for it
    from any directory.

    `said` is a name in `known`, or KIND=VALUE with paths relative to `directory`. Without it the recipe's own
    environment counts. Raises UserError.
    """
    if said is None:
        return with_absolute_paths(recipe.environment or Environment(), directory, env), None
    spelt = spelt_environment(said)
    if spelt is not None:
        environment = with_absolute_paths(spelt, directory, env)
        return environment, spelling_of(environment)
    if said in known:
        return with_absolute_paths(known[said], directory, env), said
    near = get_close_matches(said, known, 1)
    names = f"known: {', '.join(known)}; or" if known else "expected"
    hint = (
        f"did you mean {near[0]}?" if near else f"{names} a spelling such as venv=/path or modules=NAME/1.2"
    )
    raise UserError(f"--env {said!r}: there is no environment of this name", hint)


def spelling_of(environment: Environment) -> str:
    """KIND=VALUE, as `--env` takes it."""
    value = environment.path or environment.image or ",".join(environment.modules)
    return f"{environment.kind}={value}" if value else str(environment.kind)


def describe(environment: Environment, python: str) -> str:
    """A phrase for the environment: `environment pytorch (modules pytorch/2.6)`."""
    value = environment.path or environment.image or " ".join(environment.modules)
    if environment.kind is EnvironmentKind.NONE:
        value = python
    what = f"{environment.kind} {value}" if environment.kind is not EnvironmentKind.NONE else value
    return f"environment {environment.name} ({what})" if environment.name else f"environment {what}"


def choose_python(
    said: str | None, environment: Environment, backend: str, env: Mapping[str, str]
) -> tuple[str, str | None]:
    """The interpreter, as a path or a name on the job's PATH, and a note if nobody named one. Raises
    UserError if the interpreter is missing."""
    kind = environment.kind
    if kind is EnvironmentKind.PYXIS and backend == "local":
        raise UserError(
            "Pyxis is a plugin of Slurm: it does not exist on the local backend",
            "use --env apptainer=IMAGE, or a venv",
        )
    named = said if said is not None else environment.python
    if named is not None:
        what = "--python" if said is not None else "the environment's python"
        return _checked(named, what, environment, backend, env), None
    if kind is EnvironmentKind.NONE:
        return _next_to_coach(backend)
    if kind is EnvironmentKind.VENV or (kind is EnvironmentKind.CONDA and "/" in (environment.path or "")):
        return f"{environment.path}/bin/python", None
    # conda always has `python`; a module, a distribution or an image may have only `python3`
    return ("python" if kind is EnvironmentKind.CONDA else "python3"), None


def python_of_own(
    own: OwnProgram, said: str | None, environment: Environment, backend: str, env: Mapping[str, str]
) -> tuple[str, str | None]:
    """Like `choose_python`, but a script without a named interpreter gets the `python` that its author's
    shell finds."""
    if said is not None or environment != Environment():
        return choose_python(said, environment, backend, env)
    if own.kind is not OwnKind.SCRIPT:
        return "python3", None
    for name in ("python", "python3"):
        found = shutil.which(name, path=env.get("PATH"))
        if found is not None:
            path = os.path.abspath(found)  # noqa: PTH100 (a venv's link must not be resolved)
            return (
                path,
                f"it runs with {path}, the {name} of your PATH; to use another, set --env or --python",
            )
    return "python3", "no python on your PATH: the job uses the python3 that it finds"


def _next_to_coach(backend: str) -> tuple[str, str | None]:
    if backend == "local" or find_spec("torch") is not None:
        return sys.executable, None
    return (
        "python3",
        (
            "it runs with the first python3 on the job's PATH, because coach's own Python "
            f"({sys.executable}) has no torch; to use another, set --env"
        ),
    )


def _checked(said: str, what: str, environment: Environment, backend: str, env: Mapping[str, str]) -> str:
    if environment.is_container:
        return said  # a path in the image
    if "/" not in said:
        is_in_reach = environment.kind is EnvironmentKind.NONE and backend == "local"
        if is_in_reach and shutil.which(said, path=env.get("PATH")) is None:
            raise UserError(f"{what} {said}: no such command on the PATH")
        return said
    # Do not resolve a venv's link.
    path = os.path.abspath(os.path.expanduser(said))  # noqa: PTH100, PTH111
    if not os.path.exists(path):  # noqa: PTH110 - the same text that will stand in the script
        raise UserError(
            f"{what} {said}: no such file", "expected the interpreter of the training environment"
        )
    if os.path.isdir(path) or not os.access(path, os.X_OK):  # noqa: PTH112 - the same
        raise UserError(
            f"{what} {said}: not an executable file", "expected for example /path/venv/bin/python"
        )
    return path
