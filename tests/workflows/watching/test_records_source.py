"""The screens keep records small: one part at a look, of runs that certainly have ended."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from coach.model.slurm.cluster import Job
from coach.model.snapshot import Snapshot, SourceStatus
from coach.model.training.run import Run
from coach.sources.io import SystemIo
from coach.workflows.watching.records_source import REST_S, RecordsSource, ended_runs
from tests.workflows.jobs.test_thin_records import with_metrics
from tests.workflows.known import DAY_S, NOW_S, World

IDS = [f"202611{number + 1:02}-142230-ddp-000{number}" for number in range(6)]


class Clock(SystemIo):
    def now(self) -> float:
        return NOW_S


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    for run_id in IDS:
        with_metrics(made.make(run_id), ranks=60, steps=2)
    return made


def run_of(world: World, run_id: str, ended_s: float = NOW_S - 2 * DAY_S) -> Run:
    run_dir = str(world.settings.runs_root / run_id)
    return Run(
        run_id,
        run_dir,
        recipe="ddp",
        backend="slurm",
        job_id="17",
        state="COMPLETED",
        parameters={},
        resources={},
        launch={},
        created_time_s=ended_s,
        started_time_s=ended_s,
        ended_time_s=ended_s,
        parent_run_id=None,
        fix=None,
        device=None,
        dataset=None,
        versions={},
    )


def picture(world: World, **said: object) -> Snapshot:
    status = SourceStatus("jobs", NOW_S, None, None, 0, 0.1)
    runs = tuple(run_of(world, run_id) for run_id in IDS)
    empty = Snapshot(NOW_S, runs=runs, sources={"jobs": status})
    return replace(empty, **said)  # type: ignore[arg-type] # a test's keywords


def packed(world: World) -> list[str]:
    return [id_ for id_ in IDS if (world.settings.runs_root / id_ / "metrics" / "packed.jsonl").exists()]


def test_each_look_thins_one_part_at_most_until_the_limit_is_met(world: World) -> None:
    settings = replace(world.settings, max_records_files=250)
    shown = picture(world)
    source = RecordsSource(settings, Clock({}), lambda: shown)
    counts = []
    for _ in range(80):
        (reading,) = source.poll()
        counts.append(len(packed(world)))
        assert reading.error is None
    assert all(later - earlier <= 1 for earlier, later in pairwise(counts))
    assert counts[0] == 0
    assert packed(world) == IDS[:3]


def test_small_records_are_left_alone_for_half_an_hour(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [NOW_S]
    monkeypatch.setattr(Clock, "now", lambda _: now_s[0])
    shown = picture(world)
    source = RecordsSource(world.settings, Clock({}), lambda: shown)
    looks: list[int] = []
    look = source._sizes.look
    monkeypatch.setattr(source._sizes, "look", lambda most: [looks.append(most), look(most)][1])
    for _ in range(20):
        next(iter(source.poll()))
    num_looks = len(looks)
    assert 6 <= num_looks < 20
    now_s[0] += REST_S
    next(iter(source.poll()))
    assert len(looks) == num_looks + 1


def test_a_limit_that_thinning_cannot_meet_is_reported(world: World) -> None:
    settings = replace(world.settings, max_records_files=250, is_readonly=True)
    shown = picture(world)
    source = RecordsSource(settings, Clock({}), lambda: shown)
    readings = [next(source.poll()) for _ in range(20)]
    assert "over the limit" in (readings[-1].error or "")
    assert packed(world) == []


def test_runs_that_may_be_alive_are_left_alone(world: World) -> None:
    shown = picture(world)
    assert ended_runs(shown, NOW_S) == set(IDS)
    job = Job("17", "ddp", "ada", "RUNNING", None, "gpu", *[None] * 10)  # type: ignore[arg-type] # not known
    assert ended_runs(replace(shown, jobs=(job,)), NOW_S) == frozenset()
    assert ended_runs(replace(shown, sources={}), NOW_S) == frozenset()
    lately = replace(shown, runs=(run_of(world, IDS[0], NOW_S - 60), replace(shown.runs[1], state="RUNNING")))
    assert ended_runs(lately, NOW_S) == frozenset()
    drill = replace(shown.runs[0], drill="slow_rank")
    assert ended_runs(replace(shown, runs=(drill,)), NOW_S) == frozenset()
