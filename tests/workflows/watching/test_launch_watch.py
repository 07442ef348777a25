"""A launch that is watched to its end, also while the controller does not answer."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from coach.config import Settings
from coach.model.launching.launch import Submitted
from coach.model.reading import JobList, Reading
from coach.sources.io import SystemIo
from coach.workflows.watching import launch_watch
from coach.workflows.watching.launch_watch import Launches
from tests.tui.fake_session import make_job

RUN = "20261121-142233-ddp-4f2a"


class Controller:
    """Answers only its third question, two minutes after the launch: the job has run meanwhile."""

    interval_s = 0.0

    def __init__(self) -> None:
        self.num_asked = 0

    def monotonic(self) -> float:
        return 40.0 * self.num_asked

    def poll(self) -> Iterable[Reading]:
        self.num_asked += 1
        if self.num_asked < 3:
            yield Reading("jobs", 0.0, 0.0, None, "Unable to contact slurm controller")
        else:
            yield Reading("jobs", 0.0, 0.0, JobList((make_job("17", "ada", state="COMPLETED"),), False))


def test_a_job_does_not_count_as_ended_while_the_controller_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = tmp_path / "runs" / RUN
    run_dir.mkdir(parents=True)
    value = {"run_id": RUN, "backend": "slurm", "job_id": "17", "user": "ada", "state": "PENDING"}
    (run_dir / "run.json").write_text(json.dumps(value))
    controller = Controller()
    submitted = Submitted(RUN, str(run_dir), "17", "PENDING")
    monkeypatch.setattr(launch_watch, "jobs_source", lambda *_: controller)
    monkeypatch.setattr(launch_watch, "submit", lambda *_: submitted)
    monkeypatch.setattr(launch_watch, "time", controller)
    monkeypatch.setattr(launch_watch, "_LOOK_INTERVAL_S", 0.0)
    settings = Settings(tmp_path / "runs", tmp_path / "cache", tmp_path / "config")
    launches = Launches(settings, os.environ, SystemIo({}), "slurm", "ada", lambda note: None)
    launches._watch(submitted, ())
    assert controller.num_asked == 3
