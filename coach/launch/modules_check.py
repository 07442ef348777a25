"""Whether the training environment has the modules that a recipe needs beside torch, from its files, before anything is submitted.

Nothing is imported: that would run a site's code on the login node, and DALI asks for a driver that only compute nodes have. Where the
files do not tell (modules, images, a setup that may bring anything) nothing is said, and the trainer itself ends with the same reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from coach.launch.environment_check import package_folders, prefix_of, read_torch_version
from coach.launch.interpreter import describe
from coach.launch.recipe import Recipe
from coach.model.errors import UserError
from coach.model.launching.environment import Environment

_HOW: Mapping[str, str] = MappingProxyType(
    {
        "horovod": "Horovod's last release, 0.28.1 of 2023, does not build against torch 2.1 and newer unless it is patched; recipe ddp does the same",
        "mpi4py": "install mpi4py, and an MPI where the site has none: pip install mpi4py mpich",
        "nvidia.dali": "DALI is the package nvidia-dali-cuda120 or nvidia-dali-cuda130, whichever fits the driver;"
        " recipe gpu_data is faster where the data fit into the GPU's memory",
        "pytorch_lightning": "install it: pip install pytorch-lightning",
    }
)
"""Module → how it comes, or why it does not."""


def check_modules(
    recipe: Recipe, environment: Environment, python: str, env: Mapping[str, str] | None = None
) -> None:
    """Raise UserError when a module that the recipe needs is not in the environment."""
    missing = missing_modules(recipe.requires, environment, python, env)
    if missing:
        hints = [_HOW[module] for module in missing if module in _HOW]
        hint = "; ".join(hints) or "install it there, or name another environment with --env"
        what = describe(environment, python)
        raise UserError(f"recipe {recipe.name} needs {', '.join(missing)}: not found in {what}", hint)


def missing_modules(
    modules: Sequence[str], environment: Environment, python: str, env: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """Those that are not there. Only an environment whose torch is found by its files is known well enough to say so."""
    prefix = prefix_of(environment, python, env or {}) if modules else None
    if prefix is None or environment.setup or "PYTHONPATH" in environment.variables:
        return ()
    if read_torch_version(prefix) is None:
        return ()
    folders = list(package_folders(prefix))
    return tuple(module for module in modules if not any(_has(folder, module) for folder in folders))


def _has(folder: Path, module: str) -> bool:
    place = folder.joinpath(*module.split("."))
    if place.is_dir() or place.with_name(f"{place.name}.py").is_file():
        return True
    if any(place.parent.glob(f"{place.name}*.so")):
        return True
    # Installed as a link to its sources: its finder's name has the package's.
    return any(folder.glob(f"__editable__*{module.split('.')[0]}*"))
