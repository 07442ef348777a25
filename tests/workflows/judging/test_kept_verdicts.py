"""Verdicts of jobs that coach did not launch: kept for one job, and not used for a later job with its id."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from coach.config import Settings
from coach.model.snapshot import TargetSnapshot
from coach.render.why import why_lines
from coach.sources.io import SystemIo
from coach.sources.machine.user import user_name
from coach.sources.runs.seen_jobs import SeenJobs
from coach.workflows.judging.kept_verdicts import keep, kept_of_forgotten, kept_verdict
from tests.analysis.made_jobs import job

VERDICT: dict[str, Any] = {
    "schema": 1,
    "target": "17",
    "state": "FAILED",
    "outcome": {"end": "exception", "reason": "ValueError", "rank": 1, "node": "n2", "lost_steps": 12},
    "findings": [{"severity": "critical", "rule": "COD001", "summary": "ValueError: no", "fixes": []}],
    "not_measured": [],
}


def kept(tmp_path: Path, **more: Any) -> tuple[Settings, SystemIo]:
    settings = Settings(tmp_path / "runs", tmp_path / "cache", tmp_path / "config")
    io = SystemIo({"PATH": "/nowhere"})
    ended = job("17", "FAILED", user=user_name(), end_time_s=990.0, **more)
    keep(settings, io, TargetSnapshot("17", 990.0, job=ended), VERDICT)
    return settings, io


def test_a_job_s_verdict_is_found_again_without_slurm(tmp_path: Path) -> None:
    settings, io = kept(tmp_path)
    assert kept_verdict("17", settings, io) == VERDICT
    assert (tmp_path / "cache" / "verdicts").stat().st_mode & 0o077 == 0


def test_a_later_job_of_the_same_number_and_a_rerun_are_judged_again(tmp_path: Path) -> None:
    settings, io = kept(tmp_path)
    again = job("17", "RUNNING", user=user_name(), submit_time_s=2000.0)
    SeenJobs(settings.cache_dir).remember([again], user_name(), io.now() + 1.0)
    assert kept_verdict("17", settings, io) is None
    assert kept_verdict("18", settings, io) is None


def test_another_user_s_job_is_known_by_its_id_alone_and_never_among_the_own_ones(tmp_path: Path) -> None:
    settings = Settings(tmp_path / "runs", tmp_path / "cache", tmp_path / "config")
    io = SystemIo({"PATH": "/nowhere"})
    theirs = job("17", "FAILED", user="somebody-else", end_time_s=990.0)
    keep(settings, io, TargetSnapshot("17", 990.0, job=theirs), VERDICT)
    assert kept_of_forgotten("17", settings) == VERDICT
    assert kept_of_forgotten("18", settings) is None
    assert kept_verdict("17", settings, io) is None
    assert not SeenJobs(settings.cache_dir).read()[0]


def test_a_kept_verdict_too_names_the_first_rank_and_the_lost_work() -> None:
    assert why_lines(VERDICT) == [
        "17  FAILED: it ended with ValueError, rank 1 first, on n2",
        "  critical COD001: ValueError: no",
        "  12 steps are lost since the last complete checkpoint",
    ]


def test_a_verdict_with_wrong_types_is_shown_as_far_as_it_can_be_read() -> None:
    torn = {"target": 3, "state": [], "outcome": {"end": "no end"}, "findings": [{"fixes": 1, "subject": 2}]}
    assert why_lines(torn)[0] == "–  state not known"
    assert all("\x1b" not in line for line in why_lines({**VERDICT, "target": "\x1b]0;owned\x07"}))
