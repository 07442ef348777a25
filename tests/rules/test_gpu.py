from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from coach.model.judging.finding import Diagnosis, Severity
from coach.model.training.metrics import MetricEvent
from coach.model.training.telemetry import ProcessSample
from tests.rules.examples import causes, gpu_samples, judge, run, steps
from tests.rules.recorded import diagnose


def slow(share: float, count: int = 120, **more: float) -> list[object]:
    return list(steps([1.0] * count, step_time_s=0.1, data_time_s=0.1 * share, **more))


def test_a_training_that_waits_for_its_loader_is_input_bound_with_more_workers_as_fix() -> None:
    finding = diagnose("input-bound").findings[0]
    assert (finding.cause, finding.severity) == ("input_bound", Severity.CRITICAL)
    assert set(finding.fixes[0].changes) == {"num_workers"}
    assert 1 < finding.fixes[0].changes["num_workers"] <= 8
    assert not finding.fixes[0].changes_learning


def test_a_training_whose_loader_keeps_up_is_silent() -> None:
    assert not diagnose("input-ready").findings


@pytest.mark.parametrize(
    ("share", "severity"), [(0.05, None), (0.15, Severity.WARNING), (0.5, Severity.CRITICAL)]
)
def test_the_share_of_waiting_decides(share: float, severity: Severity | None) -> None:
    findings = judge(slow(share)).findings  # type: ignore[arg-type]
    assert [finding.severity for finding in findings] == ([severity] if severity else [])


def test_the_start_of_an_epoch_does_not_count() -> None:
    series = [
        step
        for epoch in range(8)
        for step in steps([1.0] * 20, data_time_s=0.001, start_s=1000.0 + epoch * 10)
    ]
    waiting = [
        type(s)(
            s.rank,
            index,
            s.time_s,
            epoch=index // 20,
            step_time_s=2.0 if index % 20 == 0 else 0.1,
            data_time_s=1.9 if index % 20 == 0 else 0.001,
        )
        for index, s in enumerate(series)
    ]
    assert not judge(waiting).findings


def test_too_short_a_run_is_not_judged() -> None:
    assert not judge(slow(0.5, count=15)).findings  # type: ignore[arg-type]


def test_the_rank_that_waits_is_named() -> None:
    finding = judge([*slow(0.01), *slow(0.4, rank=1)]).findings[0]  # type: ignore[arg-type, list-item]
    assert finding.subject.rank == 1


def test_workers_never_exceed_the_cpus_of_a_rank() -> None:
    launched = run({"num_workers": 1}, {"cpus_per_task": 8, "nproc_per_node": 2})
    fixes = judge(slow(0.8), run=launched).findings[0].fixes  # type: ignore[arg-type]
    assert fixes[0].changes == {"num_workers": 4}
    assert fixes[1].changes == {"cpus_per_task": 10, "num_workers": 5}


def test_more_cpus_come_first_where_as_many_workers_as_cpus_would_hardly_help() -> None:
    launched = run({"num_workers": 0}, {"cpus_per_task": 2, "nproc_per_node": 2})
    fixes = judge(slow(0.8), run=launched).findings[0].fixes  # type: ignore[arg-type]
    assert fixes[0].changes == {"cpus_per_task": 10, "num_workers": 5}
    assert fixes[1].changes == {"num_workers": 1}
    assert "(each rank has 1 CPU)" in fixes[1].title


def test_a_busy_gpu_hides_the_wait_behind_its_queue() -> None:
    assert not judge(slow(0.3), gpu_samples([92.0] * 130, power_w=300.0)).findings  # type: ignore[arg-type]


def test_one_idle_gpu_of_two_is_named_with_power_and_memory() -> None:
    finding = diagnose("gpu-idle").findings[0]
    assert (finding.cause, finding.severity, finding.subject.gpu) == (
        "low_gpu_utilization",
        Severity.CRITICAL,
        1,
    )
    assert "W of 400 W" in finding.evidence[0].text
    assert "GiB of 80.0 GiB" in finding.evidence[0].text
    assert "measure next" in finding.summary


def test_busy_gpus_are_silent() -> None:
    assert not diagnose("gpu-busy").findings


def test_low_utilization_hangs_below_the_input_that_explains_it() -> None:
    findings = judge(slow(0.6, count=1500), gpu_samples([20.0] * 150), now_s=1150.0).findings  # type: ignore[arg-type]
    assert [(finding.rule, finding.consequence_of) for finding in findings] == [
        ("GPU005", None),
        ("GPU003", "GPU005"),
    ]


@pytest.mark.parametrize("pause", ["eval", "checkpoint", "compile"])
def test_pauses_of_the_training_do_not_count(pause: str) -> None:
    samples = gpu_samples([90.0 if second < 100 else 0.0 for second in range(300)])
    event = MetricEvent(0, pause, 1300.0, 900, {"seconds": 200.0})
    series = steps([1.0] * 1000, start_s=1000.0)
    assert not judge(series, samples, now_s=1300.0, events=[event]).findings


def test_a_window_that_is_too_short_is_not_judged() -> None:
    assert not judge((), gpu_samples([1.0] * 100), now_s=1100.0).findings


def test_a_foreign_job_that_prepares_its_data_is_left_alone() -> None:
    assert not judge((), gpu_samples([0.0] * 600), now_s=1600.0).findings


