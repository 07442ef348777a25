from __future__ import annotations

import pytest

from coach.analysis.queueing.pending_reasons import (
    PendingClass,
    explain_job,
    explain_pending,
    parse_dependency,
)
from tests.analysis.made_jobs import job
from tests.sources.scripted_io import captured


@pytest.mark.parametrize("reason", captured("reasons-24.11.txt").decode().split())
def test_every_reason_that_slurm_24_11_can_give_is_explained(reason: str) -> None:
    explained = explain_pending(reason)
    assert explained.kind is not PendingClass.UNKNOWN
    assert explained.reason == reason
    assert explained.meaning
    assert explained.advice


@pytest.mark.parametrize(
    ("reason", "kind", "starts_by_itself", "words"),
    [
        (None, PendingClass.WAIT, True, "not considered it yet"),
        ("Resources", PendingClass.WAIT, True, "in use"),
        ("Priority", PendingClass.WAIT, True, "before it"),
        (
            "QOSMaxJobsPerUserLimit",
            PendingClass.LIMIT,
            True,
            "you have as much as the QOS allows: running jobs",
        ),
        ("QOSGrpGRES", PendingClass.LIMIT, True, "all jobs of the QOS together"),
        ("AssocGrpCpuLimit", PendingClass.LIMIT, True, "your group has as much as your account allows: CPUs"),
        ("AssocGrpCPUMinutesLimit", PendingClass.LIMIT, False, "CPUs × minutes"),
        ("AssocGrpWallLimit", PendingClass.LIMIT, False, "your account allows: time on the clock"),
        ("MaxGRESRunMinsPerAccount", PendingClass.LIMIT, True, "your account has as much"),
        ("QOSMaxWallDurationPerJobLimit", PendingClass.LIMIT, False, "allows one job: time on the clock"),
        ("QOSMinGRES", PendingClass.LIMIT, False, "less than the minimum"),
        ("Constraints", PendingClass.WAIT, True, "--extra"),
        ("NvidiaImexChannels", PendingClass.WAIT, True, "IMEX channels"),
        ("PartitionTimeLimit", PendingClass.NEVER, False, "longer than its partition allows"),
        ("DependencyNeverSatisfied", PendingClass.NEVER, False, "does not accept"),
        ("BadConstraints", PendingClass.NEVER, False, "no node fits"),
        ("JobHeldUser", PendingClass.HELD, False, "held"),
        ("launch failed requeued held", PendingClass.HELD, False, "could not be started"),
        ("launch_failed_requeued_held", PendingClass.HELD, False, "could not be started"),
        (
            "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions",
            *(PendingClass.WAIT, True, "higher priority"),
        ),
    ],
)
def test_a_reason_gets_its_class_and_plain_words(
    reason: str | None, kind: PendingClass, starts_by_itself: bool, words: str
) -> None:
    explained = explain_pending(reason)
    assert (explained.kind, explained.starts_by_itself) == (kind, starts_by_itself)
    assert words in explained.meaning


@pytest.mark.parametrize(
    ("reason", "other"),
    [
        ("QOSGrpWallLimit", "another --qos"),
        ("QOSGrpCPUMinutesLimit", "another --qos"),
        ("AssocGrpWallLimit", "another --account"),
        ("AssocGrpGRESMinutes", "another --account"),
    ],
)
def test_time_that_is_used_up_does_not_come_back_when_running_jobs_end(reason: str, other: str) -> None:
    explained = explain_pending(reason)
    assert not explained.starts_by_itself
    assert "running ones end" not in explained.advice
    assert explained.advice.endswith(other)


@pytest.mark.parametrize(
    ("reason", "nodes", "words"),
    [
        ("ReqNodeNotAvail, UnavailableNodes:node[1-3,7]", "node[1-3,7]", "node[1-3,7]"),
        ("ReqNodeNotAvail(Unavailable:gpu001)", "gpu001", "gpu001"),
        ("ReqNodeNotAvail, Reserved for maintenance", None, "maintenance"),
        ("ReqNodeNotAvail, May be reserved for other job", None, "reserved for others"),
        ("ReqNodeNotAvail", None, "down, drained, or reserved"),
    ],
)
def test_nodes_that_are_not_available_are_named(reason: str, nodes: str | None, words: str) -> None:
    explained = explain_pending(reason)
    assert explained.nodes == nodes
    assert words in explained.meaning


@pytest.mark.parametrize("reason", ["QuantumDecoherence", "MaxFun", "qos", "[bold]x[/]", "\x1b[31m", "Max"])
def test_a_reason_of_a_newer_slurm_is_shown_as_itself_and_said_to_be_unknown(reason: str) -> None:
    explained = explain_pending(reason)
    assert (explained.kind, explained.reason) == (PendingClass.UNKNOWN, reason)
    assert "does not know" in explained.meaning


def test_a_job_says_for_whom_it_waits_and_how_to_release_it() -> None:
    waiting = job(reason="Dependency", dependency="afterok:12(unfulfilled),afterany:13:14(unfulfilled)")
    held = job("17_[3-8%2]", reason="JobHeldUser")
    explained, released = explain_job(waiting), explain_job(held)
    assert explained is not None
    assert explained.meaning == "it waits for job 12, 13, 14"
    failed = explain_job(job(reason="DependencyNeverSatisfied", dependency="afterok:12(failed)"))
    assert failed is not None
    assert failed.meaning == "it waits for job 12 (failed)"
    assert released is not None
    assert released.advice == "scontrol release 17"
    assert explain_job(job(state="RUNNING")) is None


def test_dependencies_are_read_in_every_spelling() -> None:
    assert parse_dependency("afterok:12(unfulfilled)?singleton(unfulfilled),aftercorr:7_*") == (
        ("afterok", "12", "unfulfilled"),
        ("singleton", "", "unfulfilled"),
        ("aftercorr", "7_*", None),
    )
