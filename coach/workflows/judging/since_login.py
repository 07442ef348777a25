"""List jobs that ended badly since the last login, for a shell's start: reads files only, asks Slurm
nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coach import runs
from coach.analysis.judging.why_words import has_ended_badly, has_gone_wrong
from coach.config import Settings
from coach.model.errors import UserError
from coach.model.training.run import Run
from coach.sources.io import Io
from coach.sources.runs.run_files import read_run
from coach.sources.runs.verdict_files import last_told_s, note_told, runs_judged_since, verdict_of_run
from coach.sources.runs.verdicts import Verdicts

FIRST_LOGIN_S = 86400.0
"""Seconds. The first call lists jobs that ended within this time."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A job that ended badly, for one line of output. Unknown fields are None."""

    target: str
    state: str | None
    ended_s: float | None
    rule: str | None = None
    summary: str | None = None


def bad_since_login(settings: Settings, io: Io) -> list[Ended]:
    """The jobs that ended badly since the last call, newest first. Reads files only, and notes the time of
    the call."""
    now_s = io.now()
    last_s = last_told_s(settings.cache_dir)
    since_s = now_s - FIRST_LOGIN_S if last_s is None or last_s > now_s else last_s
    found: dict[str, Ended] = {}
    for past in Verdicts(settings.cache_dir).read().values():
        if has_ended_badly(past) and past.ended_s is not None and since_s < past.ended_s <= now_s:
            ended = Ended(past.target, past.state, past.ended_s, past.rule, past.summary)
            found[past.target] = _as_told(ended, settings, io)
    for run_dir in runs_judged_since(settings.runs_root, since_s):
        verdict = verdict_of_run(run_dir)
        if run_dir.name not in found and verdict is not None and has_gone_wrong(verdict):
            found[run_dir.name] = _as_told(_ended(run_dir, verdict), settings, io)
    note_told(settings.cache_dir, now_s)
    return sorted(found.values(), key=lambda each: -(each.ended_s or 0.0))


def _ended(run_dir: Path, verdict: Mapping[str, Any]) -> Ended:
    findings = verdict.get("findings")
    first = findings[0] if isinstance(findings, list) and findings and isinstance(findings[0], dict) else {}
    try:
        ended_s: float | None = os.stat(runs.RunPaths(run_dir).verdict_json).st_mtime  # noqa: PTH116
    except OSError:
        ended_s = None
    rule, summary = _text(first, "rule"), _text(first, "summary")
    return Ended(run_dir.name, _text(verdict, "state"), ended_s, rule, summary)


def _as_told(ended: Ended, settings: Settings, io: Io) -> Ended:
    """Leave out the cause if it belongs to an open drill."""
    run = _run(settings.runs_root / ended.target, io) if runs.RUN_ID.match(ended.target) else None
    if run is None or not run.is_open_drill:
        return ended
    return Ended(ended.target, ended.state, ended.ended_s)


def _run(run_dir: Path, io: Io) -> Run | None:
    try:
        return read_run(io, run_dir)
    except (OSError, UserError):
        return None


def _text(value: Mapping[str, Any], key: str) -> str | None:
    found = value.get(key)
    return found if isinstance(found, str) else None
