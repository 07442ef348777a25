"""Rules on the sampler's telemetry: each fires on a recording of its fault and is silent for GPUs at work."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from coach.model.judging.finding import Diagnosis, Finding, Severity
from coach.model.slurm.cluster import Job
from coach.model.snapshot import TargetSnapshot
from coach.model.training.metrics import MetricEvent
from coach.model.training.telemetry import (
    GpuEvent,
    GpuLink,
    HostSample,
    MountSample,
    ProcessSample,
    TelemetrySample,
)
from coach.rules.engine import Engine
from coach.rules.registry import build
from tests.rules.examples import causes, gpu_samples, history, judge, run, steps
from tests.rules.recorded import diagnose, read

WORK = {"power_w": 300.0}


def hosts(count: int, start_s: float = 1000.0, interval_s: float = 1.0, **values: Any) -> list[HostSample]:
    """One host sample each interval; a value may be a function of its number."""
    return [
        HostSample(
            "node1",
            start_s + number * interval_s,
            **{key: value(number) if callable(value) else value for key, value in values.items()},
        )
        for number in range(count)
    ]


def loud(diagnosis: Diagnosis) -> list[tuple[str, Severity]]:
    return [(f.rule, f.severity) for f in diagnosis.findings if f.severity > Severity.INFO]


def only(diagnosis: Diagnosis, rule: str) -> Finding:
    (finding,) = [finding for finding in diagnosis.findings if finding.rule == rule]
    return finding


@pytest.mark.parametrize(
    ("name", "rule", "severity", "gpu"),
    [
        ("throttled", "HDW003", Severity.CRITICAL, 1),
        ("pcie", "HDW004", Severity.WARNING, 1),
        ("pcie-generation", "HDW004", Severity.WARNING, 1),
        ("nvlink", "HDW006", Severity.WARNING, 1),
        ("memory-errors", "HDW009", Severity.CRITICAL, 1),
        ("row-pending", "HDW009", Severity.WARNING, 0),
        ("xid", "HDW010", Severity.CRITICAL, 0),
        ("uneven", "DST009", Severity.WARNING, 3),
    ],
)
def test_a_failing_gpu_is_named_with_its_fault_and_is_the_only_finding(
    name: str, rule: str, severity: Severity, gpu: int
) -> None:
    diagnosis = diagnose(f"gpus/{name}")
    assert loud(diagnosis) == [(rule, severity)]
    finding = diagnosis.findings[0]
    assert (finding.subject.node, finding.subject.gpu) == ("node1", gpu)
    assert finding.evidence


def test_gpus_at_their_power_limit_with_old_corrected_errors_and_a_link_that_slept_are_healthy() -> None:
    diagnosis = diagnose("gpus/healthy")
    assert not loud(diagnosis)
    assert [finding.rule for finding in diagnosis.findings] == ["MEM005"], "a full memory is worth knowing"


def test_gpm_shows_a_gpu_that_is_busy_on_few_multiprocessors_and_a_full_one_is_silent() -> None:
    finding = only(diagnose("gpus/underfed"), "GPU013")
    assert finding.severity is Severity.WARNING
    assert "6 % of its multiprocessors" in finding.summary
    assert finding.fixes[0].changes_learning
    assert not loud(diagnose("gpus/well-fed"))


def test_without_gpm_low_power_is_only_worth_knowing() -> None:
    finding = only(judge((), gpu_samples([99.0] * 130, power_w=90.0), now_s=1130.0), "GPU013")
    assert "draws 22 % of its power limit" in finding.summary
    assert finding.severity is Severity.INFO
    assert finding.confidence < 0.7


def test_a_passing_peak_of_heat_is_no_throttling() -> None:
    cool = gpu_samples([95.0] * 128, **WORK, clocks_event_reasons=("sw_power_cap",))
    hot = gpu_samples([95.0] * 2, start_s=1128.0, **WORK, clocks_event_reasons=("hw_thermal_slowdown",))
    assert not judge((), [*cool, *hot], now_s=1130.0).findings


def test_an_xid_of_the_programs_own_is_a_warning_to_look_at_the_program() -> None:
    finding = only(judge((), [GpuEvent("node1", 1000.0, 0, None, 31)]), "HDW010")
    assert finding.severity is Severity.WARNING
    assert finding.fixes[0].changes == {"env": {"CUDA_LAUNCH_BLOCKING": "1"}}


def test_cards_that_have_no_bridge_at_all_lack_no_nvlink() -> None:
    links = [GpuLink("node1", 1000.0, gpu, None, num_nvlinks=12, num_active_nvlinks=0) for gpu in range(4)]
    assert not judge((), [*gpu_samples([95.0] * 10, **WORK), *links]).findings


def busy_cpus(gpu_pct: float, **more: Any) -> Diagnosis:
    values = {"cpu_pct": 98.0, "num_cpus": 8, "cpu_pressure_pct": 60.0, **more}
    return judge((), [*gpu_samples([gpu_pct] * 130), *hosts(130, **values)], now_s=1130.0)


def test_cpus_at_their_limit_are_the_cause_of_gpus_that_wait() -> None:
    findings = busy_cpus(20.0).findings
    assert [(f.rule, f.consequence_of) for f in findings] == [("GPU006", None), ("GPU003", "GPU006")]
    assert "8 CPUs" in findings[0].evidence[0].text


def crowded(num_threads: int | None, num_ranks: int = 4, pressure_pct: float | None = 60.0) -> Finding:
    values = {"cpu_pct": 98.0, "num_cpus": 8, "cpu_pressure_pct": pressure_pct}
    ranks = [
        ProcessSample("node1", 1129.0, 40 + rank, rank=rank, num_threads=num_threads)
        for rank in range(num_ranks)
    ]
    samples = [*gpu_samples([20.0] * 130), *hosts(130, **values), *ranks]
    return judge((), samples, now_s=1130.0).findings[0]


def test_ranks_with_far_more_threads_than_cpus_get_the_number_to_set() -> None:
    finding = crowded(64)
    assert finding.rule == "GPU006"
    assert (finding.evidence[-1].text, finding.evidence[-1].value) == ("threads of 4 ranks on 8 CPUs", 256.0)
    assert finding.fixes[0].changes == {"env": {"OMP_NUM_THREADS": "2"}}


@pytest.mark.parametrize(
    "quiet",
    [
        lambda: crowded(7),
        lambda: crowded(64, num_ranks=1),
        lambda: crowded(64, pressure_pct=5.0),
        lambda: crowded(64, pressure_pct=None),
        lambda: crowded(None),
    ],
    ids=["few", "one-rank", "nothing-waits", "pressure-unknown", "threads-unknown"],
)
def test_threads_that_cost_nothing_or_are_not_known_are_not_named(quiet: Callable[[], Finding]) -> None:
    finding = quiet()
    assert not [item for item in finding.evidence if "threads" in item.text]
    assert not any("OMP_NUM_THREADS" in fix.title for fix in finding.fixes)


def test_a_program_that_takes_every_cpu_beside_a_gpu_that_waits_is_seen_by_the_real_sampler() -> None:
    findings = diagnose("hosts/cpu-bound").findings
    assert [(f.rule, f.consequence_of) for f in findings] == [("GPU006", None), ("GPU003", "GPU006")]


@pytest.mark.parametrize(
    "quiet",
    [
        lambda: busy_cpus(90.0),
        lambda: busy_cpus(75.0, cpu_pct=60.0),
        lambda: judge((), hosts(600, cpu_pct=100.0, num_cpus=2, cpu_pressure_pct=90.0), now_s=1600.0),
    ],
    ids=["gpus-busy", "cpus-left", "trains-on-cpus"],
)
def test_cpus_that_cost_no_gpu_anything_are_silent(quiet: Callable[[], Diagnosis]) -> None:
    assert not loud(quiet())


@pytest.mark.parametrize(
    "values",
    [
        {"cpu_pct": lambda n: 98.0 if n >= 600 else 20.0, "num_cpus": 8, "cpu_pressure_pct": 60.0},
        {"io_stall_pct": 55.0},
    ],
)
@pytest.mark.parametrize("state", ["RUNNING", "COMPLETED"])
def test_gpus_that_were_idle_earlier_do_not_wait_for_what_is_busy_at_the_end(
    values: dict[str, Any], state: str
) -> None:
    samples = [*gpu_samples([20.0] * 600 + [95.0] * 130, **WORK), *hosts(730, **values)]
    found = judge(steps([1.0] * 730, step_time_s=1.0), samples, run(state=state), now_s=1730.0).findings
    assert not {finding.rule for finding in found} & {"GPU006", "DAT006"}


def test_storage_that_everything_waits_for_is_named_with_its_file_system() -> None:
    samples: list[TelemetrySample] = [
        *gpu_samples([25.0] * 130),
        *hosts(130, cpu_pct=20.0, io_stall_pct=55.0),
    ]
    samples.append(MountSample("node1", 1129.0, "/home", "nfs4", wait_ms=85.0))
    findings = judge((), samples, now_s=1130.0).findings
    (finding,) = [finding for finding in findings if finding.rule == "DAT006"]
    assert finding.severity is Severity.INFO, "nobody has seen it for real yet"
    assert any("/home (nfs4)" in evidence.text for evidence in finding.evidence)


def test_a_checkpoint_that_writes_for_a_minute_is_no_slow_storage() -> None:
    pause = MetricEvent(0, "checkpoint", 1130.0, 900, {"seconds": 70.0})
    samples = [*gpu_samples([90.0] * 60 + [0.0] * 70, **WORK), *hosts(130, cpu_pct=20.0, io_stall_pct=95.0)]
    assert not judge(steps([1.0] * 500), samples, now_s=1130.0, events=[pause]).findings


def growing(mib_per_s: float, seconds: int = 1200, limit_mib: float = 65536.0) -> Diagnosis:
    series = hosts(
        seconds // 5,
        interval_s=5.0,
        memory_used_mib=lambda number: 8000.0 + 5 * number * mib_per_s,
        memory_limit_mib=limit_mib,
    )
    return judge((), series, now_s=1000.0 + seconds)


def test_memory_that_grows_without_end_is_reported_before_it_reaches_the_limit() -> None:
    finding = only(growing(8.0), "MEM009")
    assert finding.severity is Severity.WARNING
    assert "reaches its limit in about" in finding.summary
    assert only(growing(8.0, limit_mib=18000.0), "MEM009").severity is Severity.CRITICAL


def test_a_leaking_program_is_reported_and_a_steady_one_is_silent() -> None:
    finding = only(diagnose("hosts/leaking"), "MEM009")
    assert (finding.severity, finding.subject.node) == (Severity.WARNING, "node1")
    assert not diagnose("hosts/steady").findings


def test_memory_that_stays_or_fills_a_cache_or_is_far_from_its_limit_is_silent() -> None:
    assert not growing(0.0).findings
    assert not growing(8.0, seconds=500).findings
    assert not growing(2.0, limit_mib=4_000_000.0).findings
    filling = hosts(
        240, interval_s=5.0, memory_used_mib=lambda n: 40000.0 * (1 - 0.97**n), memory_limit_mib=65536.0
    )
    assert not judge((), filling, now_s=2200.0).findings


def device_memory(used_mib: Sequence[float]) -> Diagnosis:
    samples = [
        replace(sample, memory_used_mib=used)
        for sample, used in zip(gpu_samples([95.0] * len(used_mib), **WORK), used_mib, strict=True)
    ]
    return judge(steps([1.0] * 200), samples, now_s=1000.0 + len(used_mib))


def test_device_memory_that_grows_without_end_is_reported_before_it_is_full() -> None:
    finding = only(diagnose("gpus/leaking"), "MEM004")
    assert (finding.severity, finding.subject.gpu) == (Severity.WARNING, 0)
    live = only(device_memory([30_000 + 4.0 * second for second in range(1200)]), "MEM004")
    assert "is full in about 196 min" in live.summary


@pytest.mark.parametrize(
    "used_mib",
    [
        [30_000.0] * 1200,
        [30_000 + 4.0 * second for second in range(500)],
        [30_000 + 1.0 * second for second in range(1200)],
        [30_000 + 20_000 * (1 - 0.996**second) for second in range(1200)],
        [30_000 + (8_000.0 if second > 300 else 0.0) for second in range(1200)],
    ],
    ids=["steady", "short", "full tomorrow", "a cache that fills", "one longer batch"],
)
def test_device_memory_that_does_not_grow_for_ever_is_silent(used_mib: list[float]) -> None:
    assert not device_memory(used_mib).findings


def test_swap_in_use_is_no_trouble_but_waiting_for_memory_is() -> None:
    still = hosts(130, memory_stall_pct=0.0, swap_used_mib=6000.0)
    assert not judge((), still, now_s=1130.0).findings
    short = hosts(130, memory_stall_pct=30.0, swap_used_mib=lambda n: 100.0 + 20 * n)
    finding = only(judge((), short, now_s=1130.0), "MEM012")
    assert finding.severity is Severity.INFO, "nobody has seen it for real yet"
    assert any(evidence.value == 2380.0 for evidence in finding.evidence)


def standing(now_s: float, samples: Iterable[TelemetrySample]) -> Diagnosis:
    return judge(steps([1.0] * 300), samples, run=run(), now_s=now_s)


def spinning(power_w: float = 110.0, until_s: float = 1700.0) -> list[TelemetrySample]:
    seconds = int(until_s - 1000)
    return [
        *gpu_samples([100.0] * seconds, power_w=power_w),
        *gpu_samples([100.0] * seconds, gpu=1, power_w=power_w),
        *hosts(seconds, cpu_pct=25.0, disk_read_mib_s=0.0, disk_write_mib_s=0.0),
    ]


def test_ranks_that_spin_in_a_collective_are_a_hang_and_the_command_to_see_them_is_offered() -> None:
    finding = only(standing(1700.0, spinning()), "DST007")
    assert finding.severity is Severity.CRITICAL
    assert "spin" in finding.summary
    assert (finding.fixes[0].command or "").startswith("coach stacks ")


def test_a_training_on_cpus_that_does_nothing_for_ten_minutes_is_a_hang() -> None:
    assert "hang" in causes(standing(1700.0, hosts(700, cpu_pct=0.6)))


def test_a_gloo_rank_that_never_comes_is_a_hang_under_the_real_sampler() -> None:
    """It was recorded on a local disk, for a little longer than six minutes: the file system's lag needs no
    waiting out."""
    snapshot, history = read("hosts/hanging")
    at_the_end = replace(snapshot, run=run(), now_s=history.host("node1")[-1].time_s)
    quick = Engine(build({"DST007": {"lag_s": 30.0}}))
    finding = only(quick.diagnose(at_the_end, history), "DST007")
    assert "nothing works: CPUs 0 %" in finding.summary
    assert finding.evidence[0].value == 373


def requeued(samples: Iterable[TelemetrySample], started_s: float, now_s: float) -> Diagnosis:
    """The newest step ended at 1030; the job runs on one node since `started_s`."""
    times = (3, 0, 7200, 100.0, started_s, None)
    job = Job("17", "mine", "ada", "RUNNING", None, "gpu", "node1", 1, 2, 0, *times)
    snapshot = TargetSnapshot("run", now_s, job=job, run=run(resources={"num_nodes": 1}))
    return Engine(build()).diagnose(snapshot, history(steps([1.0] * 300), samples))


def test_a_hang_is_found_on_the_node_to_which_the_job_was_requeued() -> None:
    samples = hosts(700, cpu_pct=0.6)
    for first_s, is_found in ((500.0, True), (1000.0, False)):
        elsewhere = [replace(sample, node="node9") for sample in hosts(100, first_s, cpu_pct=90.0)]
        assert ("hang" in causes(requeued([*elsewhere, *samples], 950.0, 1700.0))) is is_found


def test_the_time_in_the_queue_after_a_requeue_is_no_hang() -> None:
    assert "hang" not in causes(requeued(hosts(300, 9000.0, cpu_pct=0.6), 9000.0, 9300.0))


def test_ranks_that_spin_while_another_node_is_not_measured_may_wait_for_its_work() -> None:
    asked = {"num_nodes": 2}
    diagnosis = judge(steps([1.0] * 300), spinning(), run=run(resources=asked), now_s=1700.0)
    assert "hang" not in causes(diagnosis)


@pytest.mark.parametrize(
    "samples",
    [
        spinning(power_w=340.0),
        spinning(until_s=1400.0),
        hosts(700, cpu_pct=45.0),
        hosts(700, cpu_pct=1.0, disk_write_mib_s=180.0),
        [],
    ],
    ids=["evaluates", "no-newer-samples", "compiles", "writes-a-checkpoint", "unmeasured"],
)
def test_silence_alone_is_no_hang(samples: list[TelemetrySample]) -> None:
    assert "hang" not in causes(standing(1700.0, samples))


def test_a_silence_that_the_file_system_may_explain_is_waited_out() -> None:
    assert "hang" not in causes(standing(1400.0, spinning(until_s=1400.0)))


def test_missing_measurements_are_listed_and_the_run_is_not_called_healthy() -> None:
    diagnosis = judge(steps([1.0] * 100), run=run(resources={"num_nodes": 1, "gpus_per_node": 2}))
    assert not diagnosis.findings
    assert {"gpu.utilization", "host"} <= {item.what for item in diagnosis.not_measured}
