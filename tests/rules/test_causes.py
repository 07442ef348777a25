"""The register is complete and has no circle, and each of its edges puts its cause above its effect."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Finding, Hit, Severity
from coach.model.snapshot import TargetSnapshot
from coach.rules.base import Rule
from coach.rules.causes import REGISTER, Edge, Register, Status
from coach.rules.engine import Engine
from coach.rules.registry import build, rule_classes
from tests.rules.proofs import found_in, hits_of, read_proofs, recordings, source, texts

PROOFS = read_proofs()
RULES = {rule.code: rule for rule in build()}
# An unproven cause is at most info and explains no other finding; its edges are tested as if it were proven.
TRIED = Register(
    {code: replace(row, status=Status.ACTIVE) for code, row in REGISTER.codes.items()},
    REGISTER.causes,
    REGISTER.edges,
)


def name_of(edge: Edge) -> str:
    return f"{edge.cause}-{edge.effect}"


class Replayed(Rule):
    """A rule that repeats its hits from the source that proves it."""

    code = name = cause = "replayed"
    severity = Severity.WARNING

    def __init__(self, rule: Rule, file: str, line: int | None = None) -> None:
        super().__init__()
        self.code, self.name, self.cause = rule.code, rule.name, rule.cause  # type: ignore[misc]
        fires = PROOFS[rule.code].fires
        seen = hits_of(rule, fires) if fires else []
        hit = seen[0] if seen else Hit("seen", (Evidence("seen"),), 0.9)
        first = replace(hit.evidence[0], file=file, line=line or hit.evidence[0].line)
        loud = max(Severity.WARNING, hit.severity or rule.severity)
        self.hit = replace(hit, evidence=(first,), severity=loud)

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        return [self.hit]


def links(findings: Iterable[Finding]) -> list[tuple[str, bool, str | None]]:
    return [(finding.rule, finding.is_primary, finding.consequence_of) for finding in findings]


def judged(*rules: Rule) -> list[tuple[str, bool, str | None]]:
    return links(Engine(rules, TRIED).diagnose(TargetSnapshot("target", None), History()).findings)


def test_the_register_has_every_rule_and_no_other_code_in_use() -> None:
    in_use = {code for code, row in REGISTER.codes.items() if row.status is not Status.RETIRED}
    assert in_use == {rule.code for rule in rule_classes()}
    assert all(code == row.code for code, row in REGISTER.codes.items())


def test_a_retired_code_names_its_replacement() -> None:
    for row in REGISTER.codes.values():
        assert (row.status is Status.RETIRED) >= bool(row.replaced_by)
        assert set(row.replaced_by) <= REGISTER.codes.keys()


def test_every_cause_that_a_rule_names_has_its_sentence() -> None:
    said = {rule.cause for rule in rule_classes()}
    said |= {finding.cause for name in recordings() for finding in found_in(name)}
    assert said <= REGISTER.causes.keys()
    assert all(text.endswith(".") and text[0].isupper() for text in REGISTER.causes.values())
    assert len(set(REGISTER.causes.values())) == len(REGISTER.causes)


def test_every_edge_joins_two_codes_once_and_tells_why() -> None:
    assert {code for edge in REGISTER.edges for code in (edge.cause, edge.effect)} <= REGISTER.codes.keys()
    assert len({(edge.cause, edge.effect) for edge in REGISTER.edges}) == len(REGISTER.edges)
    assert all(edge.why and not edge.why.endswith(".") for edge in REGISTER.edges)


@pytest.mark.parametrize("code", sorted({edge.cause for edge in REGISTER.edges}))
def test_no_code_explains_itself_by_a_circle_of_edges(code: str) -> None:
    reached: set[str] = set()
    waiting = {code}
    while waiting:
        effects = {edge.effect for edge in REGISTER.edges if edge.cause in waiting}
        waiting = effects - reached
        reached |= effects
    assert code not in reached


@pytest.mark.parametrize("edge", REGISTER.edges, ids=name_of)
def test_a_cause_stands_above_its_effect_wherever_both_are_seen(edge: Edge) -> None:
    same = edge.within_lines is not None
    cause = Replayed(RULES[edge.cause], "a.log", 10 if same else None)
    effect = Replayed(RULES[edge.effect], "a.log" if same else "b.log", 12 if same else None)
    both = [(edge.cause, True, None)]
    if not REGISTER.of(edge.effect).is_last_resort:  # the last resort goes where it is explained
        both.append((edge.effect, False, edge.cause))
    assert judged(cause, effect) == judged(effect, cause) == both
    assert judged(cause) == [(edge.cause, True, None)]
    assert judged(effect) == [(edge.effect, True, None)]


def is_proved_by_a_log(code: str) -> bool:
    name = PROOFS[code].fires
    return name is not None and (name in texts() or name.endswith(".log"))


def proof_of(code: str) -> TargetSnapshot:
    name = PROOFS[code].fires
    assert name is not None
    return source(name)[0]


OF_A_LOST_GPU = ("CUD003", "HDW001")
"""The proof of HDW001 has Xid 79, and a lost GPU stands above CUD003: tests/rules/test_advice_on_logs.py has
both orders."""
LOGS = [
    edge
    for edge in REGISTER.edges
    if (edge.cause, edge.effect) != OF_A_LOST_GPU
    and edge.within_lines is None
    and is_proved_by_a_log(edge.cause)
    and is_proved_by_a_log(edge.effect)
]


def side_by_side(first: TargetSnapshot, second: TargetSnapshot) -> TargetSnapshot:
    """Both logs as two files of one target."""
    hits = [replace(hit, file=file) for file, each in (("a", first), ("b", second)) for hit in each.log_hits]
    tails = [
        replace(tail, file=file) for file, each in (("a", first), ("b", second)) for tail in each.log_tails
    ]
    return replace(first, log_hits=tuple(hits), log_tails=tuple(tails))


@pytest.mark.parametrize("edge", LOGS, ids=name_of)
def test_findings_of_two_logs_of_one_job_follow_the_order_of_their_edge(edge: Edge) -> None:
    snapshot = side_by_side(proof_of(edge.cause), proof_of(edge.effect))
    rules = [RULES[edge.cause], RULES[edge.effect]]
    findings = links(Engine(rules).diagnose(snapshot, History()).findings)
    told = [code for code, _, _ in findings]
    assert findings[0] == (edge.cause, True, None)
    assert edge.effect not in told or (edge.effect, False, edge.cause) in findings
