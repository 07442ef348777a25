"""Diagnose a recording as `coach check` does: the same sources, the same engine."""

from __future__ import annotations

from pathlib import Path

from coach.config import Settings
from coach.lookback.history import History
from coach.model.judging.finding import Diagnosis
from coach.model.snapshot import TargetSnapshot
from coach.rules.engine import Engine
from coach.rules.registry import build, signatures
from coach.sources.io import SystemIo
from coach.workflows.judging.one_reading import read_once
from coach.workflows.judging.targets import resolve_target

RECORDINGS = Path(__file__).parents[1] / "recordings"


def read(name: str) -> tuple[TargetSnapshot, History]:
    """Everything that a recording says."""
    nowhere = RECORDINGS / "nowhere"
    settings, io = Settings(nowhere, nowhere, nowhere), SystemIo({})
    target = resolve_target(str(RECORDINGS / name), settings, io, "local", "user")
    return read_once(target, settings, io, "local", "user", signatures(build()), is_queue_asked=False)


def diagnose(name: str) -> Diagnosis:
    return Engine(build()).diagnose(*read(name))
