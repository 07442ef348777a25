from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Finding, Hit, Severity, Subject
from coach.model.snapshot import TargetSnapshot
from coach.model.training.telemetry import SensorGap
from coach.rules.base import Need, Rule
from coach.rules.causes import Code, Edge, Register, Says, Status
from coach.rules.engine import Engine
from tests.rules.examples import run, scan, tail_of


class Planted(Rule):
    """A rule with the hits that a test gives it."""

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


def register(*codes: Code, edges: Iterable[tuple[str, str]] = ()) -> Register:
    """A register of these codes with these edges between them."""
    return Register({each.code: each for each in codes}, {}, tuple(Edge(*edge, "planted") for edge in edges))


def judged(
    *rules: Planted, codes: Iterable[Code] = (), edges: Iterable[tuple[str, str]] = ()
) -> list[Finding]:
    """The findings of an engine with this register and these rules."""
    return list(Engine(rules, register(*codes, edges=edges)).diagnose(at(100.0), History()).findings)


def links(findings: Iterable[Finding]) -> list[tuple[str, bool, str | None]]:
    return [(finding.rule, finding.is_primary, finding.consequence_of) for finding in findings]


def at(now_s: float | None) -> TargetSnapshot:
    return TargetSnapshot("target", now_s)


def test_a_condition_must_last_before_it_is_a_finding() -> None:
    engine = Engine([planted(hit(), for_s=10.0)])
    assert not engine.diagnose(at(100.0), History()).findings
    assert not engine.diagnose(at(109.0), History()).findings
    assert engine.diagnose(at(110.0), History()).findings[0].since_s == 100.0


@pytest.mark.parametrize("ahead_s", [0.4, 5 * 3600.0], ids=["a fraction of a second", "another time zone"])
def test_a_line_whose_time_is_ahead_of_the_end_of_the_job_is_a_finding_at_once(ahead_s: float) -> None:
    (finding,) = Engine([planted(hit(since_s=100.0 + ahead_s))]).diagnose(at(100.0), History()).findings
    assert finding.rule == "TST001"


def test_a_condition_that_ended_while_pending_starts_again() -> None:
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


def test_a_replay_that_jumps_back_forgets_later_events() -> None:
    rule = planted(hit(), keep_s=1000.0)
    engine = Engine([rule])
    engine.diagnose(at(100.0), History())
    rule.hits = []
    assert not engine.diagnose(at(50.0), History()).findings


def critical(code: str, line: int | None = None, **more: object) -> Planted:
    """An error, at a line of the log where one is given."""
    evidence = () if line is None else (Evidence("line", "train.log", line),)
    return planted(hit(evidence=evidence, **more), code=code, severity=Severity.CRITICAL)


def test_the_root_cause_comes_first_and_names_its_consequence() -> None:
    symptom, other, root = critical("TST002"), planted(hit(), code="TST003"), planted(hit(confidence=0.5))
    assert links(judged(symptom, other, root, edges=[("TST001", "TST002")])) == [
        ("TST001", True, None),
        ("TST002", False, "TST001"),
        ("TST003", False, None),
    ]


def test_of_two_errors_that_ended_a_process_the_earlier_is_primary() -> None:
    late, early = planted(hit(since_s=20.0)), planted(hit(since_s=10.0), code="TST002")
    assert judged(late, early)[0].rule == "TST002"
    assert judged(critical("TST001", 30), critical("TST002", 12))[0].rule == "TST002"


def test_an_error_of_the_rank_that_failed_first_stands_above_an_earlier_one_of_another() -> None:
    summary = (
        "Root Cause (first observed failure):",
        "[0]:",
        "  rank      : 1 (local_rank: 1)",
        "  exitcode  : 1",
    )
    text = "\n".join(summary)
    snapshot = replace(at(100.0), log_hits=scan(text), log_tails=(tail_of(text),))
    own = critical("TST002", 9, subject=Subject(rank=1))
    other = critical("TST001", 3, subject=Subject(rank=0))
    findings = Engine([other, own], register()).diagnose(snapshot, History()).findings
    assert [finding.rule for finding in findings] == ["TST002", "TST001"]


