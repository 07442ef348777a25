from __future__ import annotations

from collections.abc import Iterable

import pytest

from coach.lookback.history import History
from coach.model.judging.finding import Hit, Severity
from coach.model.snapshot import TargetSnapshot
from coach.model.training.telemetry import SensorGap
from coach.rules.base import Need, Rule
from coach.rules.engine import Engine
from tests.rules.examples import run


class Planted(Rule):
    """A rule that sees what a test tells it to see."""

    code = "TST001"
    name = "planted"
    cause = "planted"
    severity = Severity.WARNING

    def __init__(self) -> None:
        super().__init__()
        self.hits: list[Hit] = []

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        return self.hits


def planted(hit: Hit | None = None, **attributes: object) -> Planted:
    rule = type("Planted", (Planted,), attributes)()
    rule.hits = [hit] if hit else []
    assert isinstance(rule, Planted)
    return rule


def hit(**more: object) -> Hit:
    return Hit(**{"summary": "seen", "evidence": (), "confidence": 0.9, **more})  # type: ignore[arg-type]


def at(now_s: float | None) -> TargetSnapshot:
    return TargetSnapshot("target", now_s)


def test_a_condition_must_last_before_it_is_a_finding() -> None:
    engine = Engine([planted(hit(), for_s=10.0)])
    assert not engine.diagnose(at(100.0), History()).findings
    assert not engine.diagnose(at(109.0), History()).findings
    assert engine.diagnose(at(110.0), History()).findings[0].since_s == 100.0


def test_a_condition_that_ended_while_pending_starts_anew() -> None:
    rule = planted(hit(), for_s=10.0)
    engine = Engine([rule])
    engine.diagnose(at(100.0), History())
    rule.hits = []
    engine.diagnose(at(105.0), History())
    rule.hits = [hit()]
    assert not engine.diagnose(at(111.0), History()).findings


def test_one_look_at_a_finished_run_is_enough_when_the_rule_knows_since_when() -> None:
    engine = Engine([planted(hit(since_s=50.0), for_s=10.0)])
    assert engine.diagnose(at(100.0), History()).findings


def test_a_log_without_times_fires_at_once() -> None:
    assert Engine([planted(hit(), for_s=10.0)]).diagnose(at(None), History()).findings


def test_a_finding_stays_a_while_and_then_goes() -> None:
    rule = planted(hit(), keep_s=5.0)
    engine = Engine([rule])
    engine.diagnose(at(100.0), History())
    rule.hits = []
    assert engine.diagnose(at(105.0), History()).findings
    assert not engine.diagnose(at(106.0), History()).findings


def test_a_replay_that_jumps_back_forgets_what_comes_later() -> None:
    rule = planted(hit(), keep_s=1000.0)
    engine = Engine([rule])
    engine.diagnose(at(100.0), History())
    rule.hits = []
    assert not engine.diagnose(at(50.0), History()).findings


def test_the_root_cause_comes_first_and_names_what_it_caused() -> None:
    symptom = planted(
        hit(), code="TST002", severity=Severity.CRITICAL, causal_rank=4, consequence_of=("TST001",)
    )
    other = planted(hit(), code="TST003", causal_rank=3)
    root = planted(hit(confidence=0.5), causal_rank=2)
    findings = Engine([symptom, other, root]).diagnose(at(1.0), History()).findings
    assert [finding.rule for finding in findings] == ["TST001", "TST002", "TST003"]
    assert [finding.is_primary for finding in findings] == [True, False, False]
    assert [finding.consequence_of for finding in findings] == [None, "TST001", None]


def test_of_two_causes_of_one_kind_the_earlier_is_primary() -> None:
    late, early = planted(hit(since_s=20.0)), planted(hit(since_s=10.0), code="TST002")
    assert Engine([late, early]).diagnose(at(30.0), History()).findings[0].rule == "TST002"


def test_a_warning_that_ended_nothing_stands_below_the_error_that_did() -> None:
    early = planted(hit(since_s=1.0), causal_rank=1)
    deadly = planted(hit(since_s=9.0), code="TST002", severity=Severity.CRITICAL, causal_rank=3)
    findings = Engine([early, deadly]).diagnose(at(10.0), History()).findings
    assert [(f.rule, f.is_primary, f.consequence_of) for f in findings] == [
        ("TST002", True, None),
        ("TST001", False, None),
    ]


