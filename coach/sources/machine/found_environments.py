"""Find training environments: module systems, conda prefixes, container images.

Only files are looked at: nothing is activated and no interpreter is started, because on a login node each may
take seconds, and a shared file system may hang.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from coach.trusted import read_text

_INIT_FILES = (
    "/etc/profile.d/lmod.sh",
    "/usr/share/lmod/lmod/init/bash",
    "/etc/profile.d/modules.sh",
    "/usr/share/modules/init/bash",
)
_CONDA_PROGRAMS = ("conda", "mamba", "micromamba")
_CONTAINER_PROGRAMS = ("apptainer", "singularity", "enroot")
_IMAGE_SUFFIXES = (".sif", ".sqsh", ".squashfs")
MAX_PREFIXES = 20
"""Largest number of environments to check: each is a question to a file system that may be slow."""


@dataclass(frozen=True, slots=True)
class ModuleSystem:
    """The provider of the command `module`. `init` is the file that a script must source; None if the login
    shell has already sourced it."""

    name: str
    version: str | None
    init: str | None


def find_module_system(
    env: Mapping[str, str], init_files: Iterable[str] = _INIT_FILES
) -> ModuleSystem | None:
    """Find Lmod or Environment Modules, by the variables of a login shell or by their files."""
    if env.get("LMOD_CMD") or env.get("LMOD_VERSION"):
        return ModuleSystem("Lmod", env.get("LMOD_VERSION") or None, None)
    if env.get("MODULES_CMD") or env.get("MODULESHOME"):
        name = "Lmod" if "lmod" in env.get("MODULESHOME", "").lower() else "Environment Modules"
        return ModuleSystem(name, None, None)
    for file in init_files:
        if os.path.exists(file):  # noqa: PTH110 - a plain string, as a script sources it
            return ModuleSystem("Lmod" if "lmod" in file else "Environment Modules", None, file)
    return None


def find_programs(env: Mapping[str, str]) -> tuple[str, ...]:
    """The programs on the PATH that manage or start environments."""
    names = (*_CONDA_PROGRAMS, *_CONTAINER_PROGRAMS)
    return tuple(name for name in names if shutil.which(name, path=env.get("PATH")))


def find_conda_prefixes(home: Path, env: Mapping[str, str]) -> tuple[list[Path], int]:
    """The environments in conda's own list, the active one first; and the number of further ones that are
    left out."""
    said = [env["CONDA_PREFIX"]] if env.get("CONDA_PREFIX") else []
    with contextlib.suppress(OSError):
        listed = home / ".conda" / "environments.txt"
        said += read_text(listed, owner=None, follows_links=True, errors="surrogateescape").splitlines()
    unique = list(dict.fromkeys(Path(line.strip()) for line in said if line.strip().startswith("/")))
    there = [path for path in unique[: 2 * MAX_PREFIXES] if (path / "conda-meta").is_dir()]
    return there[:MAX_PREFIXES], max(0, len(there) - MAX_PREFIXES)


def find_images(folders: Iterable[Path]) -> list[Path]:
    """Container images directly in these folders."""
    found: list[Path] = []
    for folder in dict.fromkeys(folders):
        try:
            names = os.listdir(folder)  # noqa: PTH208 (names are enough)
        except OSError:
            continue
        found += [folder / name for name in sorted(names) if name.endswith(_IMAGE_SUFFIXES)]
    return found
