from __future__ import annotations

from coach.analysis.comparing.two_runs import AFTER, BEFORE, BOTH, FoundIn, compare
from coach.analysis.teaching.withheld_findings import ANSWER_FIRST
from coach.lookback.history import History
from coach.model.judging.finding import Diagnosis, Finding, NotMeasured, Severity, Subject
from coach.model.snapshot import TargetSnapshot


def finding(rule: str, severity: Severity = Severity.WARNING, consequence_of: str | None = None) -> Finding:
    return Finding(
        rule=rule,
        name=rule.lower(),
        cause="x",
        severity=severity,
        confidence=1.0,
        is_primary=False,
        consequence_of=consequence_of,
        subject=Subject(),
        summary="",
        evidence=(),
        fixes=(),
        since_s=None,
    )


def diagnosis(*findings: Finding) -> Diagnosis:
    return Diagnosis("run", "FAILED", findings, ())


def found_in(before: Diagnosis, after: Diagnosis) -> tuple[FoundIn, ...] | None:
    run, history = TargetSnapshot("run", None), History()
    return compare(run, history, run, history, (before, after)).findings


def test_findings_in_both_come_first_then_the_new_ones_then_those_that_went() -> None:
    before, after = diagnosis(finding("A"), finding("B")), diagnosis(finding("C"), finding("B"))
    assert found_in(before, after) == (
        FoundIn("B", "b", BOTH),
        FoundIn("C", "c", AFTER),
        FoundIn("A", "a", BEFORE),
    )


def test_hints_and_consequences_do_not_count() -> None:
    before = diagnosis(finding("A", Severity.INFO), finding("B", consequence_of="A"))
    assert found_in(before, diagnosis()) == ()


def test_what_earlier_runs_show_is_no_effect_of_the_change() -> None:
    assert found_in(diagnosis(), diagnosis(finding("HIS004"))) == ()


def test_a_withheld_diagnosis_reveals_nothing() -> None:
    withheld = Diagnosis("run", "FAILED", (), (NotMeasured("diagnosis", ANSWER_FIRST, "answer"),))
    assert found_in(withheld, diagnosis(finding("A"))) is None
    assert found_in(diagnosis(finding("A")), withheld) is None
