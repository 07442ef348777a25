"""The Python and torch of a training. A recipe, the site and the user can each describe an environment; the
job script activates it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType


class EnvironmentKind(StrEnum):
    """How a job activates its environment."""

    NONE = "none"
    """The Python of the node; nothing is activated."""
    VENV = "venv"
    CONDA = "conda"
    MODULES = "modules"
    """Lmod or Environment Modules."""
    APPTAINER = "apptainer"
    PYXIS = "pyxis"
    """Enroot images through Slurm's Pyxis plugin."""


@dataclass(frozen=True, slots=True)
class Environment:
    """One training environment. Paths are paths on the compute node."""

    kind: EnvironmentKind = EnvironmentKind.NONE
    name: str | None = None
    """Its name in a recipe, the site's file or the user's config; None if it was described in place."""
    path: str | None = None
    """The folder of a venv; the prefix or the name of a conda environment."""
    modules: tuple[str, ...] = ()
    """Arguments of `module load`, with exact versions, in this order."""
    image: str | None = None
    """An Apptainer image (.sif, a sandbox folder) or an Enroot image (.sqsh, a registry's URI)."""
    binds: tuple[str, ...] = ()
    """SRC[:DST[:OPTIONS]] mounts for a container, in addition to the run root, the code and the data."""
    python: str | None = None
    """The interpreter inside: a path, or a command that activation puts on the PATH. None: the default of the
    kind (`PATH/bin/python`, `python`, `python3`)."""
    setup: tuple[str, ...] = ()
    """Shell lines between the activation and srun."""
    variables: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Environment variables of the training, inside a container too."""
    torch: str | None = None
    """The version of torch, if the description states it; a module or an image cannot always be asked."""
    origin: str | None = None
    """FILE:LINE of its description."""

    @property
    def is_container(self) -> bool:
        return self.kind in (EnvironmentKind.APPTAINER, EnvironmentKind.PYXIS)
