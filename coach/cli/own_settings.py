"""The settings of the user who runs this process. Root gets read-only settings unless it asked to change
something."""

from __future__ import annotations

import os

from coach import config
from coach.config import Settings
from coach.workflows.readonly import held_back


def load() -> Settings:
    return held_back(config.load(os.environ), os.environ)
