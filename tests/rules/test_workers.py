"""DataLoader workers against the CPUs there are for them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from coach.model.judging.finding import Diagnosis, Severity
from tests.rules.examples import judge, run, steps
from tests.rules.recorded import diagnose
from tests.rules.test_telemetry import hosts, loud, only


def test_sixteen_workers_on_two_cpus_are_reported_with_their_cost() -> None:
    diagnosis = diagnose("too-many-workers")
    assert loud(diagnosis) == [("DAT001", Severity.WARNING)]
    finding = diagnosis.findings[0]
    assert [evidence.value for evidence in finding.evidence[:2]] == [16, 2]
    assert finding.fixes[0].changes == {"num_workers": 1}
    assert not finding.fixes[0].changes_learning


def judged(num_workers: int, ranks: int = 1, **host: Any) -> Diagnosis:
    launched = run({"num_workers": num_workers}, {"nproc_per_node": ranks})
    values = {"cpu_pct": 99.0, "num_cpus": 8, **host}
    return judge(steps([1.0] * 300), hosts(40, **values), launched, now_s=1040.0)


def test_the_workers_of_all_ranks_of_a_node_count() -> None:
    assert not loud(judged(6))
    finding = only(judged(6, ranks=4), "DAT001")
    assert (finding.severity, finding.fixes[0].changes) == (Severity.WARNING, {"num_workers": 1})


def test_workers_that_cost_nothing_are_only_worth_knowing() -> None:
    assert only(judged(24, cpu_pct=30.0, cpu_pressure_pct=2.0), "DAT001").severity is Severity.INFO
    assert only(judged(24, cpu_pct=60.0, cpu_pressure_pct=40.0), "DAT001").severity is Severity.WARNING


def test_tasks_of_others_that_wait_for_a_cpu_are_no_cost_of_the_workers() -> None:
    assert only(judged(24, cpu_pct=30.0, cpu_pressure_pct=90.0), "DAT001").severity is Severity.INFO


def test_workers_that_hold_up_the_beginning_of_every_epoch_cost_something() -> None:
    def of_epochs(wait_s: float, num_epochs: int = 10) -> Diagnosis:
        course = [
            replace(
                step,
                epoch=number // 20,
                **({"data_time_s": wait_s, "step_time_s": 0.1 + wait_s} if number % 20 == 0 else {}),
            )
            for number, step in enumerate(steps([1.0] * (20 * num_epochs)))
        ]
        idle = hosts(40, cpu_pct=30.0, cpu_pressure_pct=2.0, num_cpus=8)
        return judge(course, idle, run({"num_workers": 24}), now_s=1040.0)

    finding = only(of_epochs(0.8), "DAT001")
    assert finding.severity is Severity.WARNING
    assert "first step of an epoch" in finding.evidence[-1].text
    assert only(of_epochs(0.05), "DAT001").severity is Severity.INFO
    assert only(of_epochs(0.8, num_epochs=2), "DAT001").severity is Severity.INFO


@pytest.mark.parametrize("num_workers", [0, 1, 2, 8, 16])
def test_up_to_two_workers_for_each_cpu_are_silent(num_workers: int) -> None:
    assert not judged(num_workers).findings


def test_torchs_own_warning_in_a_foreign_job_gives_both_numbers_and_is_info() -> None:
    finding = only(diagnose("silent/many-workers.log"), "DAT001")
    assert (finding.severity, finding.evidence[0].line) == (Severity.INFO, 1)
    assert finding.summary.startswith("24 DataLoader workers share 2 CPUs")