def test_a_warning_that_explains_the_error_by_a_declared_edge_stands_above_it() -> None:
    middle = planted(hit(), code="TST002", consequence_of=("TST001",))
    deadly = planted(hit(), code="TST003", severity=Severity.CRITICAL, consequence_of=("TST002",))
    other = planted(hit(), code="TST004", severity=Severity.CRITICAL, causal_rank=4)
    findings = Engine([other, deadly, middle, planted(hit())]).diagnose(at(1.0), History()).findings
    assert (findings[0].rule, findings[0].is_primary) == ("TST001", True)


def test_a_hit_that_knows_better_than_its_rule_says_by_itself_what_explains_it() -> None:
    free = planted(hit(consequence_of=()), code="TST002", consequence_of=("TST001",))
    named = planted(hit(consequence_of=("TST002",)))
    findings = Engine([free, named]).diagnose(at(1.0), History()).findings
    assert [(f.rule, f.consequence_of) for f in findings] == [("TST002", None), ("TST001", "TST002")]


def test_something_only_worth_knowing_never_leads_a_real_finding() -> None:
    note = planted(hit(severity=Severity.INFO), causal_rank=1)
    real = planted(hit(), code="TST002", causal_rank=5)
    assert Engine([note, real]).diagnose(at(1.0), History()).findings[0].rule == "TST002"


def test_what_nobody_has_seen_for_real_is_at_most_info() -> None:
    rule = planted(hit(severity=Severity.CRITICAL), is_proven=False)
    assert Engine([rule]).diagnose(at(1.0), History()).findings[0].severity is Severity.INFO


def test_a_rule_without_its_data_is_blind_and_says_so() -> None:
    rule = planted(hit(), needs=(frozenset({Need.METRICS}),))
    diagnosis = Engine([rule]).diagnose(at(1.0), History())
    assert not diagnosis.findings
    assert [item.what for item in diagnosis.not_measured] == ["metrics"]


def test_gpus_of_a_run_that_asked_for_none_are_not_measured_because_it_asked_for_none() -> None:
    rule = planted(hit(), needs=(frozenset({Need.GPU_TELEMETRY}),))
    cpu_run = run(resources={"num_nodes": 1, "gpus_per_node": 0})
    gap = SensorGap("node1", "gpu.utilization", "no NVIDIA driver", "run on a GPU node")
    snapshot = TargetSnapshot("target", 1.0, run=cpu_run, sensor_gaps=(gap,))
    (missing,) = Engine([rule]).diagnose(snapshot, History()).not_measured
    assert missing.because == "the run asked for no GPU"


def test_what_the_sampler_could_not_read_is_told_in_its_own_words() -> None:
    rule = planted(hit(), needs=(frozenset({Need.GPU_TELEMETRY}),))
    gap = SensorGap("node1", "gpu.utilization", "no NVIDIA driver", "run on a GPU node")
    (missing,) = (
        Engine([rule]).diagnose(TargetSnapshot("target", 1.0, sensor_gaps=(gap,)), History()).not_measured
    )
    assert missing.because == "no NVIDIA driver"


def test_a_rule_that_breaks_takes_nothing_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    broken, sound = planted(code="TST009"), planted(hit())
    monkeypatch.setattr(broken, "check", lambda snapshot, history: 1 / 0)
    diagnosis = Engine([broken, sound]).diagnose(at(1.0), History())
    assert [finding.rule for finding in diagnosis.findings] == ["TST001"]
    assert "ZeroDivisionError" in diagnosis.not_measured[0].because
    assert diagnosis.not_measured[0].what == "rule TST009"


def test_what_a_recipe_shows_on_purpose_is_info_and_leads_nothing() -> None:
    shown = planted(hit(), code="TST002", severity=Severity.CRITICAL, causal_rank=1)
    real = planted(hit(), severity=Severity.WARNING)
    snapshot = TargetSnapshot("target", 100.0, run=run(expects=("TST002",)))
    first, second = Engine([shown, real]).diagnose(snapshot, History()).findings
    assert (first.rule, first.is_primary, first.severity) == ("TST001", True, Severity.WARNING)
    assert (second.rule, second.severity, second.consequence_of) == ("TST002", Severity.INFO, None)
    assert "on purpose" in second.summary
    other = Engine([shown]).diagnose(TargetSnapshot("target", 100.0, run=run()), History())
    assert other.findings[0].severity is Severity.CRITICAL
