"""A whole array as one diagnosis: each cause once, with the tasks that it hit."""

from __future__ import annotations

from dataclasses import replace

from coach.analysis.judging.several_jobs import Judged, state_of, whole, worst_first
from coach.model.judging.finding import Diagnosis, Finding, NotMeasured, Severity, Subject
from coach.model.snapshot import TargetSnapshot
from tests.analysis.made_jobs import job

NO_GPU = NotMeasured("gpu.utilization", "no sampler ran beside it", "attach")


def finding(
    rule: str, cause: str, node: str | None = None, severity: Severity = Severity.CRITICAL
) -> Finding:
    return Finding(
        rule, cause, cause, severity, 0.9, True, None, Subject(node), f"said by {rule}", (), (), None
    )


def task(number: int, state: str, *findings: Finding, lacks: tuple[NotMeasured, ...] = (NO_GPU,)) -> Judged:
    name = f"17_{number}"
    row = job(name, state, raw_job_id=str(20 + number))
    return Judged(Diagnosis(name, state, findings, lacks), TargetSnapshot(name, 1000.0, job=row))


def all_of(*tasks: Judged) -> Diagnosis:
    rows = [each.snapshot.job for each in tasks if each.snapshot.job]
    return whole("17", rows, worst_first(tasks), sum(each.num_tasks for each in tasks)).diagnosis


def test_each_cause_is_shown_once_with_its_tasks_and_the_gravest_leads() -> None:
    found = all_of(
        task(1, "FAILED", finding("ENV007", "module_not_found", "n1")),
        task(2, "COMPLETED", finding("JOB006", "memory_over_request", severity=Severity.INFO)),
        task(3, "FAILED", finding("ENV007", "module_not_found", "n2")),
        task(4, "FAILED", finding("COD001", "code_error", "n2")),
    )
    assert [(each.rule, each.is_primary, each.subject.node) for each in found.findings] == [
        ("ENV007", True, None),
        ("COD001", False, "n2"),
        ("JOB006", False, None),
    ]
    assert found.findings[0].summary == "2 of 4 (17_1, 17_3): said by ENV007"


def test_exceptions_of_different_types_are_different_causes() -> None:
    raised = {1: "IndexError: 7", 2: "ValueError: no", 3: "IndexError: 9", 4: "KeyError", 5: "KeyError"}
    bad = finding("COD001", "code_error")
    found = all_of(*(task(number, "FAILED", replace(bad, summary=told)) for number, told in raised.items()))
    assert [each.summary for each in found.findings] == [
        "2 of 5 (17_1, 17_3): IndexError: 7",
        "2 of 5 (17_4, 17_5): KeyError",
        "1 of 5 (17_2): ValueError: no",
    ]


def test_hundreds_of_tasks_are_named_by_their_ends() -> None:
    bad = finding("ENV007", "module_not_found")
    (one,) = all_of(*(task(number, "FAILED", bad) for number in range(300))).findings
    assert one.summary == "300 of 300 (17_0, 17_1 … 17_299): said by ENV007"


def test_tasks_that_never_started_count_each_however_long_their_list() -> None:
    name = f"17_[{','.join(str(2 * number) for number in range(60))}]"
    bad = finding("JOB005", "slurm_cancelled")
    cancelled = Judged(
        Diagnosis(name, "CANCELLED", (bad,), ()),
        TargetSnapshot(name, 1000.0, job=job(name, "CANCELLED")),
    )
    (one,) = all_of(cancelled).findings
    assert one.summary == f"60 of 60 ({name[:119]}…): said by JOB005"
    (two,) = all_of(task(1, "CANCELLED", bad), cancelled).findings
    assert two.summary == f"61 of 61 ({f'17_1, {name}'[:119]}…): said by JOB005"


def test_symptoms_and_data_missing_from_one_task_stay_out_of_the_array_s_verdict() -> None:
    symptom = Finding(
        *(
            "DST005",
            "x",
            "nccl_timeout",
            Severity.CRITICAL,
            0.9,
            False,
            "MEM001",
            Subject(),
            "x",
            (),
            (),
            None,
        )
    )
    no_log = NotMeasured("log", "none", "name it")
    found = all_of(
        task(1, "FAILED", finding("MEM001", "cuda_oom"), symptom),
        task(2, "COMPLETED", lacks=(NO_GPU, no_log)),
    )
    assert [each.rule for each in found.findings] == ["MEM001"]
    assert found.not_measured == (NO_GPU,)


def test_the_state_of_several_jobs_is_the_liveliest_or_the_worst_end() -> None:
    rows = [job("17_1", "COMPLETED"), job("17_2", "FAILED"), job("17_3", "TIMEOUT"), job("17_4", "TIMEOUT")]
    assert state_of([*rows, job("17_[5-9]", "PENDING")]) == "PENDING"
    assert state_of([*rows, job("17_[5-9]", "PENDING"), job("17_4", "RUNNING")]) == "RUNNING"
    assert state_of(rows) == "TIMEOUT"
    assert state_of(rows[:1]) == "COMPLETED"


def test_tasks_that_wait_together_count_each() -> None:
    waiting = Judged(
        Diagnosis("17_[2-9]", "PENDING", (), ()),
        TargetSnapshot("17_[2-9]", 1000.0, job=job("17_[2-9]", "PENDING")),
    )
    found = all_of(task(1, "FAILED", finding("MEM001", "cuda_oom")), waiting)
    assert found.findings[0].summary.startswith("1 of 9 (17_1)")
