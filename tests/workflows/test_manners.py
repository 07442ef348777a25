"""A live session spares Slurm: it counts its questions, sleeps when no user looks, and does not ask about
jobs off the screen."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from coach.config import Settings
from coach.model.politeness import ACTIVE_S, Attention
from coach.model.snapshot import Watch
from coach.sources.io import COMMAND_TIMEOUT_S, CommandResult, Query, SystemIo
from coach.sources.polite.polling import Pace
from coach.sources.rpc_budget import ACTIVE_PER_MIN, IDLE_PER_MIN, RpcBudget
from coach.workflows.watching.live_session import WatchSession, live_session
from coach.workflows.watching.manners import Manners
from coach.workflows.watching.world import World
from tests.sources.fake_io import FakeIo
from tests.sources.squeue import squeue
from tests.waiting import wait_until

RUN = "20261121-142233-ddp-4f2a"


class Answering(SystemIo):
    """The real files; commands are counted, pass the budget, and are answered by the test."""

    def __init__(self, pace: Pace, budget: RpcBudget) -> None:
        super().__init__({}, on_file_op=pace.count_file_op)
        self.budget = budget
        self.fake = FakeIo()
        self.fake.answer("jobs", squeue({"job_id": "17", "user": "me"}))
        self.fake.answer("nodes", lambda query: b"")
        self.fake.answer(
            "config",
            lambda query: b"SlurmctldParameters     = rl_enable,rl_refill_rate=1,rl_refill_period=2\n",
        )
        self.paths: list[Path] = []

    def run(self, query: Query, timeout_s: float = COMMAND_TIMEOUT_S) -> CommandResult:
        self.budget.acquire(query.num_rpcs)
        return self.fake.run(query, timeout_s)

    def size(self, path: Path, owner: int | None = None) -> int:
        self.paths.append(path)
        return super().size(path, owner)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    made = Settings(runs_root=tmp_path / "runs", cache_dir=tmp_path / "cache", config_dir=tmp_path / "config")
    return replace(made, idle_minutes=5.0)


@pytest.fixture
def session(settings: Settings) -> Iterator[tuple[WatchSession, Answering]]:
    pace, budget = Pace(), RpcBudget()
    io = Answering(pace, budget)
    made = WatchSession(settings, World("slurm", io, "me"), manners=Manners(pace, budget))
    yield made, io
    made.stop()
    assert [t.name for t in threading.enumerate() if t.name.startswith("source ")] == []


def test_the_snapshot_shows_the_calls_made_and_a_quarter_of_the_site_s_refill_rate(
    session: tuple[WatchSession, Answering],
) -> None:
    running, _ = session
    running.start(lambda snapshot: None)

    def is_told() -> bool:
        spending = running.snapshot.spending
        return spending is not None and spending.num_rpcs > 0 and spending.limit_per_min == 7.5

    wait_until(is_told, 10, "the spending is told")


def test_focus_and_recent_keys_decide_the_call_budget(session: tuple[WatchSession, Answering]) -> None:
    running, io = session
    assert running.attend(0.0, is_focused=True, is_run_open=False) == Attention()
    assert io.budget.limit_per_min == ACTIVE_PER_MIN
    idle = running.attend(ACTIVE_S, is_focused=True, is_run_open=True)
    assert (idle.is_active, idle.is_asleep) == (False, False)
    assert io.budget.limit_per_min == IDLE_PER_MIN
    assert not running.attend(0.0, is_focused=False, is_run_open=False).is_active
    assert running.attend(300.0, is_focused=True, is_run_open=False).is_asleep


def test_the_minutes_until_sleep_follow_the_settings(
    session: tuple[WatchSession, Answering], settings: Settings
) -> None:
    running, _ = session
    running.use(replace(settings, idle_minutes=60.0))
    assert not running.attend(300.0, is_focused=True, is_run_open=False).is_asleep


def test_a_recording_never_sleeps(settings: Settings) -> None:
    replayed = WatchSession(settings, World("slurm", FakeIo(), "me", is_recorded=True))
    assert replayed.attend(1e6, is_focused=False, is_run_open=False) == Attention()


def test_a_run_that_left_the_screen_keeps_its_place_but_its_files_are_left_alone(
    session: tuple[WatchSession, Answering], settings: Settings
) -> None:
    running, io = session
    run_dir = settings.runs_root / RUN
    (run_dir / "metrics").mkdir(parents=True)
    (run_dir / "run.json").write_text(json.dumps({"run_id": RUN, "backend": "slurm", "state": "RUNNING"}))
    metrics = run_dir / "metrics" / "rank-0.jsonl"
    metrics.write_text('{"step": 1, "loss": 2.0}\n')
    running.start(lambda snapshot: None)
    running.watch(Watch(targets=(RUN,)))
    wait_until(lambda: running.history(RUN).num_steps(0) == 1, 20, "the first step")
    running.watch(Watch(targets=()))
    other = threading.Event()

    def is_quiet() -> bool:
        before = io.paths.count(metrics)
        other.wait(2.5)
        return io.paths.count(metrics) == before

    wait_until(is_quiet, 30, "nobody looks at its metrics any more")
    metrics.write_text('{"step": 1, "loss": 2.0}\n{"step": 2, "loss": 1.0}\n')
    running.watch(Watch(targets=(RUN,)))
    wait_until(lambda: running.history(RUN).num_steps(0) == 2, 20, "the second step, and the first not again")


def test_on_this_machine_alone_nothing_is_shared_and_no_rpc_is_counted(settings: Settings) -> None:
    made = live_session(settings, "local", {})
    try:
        assert made.snapshot.spending is None
        assert not (settings.cache_dir / "answers").exists()
    finally:
        made.stop()
