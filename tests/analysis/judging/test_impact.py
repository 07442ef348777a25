"""The cost of a finding: an upper bound from this job alone, and none if it is not known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coach.analysis.judging.ranking import (
    RankedFinding,
    by_cause,
    by_impact,
    lost_gpu_hours,
    ranked_of,
    worst,
)
from coach.model.judging.finding import Diagnosis, Finding, Severity, Subject
from coach.model.slurm.cluster import Job
from coach.model.snapshot import TargetSnapshot
from coach.model.training.run import Checkpoint

NOW_S = 100_000.0
JOB = Job(
    *("17", "train", "ada", "RUNNING", None, "gpu", "n1", 1, 8, 4, 7200, 60, 9000),
    *(NOW_S - 8000, NOW_S - 7200, NOW_S),
)
FINDING = Finding(
    *("MEM001", "oom", "cuda_oom", Severity.CRITICAL, 0.9, True, None, Subject(), "x", (), (), NOW_S - 1800),
)


def target(state: str = "RUNNING", num_gpus: int | None = 4, *saved_s: float) -> TargetSnapshot:
    checkpoints = tuple(Checkpoint(f"/c/{at}", 1, at) for at in saved_s)
    return TargetSnapshot("17", NOW_S, replace(JOB, state=state, num_gpus=num_gpus), checkpoints=checkpoints)


@pytest.mark.parametrize(
    ("finding", "where", "hours"),
    [
        (FINDING, target(), 2.0),  # 4 GPUs for half an hour
        (FINDING, target("FAILED"), 8.0),  # all since the start
        (FINDING, target("FAILED", 4, NOW_S - 900), 1.0),  # all since the last checkpoint
        (FINDING, target("COMPLETED"), 2.0),
        (FINDING, target(num_gpus=0), 0.0),
        (FINDING, target(num_gpus=None), None),
        (replace(FINDING, since_s=None), target(), None),
        (replace(FINDING, severity=Severity.INFO), target(), 0.0),
        (replace(FINDING, consequence_of="NUM001"), target(), 0.0),
    ],
)
def test_lost_gpu_hours_are_counted_once_and_never_guessed(
    finding: Finding, where: TargetSnapshot, hours: float | None
) -> None:
    assert lost_gpu_hours(finding, where) == hours


def test_all_jobs_are_ranked_by_cost_and_the_gravest_is_the_worst() -> None:
    costly = replace(FINDING, rule="GPU003", severity=Severity.WARNING)
    follows = replace(FINDING, rule="DST004", consequence_of="MEM001")
    big = ranked_of(Diagnosis("18", "RUNNING", (costly,), ()), replace(target(num_gpus=512), target="18"))
    small = ranked_of(Diagnosis("17", "RUNNING", (FINDING, follows), ()), target())
    found = {"17": small, "18": big}
    assert [each.finding.rule for each in by_impact(found, NOW_S)] == ["GPU003", "MEM001", "DST004"]
    gravest = worst(found, NOW_S)
    assert gravest is not None
    assert gravest.finding.rule == "MEM001"


def test_jobs_of_equal_cost_are_ordered_by_the_latest_end() -> None:
    found = {}
    for name, ended_s in (("17", NOW_S - 60), ("18", NOW_S - 5), ("19", NOW_S - 30)):
        failed = replace(target("FAILED", 0), target=name, now_s=ended_s)
        found[name] = ranked_of(Diagnosis(name, "FAILED", (FINDING,), ()), failed)
    assert [each.target for each in by_impact(found, NOW_S)] == ["18", "19", "17"]
    gravest = worst(found, NOW_S)
    assert gravest is not None
    assert gravest.target == "18"


def test_a_job_that_ended_days_ago_is_history() -> None:
    found = {"17": ranked_of(Diagnosis("17", "FAILED", (FINDING,), ()), target("FAILED"))}
    assert by_impact(found, NOW_S + 3600)
    assert by_impact(found, NOW_S + 90_000) == []
    assert worst(found, NOW_S + 90_000) is None


def test_jobs_with_the_same_cause_are_one_group_and_different_errors_are_different_groups() -> None:
    def of(target: str, rule: str, cause: str, summary: str) -> RankedFinding:
        found = replace(FINDING, rule=rule, cause=cause, summary=summary)
        return RankedFinding(target, None, "FAILED", found, None, None)

    wrong = [
        of("1", "COD001", "code_error", "ValueError: row 3 of 7"),
        of("2", "COD001", "code_error", "IndexError: list index out of range"),
        of("3", "COD001", "code_error", "ValueError: row 4 of 7"),
        of("4", "MEM001", "cuda_oom", "2 GiB more were needed"),
        of("5", "MEM001", "cuda_oom", "CUDA out of memory"),
    ]
    groups = [[each.target for each in group] for group in by_cause(wrong)]
    assert [sorted(group) for group in groups] == [["1", "3"], ["2"], ["4", "5"]]
