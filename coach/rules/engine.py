"""From what rules see now to a diagnosis: what lasted, what caused what, and what could not be judged.

Rules look at one moment and know nothing of each other; time and order are kept here, once. The only clock is
the data's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from coach.lookback.history import History
from coach.model.judging.finding import Diagnosis, Finding, Hit, NotMeasured, Severity, Subject
from coach.model.snapshot import TargetSnapshot
from coach.rules import blindness, thresholds
from coach.rules.base import Rule
from coach.rules.from_logs.aftermath import has_gone_well
from coach.rules.from_logs.mere_mentions import happened

_COLLECTIVE_SYMPTOM = 4
"""The causal rank of what the others say when one rank has ended."""

_PERFORMANCE = 5
"""The causal rank of findings about speed, which end no job however critical they are."""

_Key = tuple[str, str, Subject]


@dataclass(slots=True)
class _Condition:
    """One condition of one target, from its first sight on."""

    rule: Rule
    hit: Hit
    since_s: float | None
    seen_s: float | None
    is_firing: bool = False
    is_expected: bool = False
    """True if the recipe shows it on purpose."""


class Engine:
    """Keeps, per target, which conditions are pending and which fire."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules = tuple(rules)
        self._conditions: dict[str, dict[_Key, _Condition]] = {}
        self._clocks: dict[str, float] = {}

    def diagnose(self, snapshot: TargetSnapshot, history: History) -> Diagnosis:
        """Judge one target as it stands. Called again with newer data, it remembers since when each condition
        holds."""
        self._reset_if_time_went_back(snapshot)
        snapshot = replace(snapshot, log_hits=happened(snapshot))
        conditions = self._conditions.setdefault(snapshot.target, {})
        sight = blindness.Sight.of(snapshot, history)
        blind: list[NotMeasured] = []
        seen: set[_Key] = set()
        expected = snapshot.run.expects if snapshot.run is not None else ()
        for rule in self.rules:
            if not sight.can_judge(rule):
                blind += sight.not_measured(rule)
                continue
            try:
                hits = list(rule.check(snapshot, history))
            except Exception as error:  # one broken rule must not take the others, or the screen, with it
                blind.append(_failed(rule, error))
                continue
            for hit in hits:
                is_expected = rule.code in expected
                if is_expected:
                    hit = _on_purpose(hit)
                key = (rule.code, hit.cause or rule.cause, hit.subject)
                seen.add(key)
                _see(conditions, key, rule, hit, snapshot.now_s)
                conditions[key].is_expected = is_expected
        _expire(conditions, seen, snapshot.now_s)
        firing = _without_needless([condition for condition in conditions.values() if condition.is_firing])
        return Diagnosis(
            target=snapshot.target,
            state=snapshot.state,
            findings=_in_order(firing),
            not_measured=_unique([*blind, *sight.gaps]),
            thresholds=thresholds.in_force(self.rules),
            has_gone_well=has_gone_well(snapshot, history),
        )

    def use(self, rules: Iterable[Rule]) -> None:
        """Judge by these from now on. What is pending or firing goes on, as far as its rule is still
        there."""
        self.rules = tuple(rules)
        by_code = {rule.code: rule for rule in self.rules}
        for target, conditions in self._conditions.items():
            kept = {key: condition for key, condition in conditions.items() if condition.rule.code in by_code}
            for condition in kept.values():
                condition.rule = by_code[condition.rule.code]
            self._conditions[target] = kept

    def forget(self, target: str) -> None:
        """Drop what is remembered of a target that nobody follows any more."""
        self._conditions.pop(target, None)
        self._clocks.pop(target, None)

    def _reset_if_time_went_back(self, snapshot: TargetSnapshot) -> None:
        # A replay that jumps back shows a past in which later conditions do not hold yet.
        now, last = snapshot.now_s, self._clocks.get(snapshot.target)
        if now is None:
            return
        if last is not None and now < last:
            self._conditions.pop(snapshot.target, None)
        self._clocks[snapshot.target] = now


