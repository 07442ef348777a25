"""The bounded past: nothing that a rule relies on is lost when it overflows."""

from __future__ import annotations

import math

import pytest

from coach.model import history as history_module
from coach.model.history import History
from coach.model.metrics import Step
from coach.model.telemetry import GpuSample, HostSample, ProcessSample


def step(number: int, *, rank: int = 0, loss: float = 1.0, step_time_s: float = 0.5) -> Step:
    return Step(
        rank=rank,
        step=number,
        time_s=float(number),
        loss=loss,
        num_samples_global=64,
        step_time_s=step_time_s,
    )


def test_a_long_run_keeps_its_newest_steps_and_its_whole_curve() -> None:
    history = History()
    num_steps = 20_000
    history.add_steps(step(n) for n in range(1, num_steps + 1))
    assert len(history.steps(0)) == history_module.MAX_STEPS_PER_RANK
    assert history.steps(0)[-1].step == num_steps
    assert history.num_steps(0) == num_steps
    assert len(history.curve) <= history_module.MAX_CURVE_POINTS
    assert sum(point.num_steps for point in history.curve) == num_steps
    assert history.curve[-1].step == num_steps
    assert history.curve[0].samples_per_s == pytest.approx(128.0)


def test_the_first_nan_is_remembered_after_it_left_the_window() -> None:
    history = History()
    history.add_steps(step(n, loss=math.nan if n >= 2 else 2.3) for n in range(1, 10_000))
    first = history.first_not_finite(0)
    assert first is not None
    assert first.step == 2
    assert history.steps(0)[0].step > 2


def test_a_curve_keeps_a_loss_that_is_not_finite() -> None:
    history = History()
    history.add_steps(step(n, loss=math.inf if n == 300 else 1.0) for n in range(1, 2_000))
    assert any(point.loss is not None and math.isinf(point.loss) for point in history.curve)


def test_ranks_gpus_and_nodes_are_kept_apart() -> None:
    history = History()
    history.add_steps([step(1, rank=1), step(1, rank=0)])
    history.add_samples(
        [
            GpuSample("node2", 1.0, 0, "GPU-b", utilization_pct=10.0),
            GpuSample("node1", 1.0, 1, "GPU-a", utilization_pct=90.0),
            HostSample("node1", 1.0, cpu_pct=50.0),
        ]
    )
    assert history.ranks == (0, 1)
    assert history.gpus == (("node1", 1), ("node2", 0))
    assert history.gpu("node1", 1)[0].utilization_pct == 90.0
    assert history.gpu("node9", 0) == ()
    assert history.nodes == ("node1",)


def test_only_the_newest_round_of_processes_is_shown() -> None:
    history = History()
    history.add_samples([ProcessSample("n", 1.0, 10, "python"), ProcessSample("n", 1.0, 11, "python")])
    history.add_samples([ProcessSample("n", 2.0, 10, "python")])
    assert [process.pid for process in history.processes("n")] == [10]