def test_a_vague_error_ranks_below_a_later_and_more_specific_one() -> None:
    plain, telling = critical("TST001", since_s=1.0), critical("TST002", since_s=9.0)
    codes = [Code("TST001", explained_within_lines=3)]
    assert links(judged(plain, telling, codes=codes)) == [("TST002", True, None), ("TST001", False, None)]


@pytest.mark.parametrize("says", [Says.END, Says.ERROR, Says.COURSE])
def test_a_warning_that_ended_nothing_stands_below_the_error_that_did(says: Says) -> None:
    early, deadly = planted(hit(since_s=1.0)), critical("TST002", since_s=9.0)
    assert links(judged(early, deadly, codes=[Code("TST001", says)])) == [
        ("TST002", True, None),
        ("TST001", False, None),
    ]


def test_a_finding_about_speed_ranks_below_a_warning_about_the_end() -> None:
    slow, ended = critical("TST002"), planted(hit())
    codes = [Code("TST001", Says.END), Code("TST002", Says.COURSE)]
    assert links(judged(slow, ended, codes=codes)) == [("TST001", True, None), ("TST002", False, None)]


def test_a_warning_that_explains_the_error_by_a_declared_edge_stands_above_it() -> None:
    findings = judged(
        critical("TST004"),
        critical("TST003"),
        planted(hit(), code="TST002"),
        planted(hit()),
        codes=[Code("TST004", explained_by_any_end=True)],
        edges=[("TST001", "TST002"), ("TST002", "TST003")],
    )
    assert links(findings)[0] == ("TST001", True, None)
    assert ("TST004", False, "TST003") in links(findings)


def test_an_error_that_slurm_writes_at_the_end_of_a_log_counts_as_first() -> None:
    told, earlier = critical("TST001", 90), critical("TST002", 12)
    assert judged(told, earlier, codes=[Code("TST001", is_told_late=True)])[0].rule == "TST001"


def test_a_vague_error_is_explained_by_the_finding_right_below_it() -> None:
    bare, beside = critical("TST001", 10), planted(critical("TST002", 12).hits[0], code="TST002")
    codes = [Code("TST001", explained_within_lines=8)]
    assert links(judged(bare, beside, codes=codes)) == [("TST002", True, None), ("TST001", False, "TST002")]
    assert links(judged(critical("TST001", 2), beside, codes=codes))[0] == ("TST001", True, None)
    below = judged(critical("TST001", 14), beside, codes=codes)
    assert links(below) == [("TST001", True, None), ("TST002", False, None)]


def test_an_edge_that_holds_for_some_lines_does_not_hold_beyond_them() -> None:
    warning = planted(hit(evidence=(Evidence("line", "train.log", 10),)), code="TST002")
    near = Register({}, {}, (Edge("TST002", "TST001", "planted", 12),))

    def first(line: int) -> str:
        return Engine([warning, critical("TST001", line)], near).diagnose(at(1.0), History()).findings[0].rule

    assert [first(line) for line in (9, 11, 22, 23)] == ["TST001", "TST002", "TST002", "TST001"]


def test_a_hit_can_name_its_own_cause_against_the_register() -> None:
    free, named = planted(hit(consequence_of=()), code="TST002"), planted(hit(consequence_of=("TST002",)))
    findings = judged(free, named, edges=[("TST001", "TST002")])
    assert links(findings) == [("TST002", True, None), ("TST001", False, "TST002")]
    other_way = judged(planted(hit(), code="TST002"), named, edges=[("TST001", "TST002")])
    assert links(other_way) == [("TST002", True, None), ("TST001", False, "TST002")]


def test_something_only_worth_knowing_never_leads_a_real_finding() -> None:
    note, real = planted(hit(severity=Severity.INFO)), planted(hit(), code="TST002")
    assert judged(note, real, codes=[Code("TST002", Says.COURSE)])[0].rule == "TST002"


def test_an_unproven_rule_reports_info_at_most() -> None:
    (found,) = judged(critical("TST001"), codes=[Code("TST001", status=Status.UNPROVEN)])
    assert found.severity is Severity.INFO


