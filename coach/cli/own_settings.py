"""The settings of the user who runs this process. Root gets read-only settings unless it asked to change
something."""

from __future__ import annotations

import contextlib
import os

from coach import config
from coach.cli.text import say
from coach.config import Settings
from coach.trusted import why_not_private
from coach.workflows.readonly import held_back


def load() -> Settings:
    """Load the settings, and say if coach keeps nothing because others could change what it keeps."""
    settings = held_back(config.load(os.environ), os.environ)
    with contextlib.suppress(OSError):
        problem = why_not_private(settings.cache_dir)
        if problem is not None:
            say(f"{settings.cache_dir}: {problem}; until then nothing is kept there")
    return settings
