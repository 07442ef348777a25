"""How often files are read, on a clock of the test: the sources are real, and their requests are counted."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from coach.model.politeness import Attention
from coach.model.reading import Reading
from coach.sources.base import PollingSource
from coach.sources.io import SystemIo
from coach.sources.logs.log_source import LogSource
from coach.sources.metrics.run_metrics import MetricsSource
from coach.sources.metrics.telemetry_files import TelemetrySource
from coach.sources.polite import polling
from coach.sources.polite.polling import FILE_OPS_PER_MIN, IDLE_FILE_OPS_PER_MIN, IDLE_STRETCH, Pace
from coach.sources.runs.run_files import RunFilesSource
from coach.sources.runs.run_list import RunListSource
from tests.waiting import wait_until

RUN = "20261121-142233-ddp-4f2a"
ACTIVE = Attention()
IDLE = Attention(is_active=False)
RUN_OPEN = Attention(is_active=False, is_run_open=True)


@dataclass
class Loop:
    """One source with its turn in the pace: in coach every loop has its own thread, here it has a number."""

    source: PollingSource
    thread_id: int
    due_s: float = 0.0


class Simulation:
    """Polls each source when its pause is over, and counts the requests to the file server per minute."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, attention: Attention) -> None:
        self.pace = Pace()
        self.pace.attend(attention)
        self.now_s = 0.0
        self.ops: list[float] = []
        self.polls: dict[str, list[float]] = {}
        self.on_second: Callable[[], object] = lambda: None
        self.io = SystemIo({}, on_file_op=self._count)
        self._thread_id = 0
        self._loops: list[Loop] = []
        monkeypatch.setattr(threading, "get_ident", lambda: self._thread_id)

    def add(self, *sources: PollingSource) -> None:
        for source in sources:
            self._loops.append(Loop(source, -1 - len(self._loops)))
            self._thread_id = self._loops[-1].thread_id
            self.pace.begin()

    def run(self, until_s: float) -> None:
        while self.now_s < until_s:
            self.on_second()
            for loop in self._loops:
                if loop.due_s <= self.now_s:
                    self._thread_id = loop.thread_id
                    for reading in loop.source.poll():
                        assert reading.error is None
                    self.pace.rest()
                    self.polls.setdefault(loop.source.name, []).append(self.now_s)
                    loop.due_s = self.now_s + self.pace.pause_s(loop.source.interval_s, 0.0, 0)
            self.now_s += 1.0

    def most_in_a_minute(self, after_s: float) -> int:
        """Ignore the first polls, because they happen only once."""
        counted = [time_s for time_s in self.ops if time_s >= after_s]
        return max(sum(0 <= time_s - start_s < 60 for time_s in counted) for start_s in counted)

    def _count(self, path: Path | None) -> None:
        if path is not None:
            self.ops.append(self.now_s)
        self.pace.count_file_op(path)


def make_run(root: Path, num_ranks: int, num_nodes: int, state: str = "RUNNING") -> Path:
    run_dir = root / RUN
    for folder in ("metrics", "telemetry", "checkpoints"):
        (run_dir / folder).mkdir(parents=True)
    value = {"run_id": RUN, "state": state, "backend": "slurm", "job_id": "17"}
    (run_dir / "run.json").write_text(json.dumps(value))
    for name in ("stdout.log", "stderr.log"):
        (run_dir / name).write_text("begin\n")
    for step in range(3):
        (run_dir / "checkpoints" / f"step-{step:08d}.pt").write_text("")
    grow(run_dir, num_ranks, num_nodes, 0)
    return run_dir


def grow(run_dir: Path, num_ranks: int, num_nodes: int, step: int) -> None:
    for rank in range(num_ranks):
        with open(run_dir / "metrics" / f"rank-{rank}.jsonl", "a") as file:
            file.write(f'{{"step":{step},"loss":1.0,"time_s":{step}.0}}\n')
    for node in range(num_nodes):
        with open(run_dir / "telemetry" / f"node{node}.jsonl", "a") as file:
            file.write(f'{{"kind":"host","time_s":{step}.0,"node":"node{node}"}}\n')
    with open(run_dir / "stdout.log", "a") as file:
        file.write(f"step {step}\n")