def test_a_rule_without_its_data_is_blind_and_says_so() -> None:
    rule = planted(hit(), needs=(frozenset({Need.METRICS}),))
    diagnosis = Engine([rule]).diagnose(at(1.0), History())
    assert not diagnosis.findings
    assert [item.what for item in diagnosis.not_measured] == ["metrics"]


def test_gpu_data_is_not_called_missing_for_a_run_that_asked_for_no_gpu() -> None:
    rule = planted(hit(), needs=(frozenset({Need.GPU_TELEMETRY}),))
    cpu_run = run(resources={"num_nodes": 1, "gpus_per_node": 0})
    gap = SensorGap("node1", "gpu.utilization", "no NVIDIA driver", "run on a GPU node")
    snapshot = TargetSnapshot("target", 1.0, run=cpu_run, sensor_gaps=(gap,))
    (missing,) = Engine([rule]).diagnose(snapshot, History()).not_measured
    assert missing.because == "the run requested no GPU"


def test_a_value_that_the_sampler_could_not_read_is_listed_in_the_sampler_s_words() -> None:
    rule = planted(hit(), needs=(frozenset({Need.GPU_TELEMETRY}),))
    gap = SensorGap("node1", "gpu.utilization", "no NVIDIA driver", "run on a GPU node")
    (missing,) = (
        Engine([rule]).diagnose(TargetSnapshot("target", 1.0, sensor_gaps=(gap,)), History()).not_measured
    )
    assert missing.because == "no NVIDIA driver"


@pytest.mark.parametrize("needs", [(), (frozenset({Need.METRICS}),)])
def test_files_that_another_run_may_have_written_are_always_named(
    needs: tuple[frozenset[Need], ...],
) -> None:
    snapshot = TargetSnapshot("target", 1.0, left_aside="metrics.csv may be of run y: not read")
    (missing,) = Engine([planted(hit(), needs=needs)]).diagnose(snapshot, History()).not_measured
    assert (missing.what, missing.because) == ("metrics", "metrics.csv may be of run y: not read")
    assert "a directory of its own" in missing.how


def test_a_rule_that_breaks_takes_nothing_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    broken, sound = planted(code="TST009"), planted(hit())
    monkeypatch.setattr(broken, "check", lambda snapshot, history: 1 / 0)
    diagnosis = Engine([broken, sound]).diagnose(at(1.0), History())
    assert [finding.rule for finding in diagnosis.findings] == ["TST001"]
    assert "ZeroDivisionError" in diagnosis.not_measured[0].because
    assert diagnosis.not_measured[0].what == "rule TST009"


def test_a_finding_that_a_recipe_expects_is_info_and_never_primary() -> None:
    shown = critical("TST002")
    real = planted(hit(), severity=Severity.WARNING)
    snapshot = TargetSnapshot("target", 100.0, run=run(expects=("TST002",)))
    first, second = Engine([shown, real]).diagnose(snapshot, History()).findings
    assert (first.rule, first.is_primary, first.severity) == ("TST001", True, Severity.WARNING)
    assert (second.rule, second.severity, second.consequence_of) == ("TST002", Severity.INFO, None)
    assert "on purpose" in second.summary
    other = Engine([shown]).diagnose(TargetSnapshot("target", 100.0, run=run()), History())
    assert other.findings[0].severity is Severity.CRITICAL


def test_changed_rules_apply_at_once_and_a_pending_finding_keeps_its_start() -> None:
    engine = Engine([planted(hit(), for_s=10.0)])
    engine.diagnose(at(100.0), History())
    engine.use([planted(hit(summary="by the new rule"), for_s=10.0)])
    (finding,) = engine.diagnose(at(110.0), History()).findings
    assert (finding.summary, finding.since_s) == ("by the new rule", 100.0)
    engine.use([])
    assert not engine.diagnose(at(111.0), History()).findings
    engine.use([planted(hit(), for_s=10.0)])
    assert not engine.diagnose(at(112.0), History()).findings


def test_a_target_that_was_forgotten_starts_anew() -> None:
    engine = Engine([planted(hit(), for_s=10.0)])
    engine.diagnose(at(100.0), History())
    engine.forget("target")
    engine.forget("unknown")
    assert not engine.diagnose(at(110.0), History()).findings
    assert engine.diagnose(at(120.0), History()).findings
