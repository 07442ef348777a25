"""Which Python trains: it need not be the one that coach runs under.

A login node's coach has no torch; the environment that has it may exist only once `setup` has run. So what can be checked is checked,
and what was chosen is always said.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from importlib.util import find_spec

from coach.model.errors import UserError


def choose_python(said: str | None, backend: str, env: Mapping[str, str]) -> tuple[str, str | None]:
    """The interpreter, a path or a name on the job's PATH, and a note when it was not said. Raises UserError for one that is not there."""
    if said is not None:
        return _checked(said, backend, env), None
    if find_spec("torch") is not None:
        return sys.executable, None
    name = "python3"
    if backend == "local":
        raise UserError(
            f"torch is not installed beside coach ({sys.executable})",
            "name the interpreter of the training environment with --python, or launch.python in config.toml",
        )
    return (
        name,
        "torch is not installed beside coach: the job uses the python3 that it finds; --python names another",
    )


def _checked(said: str, backend: str, env: Mapping[str, str]) -> str:
    if "/" not in said:
        if backend == "local" and shutil.which(said, path=env.get("PATH")) is None:
            raise UserError(f"--python {said}: no such command on the PATH")
        return said
    path = os.path.abspath(os.path.expanduser(said))  # noqa: PTH100, PTH111 - a venv's link must not be resolved
    if not os.path.exists(path):  # noqa: PTH110 - the same text that will stand in the script
        raise UserError(
            f"--python {said}: no such file", "expected the interpreter of the training environment"
        )
    if os.path.isdir(path) or not os.access(path, os.X_OK):  # noqa: PTH112 - the same
        raise UserError(
            f"--python {said}: not an executable file", "expected for example /path/venv/bin/python"
        )
    return path
