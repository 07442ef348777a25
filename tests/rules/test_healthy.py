"""Healthy runs that look ill at first sight: for each rule the runs on which it must stay silent, and an ill
run beside them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from itertools import accumulate

import pytest

from coach.model.judging.finding import Diagnosis, Severity
from coach.model.training.metrics import MetricEvent
from coach.model.training.telemetry import TelemetrySample
from coach.rules.registry import build
from tests.rules.examples import gpu_samples, judge, run, steps
from tests.rules.test_telemetry import hosts, loud, only

NUM_STEPS = 140


def of_ranks(losses: Sequence[Sequence[float]], loss_of: str | None = None) -> Diagnosis:
    """Ranks that declare a part of the data for each of them, and the owner of each loss if it is
    declared."""
    series = [
        step
        for rank, of_rank in enumerate(losses)
        for step in steps(of_rank, rank, num_samples=16, num_samples_global=16 * len(losses))
    ]
    said = {} if loss_of is None else {"loss_of": loss_of}
    events = [MetricEvent(rank, "start", 1000.0, 0, said) for rank in range(len(losses))]
    return judge(series, run=run(), events=events)


@cache
def noise(seed: int, scale: float = 0.1, level: float = 1.0, count: int = NUM_STEPS) -> list[float]:
    chance = random.Random(seed)
    return [level + chance.gauss(0, scale) for _ in range(count)]


def running_mean(losses: Iterable[float]) -> list[float]:
    return list(accumulate(losses, lambda mean, loss: 0.98 * mean + 0.02 * loss))


@pytest.mark.parametrize("num_ranks", [2, 4, 8])
def test_equal_losses_of_all_ranks_count_only_if_they_are_known_to_be_the_rank_s_own(num_ranks: int) -> None:
    equal = [noise(0)] * num_ranks
    assert only(of_ranks(equal, "rank"), "DST025")
    assert not loud(of_ranks(equal)), "sync_dist, gather, all_reduce: nobody says whose it is"
    assert not loud(of_ranks(equal, "all"))


@pytest.mark.parametrize(
    "healthy",
    [
        [noise(rank, level=1.0 + 0.3 * (rank < 2)) for rank in range(4)],
        *([running_mean(noise(10 * seed + rank)) for rank in range(8)] for seed in range(6)),
        [[2.0 - 0.01 * step + 0.001 * rank * step for step in range(NUM_STEPS)] for rank in range(4)],
        [[0.0] * NUM_STEPS] * 4,
        [[round(value, 1) for value in noise(0, 0.02)]] * 4,
        [noise(rank) for rank in range(2)],
    ],
    ids=["harder-data", *[f"running-mean-{seed}" for seed in range(6)], "trends", "floor", "rounded", "two"],
)
def test_ranks_that_are_alike_in_level_or_drift_have_samples_of_their_own(
    healthy: list[list[float]],
) -> None:
    assert "DST025" not in [finding.rule for finding in of_ranks(healthy, "rank").findings]


def of_epochs(losses: Sequence[float], length: int) -> Diagnosis:
    series = [replace(step, epoch=(step.step - 1) // length) for step in steps(losses)]
    return judge(series, run=run())


def falling(count: int, pace: float = 40.0) -> list[float]:
    return [0.5 + 2.0 * math.exp(-step / pace) for step in range(count)]


_BATCHES = noise(1, 0.2, 0.0, 20)


@pytest.mark.parametrize(
    ("losses", "length"),
    [
        (falling(160), 20),
        ([2.0 * math.exp(-step / 9) + 1e-6 * noise(2, 1.0, 0.0, 160)[step] for step in range(160)], 16),
        ([1.0 + 0.4 * (step % 2) + noise(3, 0.02, 0.0, 240)[step] for step in range(240)], 24),
        ([1.0 + 0.4 * (step % 10 < 5) + noise(4, 0.02, 0.0, 400)[step] for step in range(400)], 40),
        ([1.0 + 0.5 * (step % 25 == 12) + noise(5, 0.1, 0.0, 500)[step] for step in range(500)], 25),
        ([2.0 * 0.97**step * (1 + _BATCHES[step % 20]) for step in range(160)], 20),
        (noise(6, 0.1, 1.0, 200), 20),
        ([1.0 + 0.5 * math.exp(-(step % 20) / 2) for step in range(200)], 20),
    ],
    ids=[
        *("full-batch", "one-batch-learned", "two-tasks-in-turn", "sizes-in-turn", "an-evaluation-in-each"),
        *("learned-by-heart", "shuffled", "warm-restarts"),
    ],
)
def test_a_course_that_comes_again_for_another_reason_is_no_order_of_samples(
    losses: list[float], length: int
) -> None:
    assert "DAT009" not in [finding.rule for finding in of_epochs(losses, length).findings]


def test_the_same_batches_in_each_epoch_are_reported() -> None:
    losses = [1.5 * 0.999**step + _BATCHES[step % 20] for step in range(160)]
    assert only(of_epochs(losses, 20), "DAT009").severity is Severity.WARNING


def started(world_size: int, *ranks: int) -> list[MetricEvent]:
    return [MetricEvent(rank, "start", 1000.0, 0, {"world_size": world_size}) for rank in ranks]


def at_work(
    events: Sequence[MetricEvent], num_gpus: int = 0, samples: Sequence[TelemetrySample] = ()
) -> list[str]:
    launched = run(resources={"num_nodes": 1, "gpus_per_node": num_gpus})
    diagnosis = judge(steps([1.0] * 100), samples, launched, 1130.0, events)
    return [finding.rule for finding in diagnosis.findings]


def test_a_program_that_logs_on_rank_0_alone_has_no_idle_ranks() -> None:
    assert "DST011" not in at_work(started(4, 0))
    assert "DST011" in at_work(started(4, 0, 1, 2, 3))


def test_ranks_of_other_nodes_whose_steps_are_seen_late_are_not_idle() -> None:
    def told(state: str, step_s: float) -> bool:
        launched = run(resources={"num_nodes": 2, "nproc_per_node": 1}, state=state)
        diagnosis = judge(steps([1.0] * 100, 0, step_s), run=launched, events=started(2, 0, 1))
        return "DST011" in [finding.rule for finding in diagnosis.findings]

    assert not told("RUNNING", 0.1)
    assert told("RUNNING", 1.0)
    assert told("COMPLETED", 0.1)


def test_unmeasured_gpus_and_gpus_that_a_neighbour_uses_are_not_called_idle() -> None:
    assert "DST011" not in at_work(started(1, 0), 4)
    busy = [sample for gpu in range(4) for sample in gpu_samples([60.0] * 130, gpu, power_w=300.0)]
    assert "DST011" not in at_work(started(1, 0), 4, busy)
    idle = [sample for gpu in range(4) for sample in gpu_samples([60.0 * (gpu == 0)] * 130, gpu)]
    assert "DST011" in at_work(started(1, 0), 4, idle)


def on_gpu(busy_pct: float, power_w: float = 100.0) -> Diagnosis:
    series = steps([1.0] * 6500, 0, 0.02, 0.0005, num_samples=64)
    samples = gpu_samples([busy_pct] * 130, memory_used_mib=4000.0, power_w=power_w)
    return judge(series, samples, now_s=1130.0)


def test_a_small_model_that_keeps_its_gpu_busy_for_half_of_the_time_is_no_alarm() -> None:
    assert only(on_gpu(55.0), "GPU011").severity is Severity.INFO
    assert only(on_gpu(20.0), "GPU011").severity is Severity.WARNING
    assert not on_gpu(55.0, power_w=250.0).findings


def with_norms(losses: Sequence[float], norm: float, precision: str = "fp32") -> list[str]:
    series = [replace(step, grad_norm=norm) for step in steps(losses)]
    return [finding.rule for finding in judge(series, run=run({"precision": precision})).findings]


def test_a_training_that_has_converged_or_writes_no_real_norm_has_no_vanished_gradients() -> None:
    converged = falling(600, 60.0)
    assert "NUM009" not in with_norms(converged, 1e-8)
    assert "NUM009" not in with_norms(converged, 0.0), "a norm that is always zero while the loss came down"
    assert "NUM009" not in with_norms([-5.0] * 300, 1e-8)
    assert "NUM009" in with_norms(noise(7, 0.001, 2.3, 300), 1e-8)
    assert "NUM009" in with_norms(converged, 0.0, "fp16")


def filling(epoch: int, up_to_mib: float, epochs: int = 5) -> Diagnosis:
    """Memory that grows steadily for twenty minutes."""
    samples = hosts(
        240,
        interval_s=5.0,
        memory_used_mib=lambda n: 8000 + (up_to_mib - 8000) * n / 240,
        memory_limit_mib=64e3,
    )
    series = [replace(step, epoch=epoch) for step in steps([1.0] * 1200, 0, 1.0)]
    return judge(series, samples, run({"epochs": epochs, "max_steps": 0}), now_s=2200.0)


def test_memory_that_grows_in_the_first_of_several_epochs_may_be_a_cache() -> None:
    assert only(filling(0, 40e3), "MEM009").severity is Severity.INFO
    assert only(filling(0, 50e3), "MEM009").severity is Severity.WARNING
    assert only(filling(1, 40e3), "MEM009").severity is Severity.WARNING
    assert only(filling(0, 40e3, epochs=1), "MEM009").severity is Severity.WARNING


def saved(nodes: Sequence[str], path: str) -> list[str]:
    events = [MetricEvent(rank, "start", 1000.0, 0, {"node": node}) for rank, node in enumerate(nodes)]
    events += [
        MetricEvent(rank, "checkpoint", 1050.0, 50, {"path": path, "seconds": 0.1})
        for rank in range(len(nodes))
    ]
    return [finding.rule for finding in judge(steps([1.0] * 100), run=run(), events=events).findings]


@pytest.mark.parametrize(
    ("nodes", "path", "is_told"),
    [
        (["n1", "n2"], "/tmp/last.pt", False),
        (["n1", "n1"], "/tmp/last.pt", True),
        (["n1", "n2"], "/runs/ddp/checkpoints/last.pt", True),
        (["n1", "n2"], "/runs/ddp/checkpoints/step-50", False),
    ],
    ids=["own-disks", "one-node", "run-directory", "folder-of-parts"],
)
def test_nodes_that_save_to_a_disk_of_their_own_do_not_write_one_file(
    nodes: list[str], path: str, is_told: bool
) -> None:
    assert ("DST015" in saved(nodes, path)) is is_told


@pytest.mark.parametrize(
    "quiet",
    [
        lambda: judge(steps([2.3, 2.2, 2.3, 2.1, 2.2]), run=run({"max_steps": 5, "batch_size": 2})),
        lambda: judge(
            steps([1.0] * 60, step_time_s=2.0), hosts(120, cpu_pct=100.0, num_cpus=2), now_s=1130.0
        ),
        lambda: judge(steps([1.0] * 60), hosts(120, cpu_pressure_pct=95.0, node_cpu_pct=100.0), now_s=1130.0),
    ],
    ids=["five-steps", "all-cpus-at-work", "busy-neighbours"],
)
def test_a_debug_run_and_a_busy_node_are_no_findings(quiet: Callable[[], Diagnosis]) -> None:
    assert not loud(quiet())


def together(lag_s: Callable[[int, int], float], count: int = 240) -> list[tuple[str, Severity]]:
    """Four ranks that end their steps together, each `lag_s(rank, step)` behind the work of 0.1 s that all
    have."""
    series = []
    for number in range(1, count + 1):
        own = [0.1 + lag_s(rank, number) for rank in range(4)]
        for rank in range(4):
            waits_s = max(own) - own[rank] + 0.01
            made = steps([1.0], rank, max(own) + 0.01, comm_time_s=waits_s, start_s=1000.0 + 0.15 * number)
            series.append(replace(made[0], step=number))
    return loud(judge(series, run=run()))


_CHANCE = random.Random(8)
_HICCUPS = {(rank, step): _CHANCE.expovariate(20) for rank in range(4) for step in range(1, 241)}


@pytest.mark.parametrize(
    "lag_s",
    [
        lambda rank, step: 5.0 * (rank == 0 and step % 50 == 0),
        lambda rank, step: 0.5 * (rank == 1 and step <= 10),
        lambda rank, step: 0.05 * (step // 40 % 4 == rank),
        lambda rank, step: _HICCUPS[rank, step],
        lambda rank, step: 0.1 * (rank == 2 and 100 <= step < 160),
        lambda rank, step: 0.2 * (rank < 3),
    ],
    ids=["rank-0-saves", "warm-up", "now-this-now-that", "noisy-neighbours", "one-burst", "one-is-faster"],
)
def test_ranks_that_are_late_for_a_good_reason_are_no_stragglers(lag_s: Callable[[int, int], float]) -> None:
    assert not together(lag_s)


def test_the_rank_that_is_always_late_is_reported() -> None:
    late = together(lambda rank, step: 0.05 * (rank == 2) + _HICCUPS[rank, step] / 5)
    assert late == [("DST008", Severity.WARNING)]


def test_a_small_micro_batch_is_judged_by_its_recipe_and_by_nothing_else() -> None:
    usual = {"batch_size": {"default": 64, "usual": [8, 4096]}}
    series = steps([1.0] * 300, 0, 0.02, num_samples=64)

    def told(batch: int, accumulation: int) -> list[str]:
        launched = run({"batch_size": batch, "gradient_accumulation": accumulation}, parameter_info=usual)
        return [finding.rule for finding in judge(series, run=launched).findings]

    assert "GPU011" not in told(8, 8)
    assert "GPU011" in told(4, 16)
    assert "GPU011" not in [finding.rule for finding in judge(series).findings]


@pytest.mark.parametrize(
    "used_mib",
    [
        lambda n: 8000.0 + 150.0 * (n % 60),
        lambda n: 8000.0 + 20000.0 * (n >= 60),
        lambda n: 8000.0 + 100.0 * min(n, 170),
    ],
    ids=["workers-anew-each-epoch", "an-evaluation-loads-its-data", "a-cache-that-is-full"],
)
def test_memory_that_rises_and_stays_or_comes_back_is_no_leak(used_mib: Callable[[int], float]) -> None:
    samples = hosts(240, interval_s=5.0, memory_used_mib=used_mib, memory_limit_mib=40e3)
    assert not judge((), samples, now_s=2200.0).findings


@pytest.mark.parametrize("code", ["JOB006", "JOB007", "JOB009"])
def test_rules_about_unused_requests_are_never_an_alarm(code: str) -> None:
    (rule,) = [rule for rule in build() if rule.code == code]
    assert rule.severity is Severity.INFO


def waiting(share: float, num_workers: int = 2, **host: float) -> list[tuple[str, Severity]]:
    """A training on CPUs that waits for its data."""
    launched = run({"num_workers": num_workers}, {"num_nodes": 1, "gpus_per_node": 0})
    series = steps([1.0] * 300, 0, 0.1, 0.1 * share)
    return loud(judge(series, hosts(40, num_cpus=2, **host), launched, now_s=1040.0))


def test_loaders_and_a_training_that_want_for_cpus_are_not_called_input_bound() -> None:
    told = [("GPU005", Severity.CRITICAL)]
    assert not waiting(0.15, cpu_pct=10.0, node_cpu_pct=100.0), "others use the node"
    assert not waiting(0.3, cpu_pct=99.0, node_cpu_pct=99.0), "it uses all there is"
    assert waiting(0.25, cpu_pct=40.0, node_cpu_pct=45.0) == told
    assert waiting(0.25, num_workers=0, cpu_pct=50.0, node_cpu_pct=100.0) == told, "one process does both"
    assert not waiting(0.25, num_workers=0, cpu_pct=99.0), "no CPU is left for a worker"
    assert waiting(0.5, cpu_pct=20.0, node_cpu_pct=100.0) == told


@pytest.mark.parametrize(
    ("own_pct", "node_pct", "whose"),
    [(98.0, 30.0, "the job's CPUs on n1"), (20.0, 99.0, "all CPUs of n1")],
)
def test_the_cpus_that_are_full_are_told_apart(own_pct: float, node_pct: float, whose: str) -> None:
    launched = run({"num_workers": 2}, {"num_nodes": 1, "gpus_per_node": 0})
    samples = [replace(each, node="n1") for each in hosts(40, cpu_pct=own_pct, node_cpu_pct=node_pct)]
    findings = judge(steps([1.0] * 300, 0, 0.1, 0.015), samples, launched, now_s=1040.0).findings
    (finding,) = [finding for finding in findings if finding.rule == "GPU005"]
    told = {each.text: each.value for each in finding.evidence}
    assert told[f"use of {whose} during the training, mean"] == max(own_pct, node_pct)
