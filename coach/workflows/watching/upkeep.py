"""A session's background work for the user: keep records small, run the command for idle GPUs."""

from __future__ import annotations

import os
from collections.abc import Callable

from coach.config import Settings
from coach.lookback.history import History
from coach.model.snapshot import Snapshot
from coach.poller import SourceFactory
from coach.sources.io import Io
from coach.workflows.watching.idle_command import NAME, IdleCommandSource, may_run
from coach.workflows.watching.records_source import RecordsSource


def upkeep_sources(
    settings: Settings, io: Io, user: str, picture: Callable[[], Snapshot], history: Callable[[str], History]
) -> dict[str, SourceFactory]:
    """The sources by key. The command is part of its key: a changed setting makes another source."""
    sources: dict[str, SourceFactory] = {"records": lambda: RecordsSource(settings, io, picture)}
    if may_run(settings):
        key = f"{NAME} {settings.idle_minutes_of_command:g} {' '.join(settings.idle_command)}"
        sources[key.replace(":", " ")] = lambda: IdleCommandSource(
            settings, io, user, picture, history, dict(os.environ)
        )
    return sources
