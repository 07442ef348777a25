"""The machine failed, not the program: by Slurm's state, and on this machine by the files of a local run."""

from __future__ import annotations

import pytest

from coach.lookback.history import History
from coach.model.judging.finding import Finding
from coach.model.slurm.cluster import Job
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogTail
from coach.model.training.run import Run
from coach.rules.engine import Engine
from coach.rules.registry import build
from tests.rules.examples import run

TAIL = LogTail("stdout.log", 1, ("step 7",), 7, 1)


def job(state: str, reason: str | None = None, num_nodes: int = 1) -> Job:
    times = (3, 0, 600, 1.0, 2.0, 5.0)
    return Job("17", "mine", "user", state, reason, "gpu", "node4", num_nodes, 2, 0, *times)


def findings(row: Job | None, of: Run | None = None) -> list[Finding]:
    snapshot = TargetSnapshot("17", 2.0, run=of, job=row, log_tails=(TAIL,))
    return list(Engine(build()).diagnose(snapshot, History()).findings)


def test_a_failed_node_is_reported_and_the_fix_excludes_it() -> None:
    (finding,) = findings(job("NODE_FAIL", "NodeDown"), run(state="RUNNING", launch={"recipe": "ddp"}))
    assert (finding.rule, finding.cause, finding.subject.node) == ("JOB003", "slurm_node_fail", "node4")
    assert finding.evidence[0].text == "state NODE_FAIL, reason NodeDown"
    assert [dict(fix.changes) for fix in finding.fixes] == [{}, {"exclude": "node4"}]


def test_with_several_nodes_no_single_node_is_blamed() -> None:
    (finding,) = findings(job("NODE_FAIL", num_nodes=2), run(state="RUNNING", launch={"recipe": "ddp"}))
    assert finding.subject.node is None
    assert not any(fix.changes for fix in finding.fixes)


@pytest.mark.parametrize(
    ("row", "words"),
    [(job("NODE_FAIL", "MachineRestarted"), ""), (None, ", or the supervisor was killed,")],
)
def test_a_local_run_that_a_restart_has_ended_says_that_the_machine_restarted(
    row: Job | None, words: str
) -> None:
    (finding,) = findings(row, run(state="NODE_FAIL", backend="local", host="login1"))
    assert finding.summary == f"The machine restarted (login1){words} while the run was going on"


def test_a_local_run_without_its_supervisor_says_that_it_was_killed() -> None:
    (finding,) = findings(
        job("NODE_FAIL", "SupervisorDied"), run(state="NODE_FAIL", backend="local", host="login1")
    )
    assert (finding.cause, finding.summary[:14]) == ("node_failure", "The supervisor")
    assert finding.summary.endswith("how the run ended was not recorded")


@pytest.mark.parametrize("state", ["COMPLETED", "RUNNING", "CANCELLED", "PREEMPTED", "TIMEOUT", "FAILED"])
def test_other_ends_are_not_the_machine_s(state: str) -> None:
    assert "JOB003" not in [each.rule for each in findings(job(state), run(state=state))]


def test_a_run_of_another_login_node_is_not_judged_by_its_last_word_and_says_where_to_look() -> None:
    hidden = run(state="RUNNING", backend="local", host="login2", is_visible=False, last_word_time_s=820.0)
    snapshot = TargetSnapshot("ddp", 1000.0, run=hidden, log_tails=(TAIL,))
    diagnosis = Engine(build()).diagnose(snapshot, History())
    (gap,) = [item for item in diagnosis.not_measured if item.what == "job.state"]
    assert gap.because == "on login2, not visible from here: RUNNING 3 min ago"
    assert gap.how == f"look on login2: coach check {hidden.run_id}"
    assert diagnosis.findings == ()


def test_the_reason_that_slurm_has_for_the_failed_node_is_quoted_and_no_other_nodes() -> None:
    row = job("NODE_FAIL", "NodeDown")
    reasons = {"node4": "Not responding [slurm@2026-11-21T10:00:00]", "node5": "bad fan"}
    snapshot = TargetSnapshot("17", 2.0, job=row, log_tails=(TAIL,), node_reasons=reasons)
    (finding,) = Engine(build()).diagnose(snapshot, History()).findings
    texts = [evidence.text for evidence in finding.evidence]
    assert f"Slurm's reason for node4: {reasons['node4']}" in texts
    assert not any("bad fan" in text for text in texts)
