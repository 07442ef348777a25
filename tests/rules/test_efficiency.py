"""Unused requests: reported as info after a run, never before the run has shown its need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from coach.model.judging.finding import Diagnosis, Severity
from coach.model.slurm.cluster import Job
from coach.model.snapshot import TargetSnapshot
from coach.model.training.metrics import MetricEvent
from coach.model.training.run import Checkpoint
from coach.rules.engine import Engine
from coach.rules.registry import build
from tests.rules.examples import history, run, steps
from tests.rules.recorded import diagnose
from tests.rules.test_telemetry import hosts


def job(state: str, used_s: int, limit_s: int) -> Job:
    empty: dict[str, Any] = dict.fromkeys(
        (
            "reason",
            "nodes",
            "num_nodes",
            "num_cpus",
            "num_gpus",
            "submit_time_s",
            "start_time_s",
            "end_time_s",
        )
    )
    return Job(
        "17", "train", "user", state, partition="gpu", time_used_s=used_s, time_left_s=limit_s - used_s,
        time_limit_s=limit_s, **empty,
    )  # fmt: skip


def told(diagnosis: Diagnosis) -> dict[str, dict[str, Any]]:
    """Rule → the changes that its first fix proposes."""
    return {finding.rule: dict(finding.fixes[0].changes) for finding in diagnosis.findings}


LITTLE: Mapping[str, Any] = MappingProxyType({"memory_used_mib": 9000.0, "cpu_pct": 6.0, "num_cpus": 32})
"""Host samples of a run that uses little of its node."""


def ended(
    state: str = "COMPLETED", used_mib: float = 9000.0, cpu_pct: float = 6.0, **asked: Any
) -> Diagnosis:
    resources = {"mem": "128G", "cpus_per_task": 32, "nproc_per_node": 1, **asked}
    samples = hosts(400, memory_used_mib=used_mib, cpu_pct=cpu_pct, num_cpus=32)
    snapshot = TargetSnapshot("run", 1400.0, run=run(resources=resources, state=state))
    return Engine(build()).diagnose(snapshot, history((), samples))  # type: ignore[arg-type]


def test_a_run_that_used_little_gets_the_request_for_the_next_time() -> None:
    diagnosis = ended()
    assert told(diagnosis) == {"JOB006": {"mem": "12G"}, "JOB007": {"cpus_per_task": 4}}
    assert all(finding.severity is Severity.INFO for finding in diagnosis.findings)


@pytest.mark.parametrize(("workers", "cpus"), [(None, 4), (2, 6), (12, 26), (16, None)])
def test_each_rank_and_each_of_its_workers_keeps_a_cpu(workers: int | None, cpus: int | None) -> None:
    resources = {"cpus_per_task": 32, "nproc_per_node": 2}
    parameters = {} if workers is None else {"num_workers": workers}
    launched = run(resources=resources, parameters=parameters, state="COMPLETED")
    snapshot = TargetSnapshot("run", 1400.0, run=launched)
    found = told(Engine(build()).diagnose(snapshot, history((), hosts(400, **LITTLE))))
    assert found.get("JOB007") == (None if cpus is None else {"cpus_per_task": cpus})


def test_a_real_slurm_job_that_used_one_gibibyte_of_sixty_gets_a_smaller_request() -> None:
    assert told(diagnose("hosts/asked-too-much")) == {"JOB006": {"mem": "1G"}}


@pytest.mark.parametrize(
    "quiet",
    [
        {"state": "FAILED"},
        {"state": "RUNNING"},
        {"used_mib": 60000.0, "cpu_pct": 40.0},
        {"mem": None, "cpu_pct": 40.0},
    ],
    ids=["failed", "runs", "used-it", "site-default"],
)
def test_a_run_that_failed_or_goes_on_or_used_its_memory_gets_no_advice(quiet: dict[str, Any]) -> None:
    assert not {"JOB006", "JOB007"} & set(told(ended(**quiet)))


@pytest.mark.parametrize(("need_mib", "is_told"), [(None, True), (60000.0, True), (131072.0, False)])
def test_memory_that_the_recipe_needs_on_paper_is_not_called_wasted(
    need_mib: float | None, is_told: bool
) -> None:
    launched = run(resources={"mem": "128G"}, state="COMPLETED", mem_need_mib=need_mib)
    snapshot = TargetSnapshot("run", 1400.0, run=launched)
    found = told(Engine(build()).diagnose(snapshot, history((), hosts(400, **LITTLE))))
    assert ("JOB006" in found) == is_told


@pytest.mark.parametrize(
    ("num_nodes", "seconds", "is_told"),
    [
        (1, (400,), True),
        (2, (400, 400), True),
        (2, (60, 400), False),
        (2, (400, 60), False),
        (2, (400,), False),
    ],
)
def test_memory_and_cpus_are_judged_only_if_every_node_was_measured_for_long(
    num_nodes: int, seconds: tuple[int, ...], is_told: bool
) -> None:
    samples = [
        replace(sample, node=f"node{number}")
        for number, seconds_of_node in enumerate(seconds)
        for sample in hosts(seconds_of_node, **LITTLE)
    ]
    launched = run(resources={"mem": "128G", "num_nodes": num_nodes}, state="COMPLETED")
    snapshot = TargetSnapshot("run", 1400.0, run=launched)
    diagnosis = Engine(build()).diagnose(snapshot, history((), samples))
    assert set(told(diagnosis)) == ({"JOB006", "JOB007"} if is_told else set())


@pytest.mark.parametrize(("ended_s", "is_told"), [(1410.0, True), (9000.0, False)])
def test_nothing_is_judged_if_the_sampler_stopped_long_before_the_run_ended(
    ended_s: float, is_told: bool
) -> None:
    launched = run(resources={"mem": "128G"}, state="COMPLETED", ended_time_s=ended_s)
    snapshot = TargetSnapshot("run", ended_s, run=launched)
    diagnosis = Engine(build()).diagnose(snapshot, history((), hosts(400, **LITTLE)))
    assert set(told(diagnosis)) == ({"JOB006", "JOB007"} if is_told else set())


def test_the_cpus_of_a_foreign_job_are_not_judged_by_an_attached_sampler() -> None:
    snapshot = TargetSnapshot("17", 90000.0, job=job("COMPLETED", 80000, 86400))
    assert not told(Engine(build()).diagnose(snapshot, history((), hosts(400, **LITTLE))))


@pytest.mark.parametrize(
    ("state", "used_s", "limit_s", "is_told"),
    [
        ("COMPLETED", 3600, 86400, True),
        ("COMPLETED", 40000, 86400, False),
        ("COMPLETED", 600, 3600, False),
        ("COMPLETED", 20, 86400, False),
        ("TIMEOUT", 3600, 86400, False),
        ("RUNNING", 3600, 86400, False),
    ],
)
def test_a_completed_job_far_below_its_time_limit_gets_a_shorter_one(
    state: str, used_s: int, limit_s: int, is_told: bool
) -> None:
    snapshot = TargetSnapshot("17", 2000.0, job=job(state, used_s, limit_s))
    found = told(Engine(build()).diagnose(snapshot, history()))
    assert found.get("JOB009") == ({"time": "02:00:00"} if is_told else None)


def late(
    used_s: int = 3000,
    max_steps: int = 100_000,
    signal: str | None = None,
    max_seconds: float = 0.0,
    launch: Mapping[str, Any] = MappingProxyType({}),
    **more: Any,
) -> Diagnosis:
    asked = {"max_steps": max_steps, "checkpoint_every": 0, "max_seconds": max_seconds}
    launched = run(asked, {"signal": signal} if signal else {}, launch=launch)
    snapshot = TargetSnapshot("run", 1020.0, job=job("RUNNING", used_s, 3600), run=launched, **more)
    return Engine(build()).diagnose(snapshot, history(steps([1.0] * 200)))


def test_a_run_that_will_reach_its_limit_without_a_checkpoint_is_warned_in_time() -> None:
    (finding,) = late().findings
    assert (finding.rule, finding.severity) == ("JOB019", Severity.INFO), "nobody has seen it for real yet"
    assert set(finding.fixes[0].changes) == {"checkpoint_every", "signal"}


def test_a_run_that_saves_or_ends_in_time_gets_no_warning() -> None:
    assert not late(max_steps=2000).findings
    assert not late(signal="USR1@120").findings
    assert not late(checkpoints=(Checkpoint("/runs/c/1", 100, 1010.0),)).findings
    assert not late(used_s=60).findings


def test_a_run_whose_checkpoints_may_lie_elsewhere_gets_no_warning() -> None:
    own = {"own": {"kind": "script", "words": ["train.py"], "directory": "/home/user"}}
    assert not late(launch=own).findings
    assert not late(events=(MetricEvent(0, "checkpoint", 1010.0, 100, {"path": "/scratch/c"}),)).findings


def test_a_run_that_ends_itself_before_its_limit_gets_no_warning() -> None:
    assert not late(max_seconds=3300).findings
    assert late(max_seconds=7200).findings


def test_a_job_s_time_is_known_from_its_start_and_end_too() -> None:
    asked = replace(job("COMPLETED", 3600, 86400), time_used_s=None)
    times = ((1000.0, 4600.0), (None, 4600.0), (1000.0, None))
    found = [
        told(
            Engine(build()).diagnose(
                TargetSnapshot("17", 9000.0, job=replace(asked, start_time_s=start, end_time_s=end)),
                history(),
            )
        )
        for start, end in times
    ]
    assert found == [{"JOB009": {"time": "02:00:00"}}, {}, {}]
