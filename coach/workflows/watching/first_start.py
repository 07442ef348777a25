"""What a person finds here who opens coach for the first time: what would train, and what there is to launch.

It is told once, on the first screen, and costs no call to Slurm: what Slurm has is on the screen anyway.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from coach.config import Settings
from coach.launch.project_file import find_project, read_project
from coach.model.errors import UserError


@dataclass(frozen=True, slots=True)
class Here:
    """What is here beside the cluster."""

    environment: str | None
    """The training environment that the config names."""
    has_torch: bool
    """Whether coach's own Python has PyTorch: it trains where no environment is named."""
    project: str | None
    """The project file; None: there is none here or above."""
    num_trainings: int = 0
    """Those that it names."""


def what_is_here(settings: Settings, directory: Path) -> Here:
    """Looks at the config and at the project file of a directory."""
    named = settings.launch.environment or settings.launch.python
    environment = str(named) if named is not None else None
    project = find_project(directory)
    try:
        num_trainings = len(read_project(project)) if project is not None else 0
    except UserError:
        num_trainings = 0  # who launches from it is told what is wrong
    name = project.name if project is not None else None
    return Here(environment, find_spec("torch") is not None, name, num_trainings)


def is_first(file: Path) -> bool:
    """True as long as nobody has pressed a key on the first screen."""
    return not file.exists()


def note_first(file: Path) -> None:
    """The first start is over. Where nothing can be kept it comes again."""
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.touch(mode=0o600, exist_ok=True)
    except OSError:
        return