def _on_purpose(hit: Hit) -> Hit:
    """A recipe that shows a bad habit says so: what was to be seen is worth knowing, and no more."""
    return replace(hit, severity=Severity.INFO, summary=f"{hit.summary} (this recipe shows it on purpose)")


def _see(conditions: dict[_Key, _Condition], key: _Key, rule: Rule, hit: Hit, now_s: float | None) -> None:
    condition = conditions.get(key)
    if condition is None:
        condition = conditions[key] = _Condition(
            rule, hit, now_s if hit.since_s is None else hit.since_s, now_s
        )
    condition.hit, condition.seen_s = hit, now_s
    if hit.since_s is not None:
        condition.since_s = hit.since_s
    if condition.is_firing:
        return
    lasted = math.inf if now_s is None or condition.since_s is None else now_s - condition.since_s
    condition.is_firing = lasted >= rule.for_s


def _expire(conditions: dict[_Key, _Condition], seen: set[_Key], now_s: float | None) -> None:
    for key in [key for key in conditions if key not in seen]:
        condition = conditions[key]
        gone_s = math.inf if now_s is None or condition.seen_s is None else now_s - condition.seen_s
        if not condition.is_firing or gone_s > condition.rule.keep_s or condition.rule.keep_s == 0:
            del conditions[key]


def _failed(rule: Rule, error: Exception) -> NotMeasured:
    return NotMeasured(
        what=f"rule {rule.code}",
        because=f"the rule itself failed: {type(error).__name__}: {error}",
        how=f"report it with this line; `rules.mute = [{rule.code!r}]` in the config silences it",
    )


def _without_needless(firing: list[_Condition]) -> list[_Condition]:
    """Without the rule of last resort, where another finding says why the target ended."""
    if not any(_explains_end(condition) for condition in firing):
        return firing
    return [condition for condition in firing if not condition.rule.is_last_resort]


def _explains_end(condition: _Condition) -> bool:
    if condition.rule.is_last_resort:
        return False
    severity = condition.rule.severity if condition.is_expected else _severity(condition)
    if severity is Severity.CRITICAL:
        return condition.rule.causal_rank < _PERFORMANCE
    return severity is Severity.WARNING and condition.rule.explains_end


def _in_order(firing: list[_Condition]) -> tuple[Finding, ...]:
    """Root cause first, then what it caused, then the rest by severity."""
    if not firing:
        return ()
    loudest = max(_severity(condition) for condition in firing)
    # Something that is only worth knowing neither leads a real finding nor explains one.
    loud = [c for c in firing if _severity(c) >= min(Severity.WARNING, loudest)]
    causes = {id(c): _cause_of(c, loud) for c in firing}
    files = {_place(c)[0] for c in loud}
    is_one_log = len(files) == 1 and None not in files
    weights = _weights(loud, causes)
    # What ended the process leads, or what explains that: a warning of the start that ended nothing does not.
    primary = min(
        loud, key=lambda c: (causes[id(c)] is not None, -weights[c.rule.code], *_rank(c, is_one_log))
    )
    findings = [_finding(c, c is primary, None if c is primary else causes[id(c)]) for c in firing]
    primary_code = primary.rule.code
    if primary.hit.is_intended:
        findings = [
            replace(f, severity=Severity.INFO) if f.is_primary or f.consequence_of == primary_code else f
            for f in findings
        ]
    return tuple(
        sorted(
            findings,
            key=lambda f: (
                not f.is_primary,
                f.consequence_of != primary_code,
                -f.severity,
                -f.confidence,
                f.rule,
            ),
        )
    )


