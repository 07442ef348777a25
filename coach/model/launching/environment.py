"""Where a training's Python and torch come from: a value that recipe, site and user may each describe, and a
script activates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType


class EnvironmentKind(StrEnum):
    """How a job gets at its environment."""

    NONE = "none"
    """The node's own: nothing is activated."""
    VENV = "venv"
    CONDA = "conda"
    MODULES = "modules"
    """Lmod or Environment Modules."""
    APPTAINER = "apptainer"
    PYXIS = "pyxis"
    """Enroot images through Slurm's Pyxis plugin."""


@dataclass(frozen=True, slots=True)
class Environment:
    """One training environment. Paths are those that a compute node sees."""

    kind: EnvironmentKind = EnvironmentKind.NONE
    name: str | None = None
    """What recipe, site and user call it; None for one that was spelt out."""
    path: str | None = None
    """The folder of a venv; the prefix, or the name, of a conda environment."""
    modules: tuple[str, ...] = ()
    """What `module load` gets, with exact versions, in this order."""
    image: str | None = None
    """An Apptainer image (.sif, a sandbox folder) or an Enroot one (.sqsh, a registry's URI)."""
    binds: tuple[str, ...] = ()
    """SRC[:DST[:OPTIONS]] that a container sees beside the run root, the code and the data."""
    python: str | None = None
    """The interpreter inside: a path, or a name that activation puts on the PATH. None: the kind's own
    (`PATH/bin/python`, `python`, `python3`)."""
    setup: tuple[str, ...] = ()
    """Shell lines put after the activation, before srun."""
    variables: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Exported to the training; into a container too."""
    torch: str | None = None
    """The version of torch inside, where whoever described it says so; a module or an image cannot always be
    asked."""
    origin: str | None = None
    """FILE:LINE of its description."""

    @property
    def is_container(self) -> bool:
        return self.kind in (EnvironmentKind.APPTAINER, EnvironmentKind.PYXIS)
