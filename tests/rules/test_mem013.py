"""A job above its request for memory is told where its site does not enforce the request, and only if one
process alone proves it."""

from __future__ import annotations

from typing import Any

import pytest

from coach.lookback.history import History
from coach.model.judging.finding import Diagnosis, Severity
from coach.model.snapshot import TargetSnapshot
from coach.model.training.telemetry import HostSample, ProcessSample
from coach.rules.engine import Engine
from coach.rules.registry import build
from tests.rules.examples import run, scan
from tests.rules.recorded import diagnose
from tests.rules.test_telemetry import only

HEALTHY = ("within-request", "mapped-file", "shared-pages", "all-memory", "node-alone")
KILLED = "slurmstepd: error: Detected 1 oom_kill event in StepId=17.0. Some of the step tasks were killed.\n"


def judged(
    anonymous_mib: float | None = 916.0,
    request_mib: float | None = 600.0,
    mem: str | None = None,
    state: str = "COMPLETED",
    log: str = "",
    **more: Any,
) -> Diagnosis:
    """A rank of a container engine's process tree, in a job of Slurm."""
    history = History()
    host = {"memory_used_mib": 930.0, "memory_limit_mib": 600.0, "node_memory_total_mib": 64000.0, **more}
    for time_s, used in ((1000.0, anonymous_mib), (1060.0, None)):
        history.add_samples(
            [
                HostSample("node1", time_s, memory_request_mib=request_mib, **host),
                ProcessSample("node1", time_s, 40, "python", rank=1, rss_mib=920.0, anonymous_mib=used),
            ]
        )
    launched = run(resources={"mem": mem} if mem else {}, state=state)
    snapshot = TargetSnapshot("run", 1090.0, run=launched, log_hits=scan(log))
    return Engine(build()).diagnose(snapshot, history)


def is_told(diagnosis: Diagnosis) -> bool:
    return "MEM013" in [finding.rule for finding in diagnosis.findings]


def test_a_real_job_above_its_request_is_told_its_peak_and_what_to_request() -> None:
    finding = only(diagnose("hosts/above-request"), "MEM013")
    assert finding.severity is Severity.WARNING
    assert finding.subject.node == "node1"
    assert "used 804 MiB of memory on node1, where the job requested 600 MiB" in finding.summary
    assert finding.fixes[0].changes == {"mem": "1088M"}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_real_job_that_only_seems_to_be_above_its_request_is_left_alone(name: str) -> None:
    assert not diagnose(f"hosts/healthy-{name}").findings


def test_the_peak_is_kept_with_its_rank_and_age_after_the_process_became_small() -> None:
    finding = only(judged(), "MEM013")
    assert (finding.subject.rank, finding.since_s) == (1, 1000.0)
    assert finding.evidence[0].text.endswith("by coach's sampler, 90 s before the newest data")


def test_the_text_claims_no_missing_enforcement_while_slurm_may_still_kill_the_job() -> None:
    assert "on this one it takes memory of others" in only(judged(), "MEM013").summary
    assert "if the site enforces it, the job is killed" in only(judged(state="RUNNING"), "MEM013").summary


def test_the_memory_of_a_launch_counts_although_the_job_has_all_cores() -> None:
    assert is_told(judged(request_mib=None, mem="600M"))
    assert not is_told(judged(request_mib=None))
    assert not is_told(judged(request_mib=None, mem="0"))


@pytest.mark.parametrize(
    "quiet",
    [
        {"anonymous_mib": None},
        {"anonymous_mib": 620.0},
        {"anonymous_mib": 61000.0, "request_mib": 55000.0},
        {"node_memory_total_mib": None},
    ],
    ids=["small", "few-percent", "nearly-the-whole-node", "unknown-node"],
)
def test_a_process_that_proves_nothing_is_not_told(quiet: dict[str, Any]) -> None:
    assert not is_told(judged(**quiet))


def test_a_job_that_was_killed_for_its_memory_has_that_as_its_cause() -> None:
    findings = judged(state="OUT_OF_MEMORY", log=KILLED).findings
    assert [(each.rule, each.consequence_of) for each in findings] == [("MEM007", None), ("MEM013", "MEM007")]