def _weights(loud: list[_Condition], causes: dict[int, str | None]) -> dict[str, Severity]:
    """How bad what each rule found is, counting what it explains, and what that explains in turn.

    Beside an end without a known cause, a finding about speed weighs no more than a warning: it ended
    nothing.
    """
    weights: dict[str, Severity] = {}
    has_unknown_end = any(condition.rule.is_last_resort for condition in loud)
    explained_by = {condition.rule.code: causes[id(condition)] for condition in loud}
    for condition in loud:
        code: str | None = condition.rule.code
        is_about_speed = condition.rule.causal_rank >= _PERFORMANCE
        severity = Severity.WARNING if has_unknown_end and is_about_speed else _severity(condition)
        seen: set[str] = set()
        while code is not None and code not in seen:
            seen.add(code)
            weights[code] = max(severity, weights.get(code, Severity.INFO))
            code = explained_by.get(code)
    return weights


def _rank(condition: _Condition, is_one_log: bool) -> tuple[float, float, int, float]:
    """Causal rank, then what came first. Within one log the lines are in their order; not every line has a
    time."""
    since = math.inf if condition.since_s is None else condition.since_s
    first = float(_place(condition)[1]) if is_one_log else since
    return condition.rule.causal_rank, first, -_severity(condition), -condition.hit.confidence


def _place(condition: _Condition) -> tuple[str | None, int]:
    """File and line of the first evidence."""
    first = next(iter(condition.hit.evidence), None)
    return (first.file, first.line or 0) if first is not None else (None, 0)


def _cause_of(condition: _Condition, loud: list[_Condition]) -> str | None:
    """The code of a firing rule that explains this one.

    The first that the rule names; of an end from outside, what went wrong before; of what came after such an
    end, that end; of a collective's symptom, what ended a rank.
    """
    others = [other for other in loud if other.rule.code != condition.rule.code]
    codes = {other.rule.code for other in others}
    named = next((code for code in _explained_by(condition) if code in codes), None)
    if named is not None:
        return named
    yields_to = condition.rule.yields_to
    others = [other for other in others if condition.rule.code not in _explained_by(other)]
    if yields_to is not None:
        causes = [
            c
            for c in others
            if c.rule.yields_to is None and _severity(c) >= yields_to and not _is_above(condition, c)
        ]
    else:
        causes = [c for c in others if c.rule.yields_to is not None and _is_above(c, condition)]
    if not causes and condition.rule.causal_rank == _COLLECTIVE_SYMPTOM:
        causes = [
            c
            for c in others
            if c.rule.causal_rank < _COLLECTIVE_SYMPTOM and _severity(c) is Severity.CRITICAL
        ]
    return min(causes, key=lambda c: _rank(c, False)).rule.code if causes else None


def _explained_by(condition: _Condition) -> tuple[str, ...]:
    """The codes that explain a condition: those of this hit, or of its rule."""
    told = condition.hit.consequence_of
    return condition.rule.consequence_of if told is None else told


def _is_above(condition: _Condition, other: _Condition) -> bool:
    """Whether it stands above the other in one log."""
    (file, line), (other_file, other_line) = _place(condition), _place(other)
    return file is not None and file == other_file and line < other_line


def _severity(condition: _Condition) -> Severity:
    severity = condition.rule.severity if condition.hit.severity is None else condition.hit.severity
    return severity if condition.rule.is_proven else Severity.INFO


def _finding(condition: _Condition, is_primary: bool, consequence_of: str | None) -> Finding:
    rule, hit = condition.rule, condition.hit
    return Finding(
        rule=rule.code,
        name=rule.name,
        cause=hit.cause or rule.cause,
        severity=_severity(condition),
        confidence=hit.confidence,
        is_primary=is_primary,
        consequence_of=consequence_of,
        subject=hit.subject,
        summary=hit.summary,
        evidence=hit.evidence,
        fixes=hit.fixes,
        since_s=condition.since_s,
    )


def _unique(items: list[NotMeasured]) -> tuple[NotMeasured, ...]:
    return tuple(dict.fromkeys(items))
