"""Rules that judge an ended foreign job by the summary of the site's jobstats."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from coach.lookback.history import History
from coach.model.judging.finding import Diagnosis, Finding, Severity
from coach.model.slurm.accounting import JobSummary
from coach.model.snapshot import TargetSnapshot
from coach.model.training.telemetry import TelemetrySample
from coach.rules.engine import Engine
from coach.rules.registry import build
from coach.sources.slurm.jobstats import parse_summary
from tests.rules.examples import gpu_samples, run
from tests.rules.test_efficiency import job
from tests.sources.slurm.test_job_summaries import COMMENTS

RULES = {"GPU003", "JOB006", "JOB007"}


def judged(
    name: str, state: str = "COMPLETED", samples: tuple[TelemetrySample, ...] = (), **more: Any
) -> Diagnosis:
    summary = parse_summary(COMMENTS[name])
    assert summary is not None
    return judged_by(replace(summary, **more), state, samples)


def judged_by(
    summary: JobSummary | None, state: str = "COMPLETED", samples: tuple[TelemetrySample, ...] = ()
) -> Diagnosis:
    history = History()
    history.add_samples(samples)
    snapshot = TargetSnapshot("17", 2000.0, job=job(state, 3600, 7200), summary=summary)
    return Engine(build()).diagnose(snapshot, history)


def found(diagnosis: Diagnosis) -> dict[str, Finding]:
    return {finding.rule: finding for finding in diagnosis.findings if finding.rule in RULES}


def test_four_idle_gpus_are_reported_with_the_source_of_the_figure() -> None:
    told = found(judged("four-idle", "CANCELLED"))
    assert set(told) == {"GPU003"}
    assert set(found(judged("four-idle"))) == RULES, "had it completed"
    finding = told["GPU003"]
    assert (finding.severity, finding.confidence) == (Severity.CRITICAL, 0.7)
    assert finding.summary == (
        "4 GPUs (of 4) were busy 3 % of the time or little more: unexplained; measure the next run: start "
        "its training with `srun … coach run -- COMMAND`"
    )
    assert finding.evidence[0].text == (
        "GPU 0 on tiger-i19g9: busy 4 % of the time, memory 4.8 GiB of 15.9 GiB at most "
        "(jobstats, mean over the job)"
    )
    assert [each.value for each in finding.evidence] == [3.5, 3.5, 3.2, 3.8]


@pytest.mark.parametrize(
    "name", ["busy", "memory-full", "four-nodes", "short", "none", "no-utilization", "idle-mig"]
)
def test_a_job_that_used_its_gpus_or_was_not_measured_gets_no_finding(name: str) -> None:
    assert not found(judged(name))


@pytest.mark.parametrize("state", ["RUNNING", "PENDING"])
def test_a_job_that_has_not_ended_is_not_judged_by_a_summary(state: str) -> None:
    assert not found(judged("four-idle", state))


def test_the_mean_of_a_short_job_is_mostly_its_start() -> None:
    assert not found(judged("four-idle", "CANCELLED", time_s=1200.0))


def test_one_gpu_of_four_that_no_kernel_ran_on_is_named() -> None:
    summary = parse_summary(COMMENTS["four-idle"])
    assert summary is not None
    node = summary.nodes[0]
    busy = [replace(gpu, utilization_pct=90.0 * (gpu.gpu != 2)) for gpu in node.gpus]
    told = found(judged_by(replace(summary, nodes=(replace(node, gpus=tuple(busy)),))))
    assert told["GPU003"].subject.gpu == 2
    assert (
        "GPU 2 on tiger-i19g9 (of 4) was busy 0 % of the time: no kernel ever ran" in told["GPU003"].summary
    )


def test_samples_of_a_sampler_stand_before_the_mean_of_the_job() -> None:
    busy = tuple(gpu_samples([95.0] * 300))
    assert not found(judged("four-idle", "CANCELLED", samples=busy))


def test_a_run_that_coach_launched_is_judged_by_its_own_sampler_alone() -> None:
    summary = parse_summary(COMMENTS["four-idle"])
    snapshot = TargetSnapshot("17", 2000.0, run=run(state="COMPLETED"), summary=summary)
    assert not found(Engine(build()).diagnose(snapshot, History()))


def modest(memory_gib: float, cpu_s: float) -> JobSummary:
    """A busy job of one node with 32 CPUs and 128 GiB, for an hour."""
    summary = parse_summary(COMMENTS["busy"])
    assert summary is not None
    node = replace(
        summary.nodes[0],
        num_cpus=32,
        cpu_time_s=cpu_s,
        memory_used_mib=memory_gib * 1024,
        memory_allotted_mib=128.0 * 1024,
    )
    return replace(summary, time_s=3600.0, nodes=(node,))


def test_unused_memory_and_cpus_are_reported_only_for_a_completed_job() -> None:
    told = found(judged_by(modest(9.0, 6900.0)))
    assert set(told) == {"JOB006", "JOB007"}
    assert dict(told["JOB006"].fixes[0].changes) == {"mem": "12G"}
    assert [each.text for each in told["JOB006"].evidence] == [
        "peak of the job's resident memory on a node (jobstats, peak over the job)",
        "memory allotted per node",
    ]
    assert told["JOB007"].evidence[0].text == "use of the allotted CPUs (jobstats, mean over the job)"
    assert told["JOB007"].evidence[0].value == 6.0
    assert all(finding.severity is Severity.INFO for finding in told.values())
    assert not found(judged_by(modest(9.0, 6900.0), "FAILED"))
    assert not found(judged_by(modest(60.0, 69000.0)))


def test_the_fullest_of_several_nodes_decides_and_a_silent_one_leaves_it_unknown() -> None:
    summary = modest(9.0, 6900.0)
    node = summary.nodes[0]
    full = replace(node, memory_used_mib=100.0 * 1024, cpu_time_s=69000.0)
    untold = replace(node, memory_used_mib=None, cpu_time_s=None)
    assert not found(judged_by(replace(summary, nodes=(node, full))))
    assert not found(judged_by(replace(summary, nodes=(node, untold))))


@pytest.mark.parametrize(
    ("name", "because"),
    [
        (
            "busy",
            "no sampler ran beside it; jobstats reports only the means of the whole job, not the values "
            "over time",
        ),
        ("short", "no sampler ran beside it; jobstats measured nothing: the job was too short"),
        ("no-utilization", "no sampler ran beside it; the summary of jobstats has no GPU utilization"),
    ],
)
def test_values_missing_from_jobstats_are_listed_as_not_measured(name: str, because: str) -> None:
    missing = {each.what: each.because for each in judged(name).not_measured}
    assert missing["gpu.utilization"] == because


def test_without_a_summary_jobstats_is_not_mentioned() -> None:
    missing = {each.what: each.because for each in judged_by(None).not_measured}
    assert missing["gpu.utilization"] == "no sampler ran beside it"
