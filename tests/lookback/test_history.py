"""The bounded past keeps everything that a rule needs when it overflows."""

from __future__ import annotations

import math

import pytest

from coach.lookback import history as history_module
from coach.lookback.history import CurvePoint, History, throughput
from coach.model.training.metrics import Step
from coach.model.training.telemetry import (
    GpuEvent,
    GpuHealth,
    GpuLink,
    GpuSample,
    HostSample,
    MountSample,
    PortSample,
    ProcessSample,
)


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


def test_the_curve_is_that_of_the_lowest_rank_even_if_another_rank_s_steps_come_first() -> None:
    history = History()
    history.add_steps(step(n, rank=1, loss=9.0) for n in (1, 2))
    history.add_steps([*(step(n) for n in (1, 2, 3)), step(3, rank=1, loss=9.0)])
    assert [(point.step, point.loss) for point in history.curve] == [(1, 1.0), (2, 1.0), (3, 1.0)]


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
    assert not history.gpu("node9", 0)
    assert history.nodes == ("node1",)


def test_only_the_newest_round_of_processes_is_shown() -> None:
    history = History()
    history.add_samples([ProcessSample("n", 1.0, 10, "python"), ProcessSample("n", 1.0, 11, "python")])
    history.add_samples([ProcessSample("n", 2.0, 10, "python")])
    assert [process.pid for process in history.processes("n")] == [10]


def test_the_largest_process_of_a_node_is_kept_after_it_has_ended() -> None:
    history = History()
    assert history.largest_process("n") is None
    for time_s, used_mib in enumerate((None, 700.0, 900.0, 800.0, None)):
        history.add_samples([ProcessSample("n", float(time_s), 10, "python", anonymous_mib=used_mib)])
    largest = history.copy().largest_process("n")
    assert largest is not None
    assert (largest.time_s, largest.anonymous_mib) == (2.0, 900.0)


def test_counts_of_a_run_are_the_newest_sample_minus_the_first() -> None:
    history = History()
    for number in range(100):
        history.add_samples(
            [
                GpuHealth("node1", float(number), 0, "GPU-a", ecc_volatile_corrected=5 + number),
                GpuLink("node1", float(number), 0, "GPU-a", pcie_replays=number),
                PortSample("node1", float(number), "mlx5_0/1", num_errors=2 * number),
                MountSample("node1", float(number), "/home", wait_ms=float(number)),
                GpuEvent("node1", float(number), 0, "GPU-a", xid=63),
            ]
        )
    copied = history.copy()
    history.add_samples([GpuHealth("node1", 100.0, 0, "GPU-a"), PortSample("node2", 100.0, "mlx5_0/1")])
    health = copied.gpu_health("node1", 0)
    assert health is not None
    assert [look.ecc_volatile_corrected for look in health] == [5, 104]
    link = copied.gpu_link("node1", 0)
    assert link is not None
    assert [look.pcie_replays for look in link] == [0, 99]
    [(first, newest)] = copied.ports("node1")
    assert (first.num_errors, newest.num_errors) == (0, 198)
    assert [mount.wait_ms for mount in copied.mounts("node1")] == [99.0]
    assert [event.time_s for event in copied.gpu_events] == [float(number) for number in range(100)]
    assert copied.gpu_health("node2", 0) is None


def test_a_file_that_claims_endless_ports_and_events_fills_no_memory() -> None:
    history = History()
    history.add_samples(PortSample("node1", 1.0, f"port{n}") for n in range(2 * history_module.MAX_NAMES))
    history.add_samples(GpuEvent("node1", 1.0, 0, None, n) for n in range(2 * history_module.MAX_EVENTS))
    assert len(history.ports("node1")) == history_module.MAX_NAMES
    assert len(history.gpu_events) == history_module.MAX_EVENTS


def test_with_many_gpus_each_series_is_shorter_and_its_old_part_thinned() -> None:
    seconds = 1500
    history = History()
    history.add_samples(GpuSample(f"node{n:02d}", 0.0, g, None) for n in range(64) for g in range(8))
    history.add_samples(GpuSample("node07", float(s), 3, None) for s in range(1, seconds))
    times = [sample.time_s for sample in history.gpu("node07", 3)]
    assert len(times) <= history_module.MAX_SAMPLES / 512
    assert times == sorted(times)
    assert times[0] == 0.0
    assert times[-120:] == [float(s) for s in range(seconds - 120, seconds)]
    assert times[1] - times[0] > 1.0


def test_derived_values_are_computed_again_after_an_addition() -> None:
    history = History()
    assert history.derived("ranks", lambda: len(history.ranks)) == 0
    history.add_steps([step(1)])
    assert history.derived("ranks", lambda: len(history.ranks)) == 1


def test_steps_of_very_many_ranks_keep_within_their_bound() -> None:
    history = History()
    history.add_steps(step(1, rank=rank) for rank in range(512))
    history.add_steps(step(n, rank=511) for n in range(2, 700))
    assert len(history.steps(511)) == history_module.MAX_STEPS / 512
    assert history.steps(511)[-1].step == 699


def test_speed_is_known_in_the_unit_that_the_program_reports() -> None:
    def point(time_s: float | None, tokens: float | None = None, samples: float | None = None) -> CurvePoint:
        return CurvePoint(1, 1, None, 1.0, samples, None, time_s, tokens_per_s=tokens)

    assert throughput([point(0.5, 900.0, 8.0)]) == ("samples/s", [8.0])
    assert throughput([point(0.5), point(0.5, 900.0)]) == ("tokens/s", [None, 900.0])
    assert throughput([point(0.5), point(None)]) == ("steps/s", [2.0, None])
    assert throughput([]) == ("steps/s", [])
