"""The lines of a verdict that was read from a file: its writer may be an older coach, or no coach at all."""

from __future__ import annotations

from typing import Any

import pytest

from coach.analysis.judging.verdict_object import pending_of
from coach.render.why import why_lines

ENDED = {"target": "17", "state": "FAILED"}
NOTHING_FOUND = ["17  FAILED", "  nothing wrong seen, but its loss is not known"]


@pytest.mark.parametrize("pending", [{"reason": "x"}, {"kind": "no kind"}, ["x"], "x", 3])
def test_an_ended_job_waits_for_nothing_whatever_its_file_says(pending: Any) -> None:
    verdict = {**ENDED, "pending": pending}
    assert pending_of(verdict) is None
    assert why_lines(verdict) == NOTHING_FOUND


def test_a_place_of_another_type_is_left_out() -> None:
    finding = {
        "severity": "warning",
        "rule": "JOB014",
        "summary": "ended",
        "subject": {"node": "", "rank": True, "gpu": 0},
        "evidence": [{"text": "x", "file": "a.log", "line": True}],
    }
    assert why_lines({**ENDED, "findings": [finding]})[1:] == [
        "  warning JOB014 on GPU 0: ended",
        "  at a.log",
    ]


def test_the_other_causes_of_a_whole_array_stand_in_one_line() -> None:
    findings = [
        {"severity": "critical", "rule": "COD001", "summary": "3 of 9 (17_1 …): IndexError: no"},
        {"severity": "critical", "rule": "DAT011", "summary": "2 of 9 (17_5, 17_6): Not there: /data"},
        {"severity": "info", "rule": "JOB006", "summary": "9 of 9 (17_0 …): memory"},
    ]
    verdict = {"target": "17", "state": "FAILED", "findings": findings}
    assert why_lines({**verdict, "jobs": [{}, {}]})[2:] == [
        "  also DAT011: 2 of 9 (17_5, 17_6): Not there: /data"
    ]


def test_a_job_without_a_sampler_is_not_called_measured() -> None:
    verdict = {"target": "17", "state": "COMPLETED", "verdict": "healthy", "not_measured": [{"what": "host"}]}
    told = "  healthy: no problem found in the measurements; its GPUs and CPUs were not measured"
    assert why_lines(verdict) == ["17  COMPLETED", told]


def test_a_second_critical_cause_of_one_job_is_named_unless_the_first_explains_it() -> None:
    findings = [
        {"severity": "critical", "rule": "ENV023", "summary": "no command module"},
        {"severity": "critical", "rule": "ENV008", "summary": "no conda", "consequence_of": "ENV023"},
        {"severity": "critical", "rule": "DAT011", "summary": "Not there: train_llm.py"},
        {"severity": "warning", "rule": "DAT001", "summary": "12 workers"},
    ]
    verdict = {"target": "17", "state": "FAILED", "findings": findings}
    assert why_lines(verdict)[1:] == [
        "  critical ENV023: no command module",
        "  also DAT011: Not there: train_llm.py",
    ]
    assert why_lines({**verdict, "findings": findings[:2]})[1:] == ["  critical ENV023: no command module"]
