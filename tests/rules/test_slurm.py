"""Jobs of which Slurm's word is all there is."""

from __future__ import annotations

import pytest

from coach.model.cluster import Job
from coach.model.history import History
from coach.model.log import LogTail
from coach.model.run import Run, RunExit
from coach.model.snapshot import TargetSnapshot
from coach.rules.engine import Engine
from coach.rules.registry import build
from tests.rules.examples import causes, run

LAUNCH = {"recipe": "ddp"}


def no_log(
    launched: Run | None = None, job: Job | None = None, ended: RunExit | None = None, log: str = ""
) -> list[str]:
    tails = (LogTail("stdout.log", 1, (log,), len(log), 1),) if log else ()
    snapshot = TargetSnapshot("17", 2.0, run=launched, job=job, exit=ended, log_tails=tails)
    return causes(Engine(build()).diagnose(snapshot, History()))


def job(state: str, reason: str | None = None) -> Job:
    times = (3, 0, 600, 1.0, 2.0, 5.0)
    return Job("17", "mine", "user", state, reason, "gpu", "node4", 1, 2, 0, *times)


def test_a_launched_job_that_failed_without_a_word_is_a_finding_that_says_where_to_look() -> None:
    launched = run(state="FAILED", launch=LAUNCH)
    snapshot = TargetSnapshot("run", 2.0, run=launched, job=job("FAILED", "RaisedSignal:53"))
    finding = Engine(build()).diagnose(snapshot, History()).findings[0]
    assert (finding.rule, finding.cause, finding.subject.node) == ("JOB017", "no_log", "node4")
    said = [item.text for item in finding.evidence]
    assert "state FAILED, reason RaisedSignal:53" in said
    assert any("the folder of the log is not there" in text for text in said)
    assert [item.file for item in finding.evidence if item.file] == [
        "/runs/.logs/ddp.out",
        "/runs/.logs/ddp.err",
    ]
    assert finding.fixes[0].command == "srun -w node4 ls -ld /runs/.logs"


def test_a_foreign_job_without_a_log_is_a_finding_too() -> None:
    assert no_log(job=job("BOOT_FAIL")) == ["node_failure", "no_log"]
    assert no_log(job=job("LAUNCH_FAILED")) == ["no_log"]


@pytest.mark.parametrize("state", ["COMPLETED", "CANCELLED", "PREEMPTED", "RUNNING", "PENDING", None])
def test_a_job_that_owes_no_explanation_is_silent(state: str | None) -> None:
    assert no_log(run(state=state, launch=LAUNCH)) == []


def test_a_log_and_a_command_that_kept_its_own_output_are_no_missing_log() -> None:
    assert no_log(run(state="FAILED", launch=LAUNCH), log="starting") == []
    assert no_log(run(state="FAILED")) == []
