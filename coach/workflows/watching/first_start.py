"""Tell a person who opens coach for the first time what is here: the training environment, and trainings to
launch.

It is shown once, on the first screen, and costs no call to Slurm: the screen shows Slurm's resources anyway.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from coach.config import Settings
from coach.launch.project_file import find_project
from coach.model.errors import UserError
from coach.trusted import private_folder


@dataclass(frozen=True, slots=True)
class Here:
    """The facts of this place beside the cluster's."""

    environment: str | None
    """The training environment that the config names."""
    has_torch: bool
    """True if coach's own Python has PyTorch: it trains if no environment is named."""
    project: str | None
    """The project file; None if there is none here or above."""
    num_trainings: int = 0
    """Number of trainings in that file."""


def what_is_here(settings: Settings, directory: Path) -> Here:
    """Read the config and the project file of a directory."""
    named = settings.launch.environment or settings.launch.python
    environment = str(named) if named is not None else None
    project, num_trainings = None, 0
    with contextlib.suppress(UserError):  # launching from it reports the error
        project = find_project(directory)
        num_trainings = len(project.trainings()) if project is not None else 0
    name = project.path.name if project is not None else None
    return Here(environment, find_spec("torch") is not None, name, num_trainings)


def is_first(file: Path) -> bool:
    """True until somebody has pressed a key on the first screen."""
    return not file.exists()


def note_first(file: Path) -> None:
    """Note that the first start is over. If that cannot be written, it is shown again."""
    try:
        private_folder(file.parent)
        file.touch(mode=0o600, exist_ok=True)
    except OSError:
        return