def open_run(simulation: Simulation, root: Path, num_ranks: int, num_nodes: int) -> None:
    """The sources of a run on the screen, all of whose files grow each second."""
    run_dir, io = make_run(root, num_ranks, num_nodes), simulation.io
    logs = (run_dir / "stdout.log", run_dir / "stderr.log")
    simulation.add(
        RunListSource(io, root),
        RunFilesSource(io, RUN, run_dir),
        MetricsSource(io, RUN, run_dir),
        TelemetrySource(io, RUN, run_dir),
        LogSource(io, RUN, lambda: logs, lambda: ()),
    )
    simulation.on_second = lambda: grow(run_dir, num_ranks, num_nodes, int(simulation.now_s))


def test_a_run_of_64_ranks_on_the_screen_costs_at_most_600_questions_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulation = Simulation(monkeypatch, RUN_OPEN)
    open_run(simulation, tmp_path, num_ranks=64, num_nodes=8)
    simulation.run(240)
    assert FILE_OPS_PER_MIN / 2 < simulation.most_in_a_minute(after_s=60) <= FILE_OPS_PER_MIN
    assert len(simulation.polls["log"]) > 30, "what is cheap is looked at often"
    assert len(simulation.polls["metrics"]) >= 6, "what is dear is looked at, too"


def test_a_small_run_on_the_screen_is_followed_within_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulation = Simulation(monkeypatch, RUN_OPEN)
    open_run(simulation, tmp_path, num_ranks=2, num_nodes=1)
    simulation.run(120)
    assert simulation.most_in_a_minute(after_s=30) <= FILE_OPS_PER_MIN
    assert len(simulation.polls["metrics"]) >= 20


def test_an_untouched_coach_asks_at_most_60_times_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulation = Simulation(monkeypatch, IDLE)
    open_run(simulation, tmp_path, num_ranks=2, num_nodes=1)
    simulation.run(600)
    assert simulation.most_in_a_minute(after_s=120) <= IDLE_FILE_OPS_PER_MIN
    assert len(simulation.polls["log"]) > 10


def test_an_open_run_is_read_half_as_often_without_focus(monkeypatch: pytest.MonkeyPatch) -> None:
    focused, away = (
        polling.file_ops_per_min(Attention(False, is_focused, is_run_open=True))
        for is_focused in (True, False)
    )
    assert (focused, away) == (FILE_OPS_PER_MIN, FILE_OPS_PER_MIN / 2)


def test_slurm_is_asked_less_often_while_coach_is_untouched() -> None:
    pace = Pace()
    assert pace.pause_s(10.0, 0.1, 0) == 10.0
    pace.attend(IDLE)
    assert pace.pause_s(10.0, 0.1, 0) == 10.0 * IDLE_STRETCH
    assert pace.pause_s(10.0, 2.5, 0) == pytest.approx(50.0), "a slow controller counts for more than that"


class Counted:
    name = "counted"
    interval_s = 0.05

    def __init__(self) -> None:
        self.num_polls = 0

    def poll(self) -> Iterable[Reading]:
        self.num_polls += 1
        return ()


def test_nothing_is_asked_while_coach_sleeps_and_at_once_when_it_wakes() -> None:
    pace, source, stop = Pace(), Counted(), threading.Event()
    pace.attend(Attention(is_active=False, is_asleep=True))
    thread = threading.Thread(
        target=polling.poll_loop, args=(source, lambda reading: None, stop), kwargs={"pace": pace}
    )
    thread.start()
    try:
        stop.wait(0.6)
        assert source.num_polls == 0
        pace.attend(ACTIVE)
        wait_until(lambda: source.num_polls > 1, 5, "it polls again")
    finally:
        stop.set()
        pace.ring()
        thread.join(5)
    assert not thread.is_alive()