def test_a_gpu_without_any_use_is_reported_as_unused_at_the_end() -> None:
    finding = judge((), gpu_samples([0.0] * 1100), now_s=2100.0).findings[0]
    assert "never used" in finding.summary


@pytest.mark.parametrize(
    ("num_busy", "words"), [(1, "uneven, the other GPU works;"), (2, "uneven, the other GPUs work;")]
)
def test_one_other_gpu_is_one_and_two_are_several(num_busy: int, words: str) -> None:
    samples = gpu_samples([5.0] * 300)
    for gpu in range(1, num_busy + 1):
        samples += [replace(sample, gpu=gpu) for sample in gpu_samples([95.0] * 300)]
    findings = judge(steps([1.0] * 300, 0, 1.0), samples, now_s=1300.0).findings
    assert words in next(finding.summary for finding in findings if finding.rule == "GPU003")


def left_open(*processes: ProcessSample, memory_mib: float = 500.0, before: float = 90.0) -> Diagnosis:
    """A job whose GPU has worked for 100 s and is idle since."""
    used = gpu_samples([before] * 100 + [0.0] * 1000, memory_used_mib=memory_mib)
    return judge((), [*used, *processes], now_s=2100.0)


SHELL = ProcessSample("node1", 2099.0, 7, "bash", cpu_pct=0.0, rss_mib=4.0)


@pytest.mark.parametrize("before", [0.0, 90.0])
def test_an_allocation_whose_program_has_ended_is_named_with_the_processes_that_are_left(
    before: float,
) -> None:
    finding = left_open(SHELL, replace(SHELL, pid=9, name="sleep"), before=before).findings[0]
    assert (finding.rule, finding.severity) == ("GPU003", Severity.CRITICAL)
    assert "no process of the job is on a GPU" in finding.summary
    assert finding.evidence[1].text == "processes of the job on node1, none on a GPU: bash, sleep"
    assert [(fix.changes, fix.command) for fix in finding.fixes] == [({}, None)], "nothing is ended by coach"


@pytest.mark.parametrize(
    "diagnosis",
    [
        left_open,
        lambda: left_open(SHELL, memory_mib=40000.0),
        lambda: left_open(replace(SHELL, time_s=1500.0)),
        lambda: left_open(SHELL, replace(SHELL, pid=9, cpu_pct=100.0)),
        lambda: left_open(replace(SHELL, cpu_pct=None)),
        lambda: left_open(SHELL, replace(SHELL, pid=9, gpus=(0,), gpu_memory_mib=400.0)),
    ],
    ids=[
        "not measured",
        "memory is held",
        "an old list",
        "CPUs work",
        "CPU use unknown",
        "a process is on it",
    ],
)
def test_a_gpu_that_a_process_holds_or_may_hold_is_idle_and_no_more(
    diagnosis: Callable[[], Diagnosis],
) -> None:
    summary = diagnosis().findings[0].summary
    assert "no process" not in summary
    assert not re.search("never|ever ran", summary), "it has worked before"


def test_a_training_on_cpus_beside_an_unused_gpu_gets_advice_to_check_cuda() -> None:
    finding = left_open(replace(SHELL, name="python", cpu_pct=400.0), before=0.0).findings[0]
    assert "allotted and never used" in finding.summary
    assert "torch.cuda.is_available()" in finding.fixes[0].title


def test_a_program_that_works_on_its_gpu_again_is_silent() -> None:
    samples = gpu_samples([0.0] * 1000 + [90.0] * 130, memory_used_mib=500.0, power_w=300.0)
    assert not judge((), [*samples, replace(SHELL, time_s=2129.0)], now_s=2130.0).findings


@pytest.mark.parametrize(("before", "after", "is_low"), [(5.0, 95.0, True), (95.0, 5.0, False)])
def test_of_a_run_that_has_ended_every_hour_counts_alike_however_thinly_it_was_kept(
    before: float, after: float, *, is_low: bool
) -> None:
    used = [before] * 9000 + [after] * 1800
    ended = run(state="COMPLETED")
    low = [
        finding
        for finding in judge((), gpu_samples(used), run=ended, now_s=11_800.0).findings
        if finding.rule == "GPU003"
    ]
    assert bool(low) == is_low
    assert all(finding.evidence[0].value == pytest.approx(20.0, abs=1.0) for finding in low)


def test_an_hour_without_measurements_adds_no_weight_to_the_samples_beside_it() -> None:
    ended = run(state="COMPLETED")
    samples = [*gpu_samples([1.0] * 100), *gpu_samples([60.0] * 200, start_s=5000.0)]
    assert not causes(judge((), samples, run=ended, now_s=5200.0))


def test_high_power_proves_that_the_gpu_works_at_any_utilization() -> None:
    assert not causes(judge((), gpu_samples([20.0] * 150, power_w=300.0), now_s=1150.0))


def test_a_job_that_fills_the_memory_needs_its_gpu() -> None:
    assert not causes(judge((), gpu_samples([20.0] * 150, memory_used_mib=75000.0), now_s=1150.0))


def test_a_gpu_whose_utilization_cannot_be_read_is_not_called_idle() -> None:
    diagnosis = judge((), gpu_samples([None] * 200), now_s=1200.0)
    assert not diagnosis.findings
    assert "gpu.utilization" in [item.what for item in diagnosis.not_measured]
