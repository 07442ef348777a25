"""The jobs that `coach check` judges without a target: each own job once, from one query to the queue."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest

from coach.config import Settings
from coach.model.errors import UserError
from coach.rules.registry import build
from coach.sources.io import Query
from coach.sources.machine.user import user_name
from coach.sources.slurm.client import JobsSource
from coach.workflows.judging.check import MAX_TARGETS, Checker, own_targets
from coach.workflows.judging.targets import TargetKind
from tests.sources.fake_io import FakeIo
from tests.sources.squeue import own_squeue

NOW_S = datetime(2026, 11, 21, 12, 30).timestamp()  # noqa: DTZ001 (squeue's is local time)
BASE = {"user": "ada", "work_dir": "/w", "stdout": "/w/%j.out"}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(runs_root=Path("/runs"), cache_dir=tmp_path / "cache", config_dir=tmp_path / "config")


def ask(io: FakeIo, settings: Settings) -> list[tuple[str, TargetKind]]:
    return [(target.name, target.kind) for target in own_targets(settings, io, "ada", "slurm").targets]


def test_jobs_that_run_wait_or_ended_today_are_named_once_and_slurm_is_asked_once(settings: Settings) -> None:
    io = FakeIo(NOW_S)
    asked: list[Query] = []
    ended = {**BASE, "job_id": "43", "state": "FAILED", "end": "2026-11-21T12:10:01"}
    older = {**BASE, "job_id": "44", "state": "FAILED", "end": "2026-11-19T12:10:01"}
    answer = own_squeue({**BASE, "job_id": "42"}, {**BASE, "job_id": "45", "state": "PENDING"}, ended, older)

    def counted(query: Query) -> bytes:
        asked.append(query)
        return answer(query)

    io.answer("jobs", counted)
    assert ask(io, settings) == [(number, TargetKind.JOB) for number in ("42", "43", "45")]
    assert len(asked) == 1


def test_runs_that_ended_today_are_judged_though_slurm_has_forgotten_them(settings: Settings) -> None:
    io = FakeIo(NOW_S)
    io.answer("jobs", own_squeue())
    for run_id, ended_s in (
        ("20261121-100000-ddp-0001", NOW_S - 3600),
        ("20261119-100000-ddp-0002", NOW_S - 2e5),
    ):
        run = {
            "run_id": run_id,
            "backend": "slurm",
            "job_id": "7",
            "state": "FAILED",
            "ended_time_s": ended_s,
        }
        io.write(f"/runs/{run_id}/run.json", json.dumps(run).encode())
    assert ask(io, settings) == [("20261121-100000-ddp-0001", TargetKind.RUN)]


def test_a_job_that_was_seen_today_is_judged_though_slurm_has_forgotten_it(settings: Settings) -> None:
    io = FakeIo(NOW_S)
    io.answer("jobs", own_squeue({**BASE, "job_id": "42", "state": "FAILED", "end": "2026-11-21T12:10:01"}))
    ask(io, settings)
    io.answer("jobs", own_squeue())
    assert ask(io, settings) == [("42", TargetKind.JOB)]
    io.now_s += 90_000
    assert ask(io, settings) == []


def test_of_an_array_of_thousands_those_that_run_or_failed_are_read_and_the_rest_is_counted(
    settings: Settings,
) -> None:
    io = FakeIo(NOW_S)
    well = [{**BASE, "job_id": f"9_{task}", "state": "COMPLETED"} for task in range(MAX_TARGETS + 50)]
    io.answer("jobs", own_squeue(*well, {**BASE, "job_id": "8", "state": "FAILED"}, {**BASE, "job_id": "7"}))
    own = own_targets(settings, io, "ada", "slurm")
    assert [target.name for target in own.targets[:2]] == ["7", "8"]
    assert (len(own.targets), own.num_left_out) == (MAX_TARGETS, 52)


def test_the_one_bad_task_of_a_named_array_is_judged_however_high_its_number(settings: Settings) -> None:
    io, mine = FakeIo(NOW_S), {**BASE, "user": user_name()}
    well = [{**mine, "job_id": f"9_{task}", "state": "COMPLETED"} for task in range(MAX_TARGETS)]
    io.answer("jobs", own_squeue(*well, {**mine, "job_id": "9_900", "state": "OUT_OF_MEMORY"}))
    checked = Checker(settings, io, "slurm", rules=build()).target("9")
    assert "9_900" in {part.snapshot.target for part in checked.parts}
    assert (len(checked.parts), checked.num_left_out) == (MAX_TARGETS, 1)


def test_a_queue_that_does_not_answer_is_reported_in_slurm_s_words(settings: Settings) -> None:
    with pytest.raises(UserError, match="command not found"):
        own_targets(settings, FakeIo(), "ada", "slurm")


def test_own_targets_come_from_one_look_at_the_own_queue(settings: Settings) -> None:
    io = FakeIo(NOW_S)
    io.answer("jobs", own_squeue({**BASE, "job_id": "42"}))
    own = own_targets(settings, io, "ada", "slurm")
    told = next(iter(JobsSource(io, "ada", 0.0, is_all=False).poll())).payload
    assert own.queue == told
    assert own.output_paths.of("42") == (Path("/w/42.out"),)
