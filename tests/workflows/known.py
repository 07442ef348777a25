"""Runs on a real disk, and a queue written by a test."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from coach import runs
from coach.config import Settings
from coach.sources.io import COMMAND_TIMEOUT_S, CommandResult, Query, SystemIo
from tests.sources.squeue import own_squeue

NOW_S = 1_795_280_000.0
DAY_S = 86400.0


class World(SystemIo):
    """The Io of these runs. `rows` is the queue; None: the controller does not answer."""

    def __init__(self, root: Path) -> None:
        super().__init__({})
        self.settings = Settings(root / "runs", root / "cache", root / "config", cluster="tiger")
        self.rows: tuple[Mapping[str, str], ...] | None = ()
        self.num_asked = 0

    def now(self) -> float:
        return NOW_S

    def run(self, query: Query, timeout_s: float | None = COMMAND_TIMEOUT_S) -> CommandResult:
        if query.kind != "jobs" or self.rows is None:
            words = "squeue: error: Unable to contact slurm controller"
            return CommandResult(query, 1, b"", words, NOW_S, 0.1)
        self.num_asked += 1
        return CommandResult(query, 0, own_squeue(*self.rows)(query), "", NOW_S, 0.1)

    def queue(self, *rows: Mapping[str, str]) -> None:
        self.rows = tuple({"user": "ada", **row} for row in rows)

    def make(self, name: str, state: str | None = "COMPLETED", age_s: float = 3 * DAY_S, **said: Any) -> Path:
        """A run with a checkpoint of 1000 bytes and logs, launched and last written `age_s` ago."""
        paths = runs.create_run_dir(self.settings.runs_root, name)
        created_s = NOW_S - age_s
        value: dict[str, Any] = {
            "run_id": name,
            "recipe": "ddp",
            "backend": "slurm",
            "job_id": "17",
            "state": state,
        }
        value |= {"created_time_s": created_s, "cluster": "tiger"}
        value |= {"ended_time_s": created_s} if state in ("COMPLETED", "FAILED") else {}
        paths.run_json.write_text(json.dumps({**value, **said}))
        paths.job_script.write_text(f"#!/bin/bash\nCODE={self.settings.runs_root}/.code/0123456789abcdef\n")
        paths.checkpoints_dir.mkdir()
        (paths.checkpoints_dir / "step-00000040.pt").write_bytes(b"x" * 1000)
        runs.link_scheduler_logs(paths)
        for log in runs.scheduler_logs(self.settings.runs_root, name):
            log.write_bytes(b"x" * 10)
            os.utime(log, (created_s, created_s))
        for path in (paths.run_json, paths.run_dir):
            os.utime(path, (created_s, created_s))
        return paths.run_dir

    def without_cluster_name(self) -> None:
        self.settings = replace(self.settings, cluster="default")
