"""Stacks that were taken of a job before its time limit, told afterwards beside the finding."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from coach.config import Settings
from coach.model.judging.finding import Diagnosis, Finding, Severity, Subject
from coach.model.snapshot import TargetSnapshot
from coach.workflows.judging.stacks_kept import with_stacks
from tests.analysis.made_jobs import job

TIME_LIMIT = Finding(
    *("JOB002", "time-limit", "slurm_timeout", Severity.WARNING, 0.98, True, None),
    *(Subject(), "The job reached its time limit", (), (), 900.0),
)


def told(
    tmp_path: Path, cause: str = "slurm_timeout", taken_s: float = 500.0, state: str = "TIMEOUT"
) -> list[str]:
    """The evidence of a job of 400 to 900 s, of which stacks were taken twice."""
    for name, first, at_s in (
        ("20261126-182922", "rank 1 is in a.py", 450.0),
        ("20261126-183237", "all wait", taken_s),
    ):
        folder = tmp_path / "cache" / "stacks" / "17" / name
        folder.mkdir(parents=True)
        (folder / "summary.txt").write_text(f"{first}\nrank 0 …\n", encoding="utf-8")
        os.utime(folder / "summary.txt", (at_s, at_s))
    settings = Settings(tmp_path / "runs", tmp_path / "cache", tmp_path / "config")
    ended = job("17", state, start_time_s=400.0, end_time_s=900.0)
    diagnosis = Diagnosis("17", state, (replace(TIME_LIMIT, cause=cause),), ())
    found = with_stacks(diagnosis, TargetSnapshot("17", 900.0, job=ended), settings)
    return [item.text for item in found.findings[0].evidence]


def test_the_newest_stacks_say_where_the_ranks_stood_before_the_time_limit(tmp_path: Path) -> None:
    assert told(tmp_path) == ["stacks taken 7 min before its end: all wait"]


@pytest.mark.parametrize("more", [{"taken_s": 300.0}, {"cause": "hang"}, {"state": "RUNNING"}])
def test_stacks_of_another_job_or_another_end_are_not_told(
    tmp_path: Path, more: dict[str, float | str]
) -> None:
    assert told(tmp_path, **more) == []  # type: ignore[arg-type]  # one kind of value each


def test_a_job_without_stacks_keeps_its_diagnosis(tmp_path: Path) -> None:
    settings = Settings(tmp_path / "runs", tmp_path / "cache", tmp_path / "config")
    diagnosis = Diagnosis("17", "TIMEOUT", (TIME_LIMIT,), ())
    assert (
        with_stacks(diagnosis, TargetSnapshot("17", 900.0, job=job("17", "TIMEOUT")), settings) is diagnosis
    )
