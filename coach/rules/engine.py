"""Make a diagnosis of the rules' hits: which conditions last, which finding explains which, what was not
judged.

A rule judges one moment and does not see the other rules. The engine alone tracks time and order, by the
data's time stamps.
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
from coach.rules.causes import REGISTER, Code, Register, Says, Status
from coach.rules.from_logs.library_exceptions import unnamed_exceptions
from coach.rules.from_logs.mere_mentions import happened
from coach.rules.from_logs.outcome import first_failure, judge
from coach.rules.from_logs.runs import of_last_run
from coach.rules.from_numbers.loss_course import health_of
from coach.rules.from_numbers.rhythm import unknown_progress

_Key = tuple[str, str, Subject]


@dataclass(slots=True)
class _Condition:
    """One condition of one target, since it was first seen."""

    rule: Rule
    row: Code
    """The register's row of the rule."""
    hit: Hit
    since_s: float | None
    seen_s: float | None
    is_firing: bool = False
    is_expected: bool = False
    """True if the recipe causes it on purpose."""

    @property
    def code(self) -> str:
        return self.rule.code

    @property
    def severity(self) -> Severity:
        severity = self.rule.severity if self.hit.severity is None else self.hit.severity
        return Severity.INFO if self.row.status is Status.UNPROVEN else severity

    def has_ended(self, severity: Severity) -> bool:
        """True if the register says that a finding of this severity ended the process."""
        least = Severity.WARNING if self.row.says is Says.END else Severity.CRITICAL
        return self.row.says is not Says.COURSE and severity >= least


class Engine:
    """Remembers for each target which conditions are pending and which fire."""

    def __init__(self, rules: Iterable[Rule], register: Register = REGISTER) -> None:
        self.rules = tuple(rules)
        self._register = register
        self._conditions: dict[str, dict[_Key, _Condition]] = {}
        self._clocks: dict[str, float] = {}

    def diagnose(self, snapshot: TargetSnapshot, history: History) -> Diagnosis:
        """Judge one target now. Across calls with newer data, the engine remembers since when each condition
        holds."""
        self._reset_if_time_went_back(snapshot)
        found = (*snapshot.log_hits, *unnamed_exceptions(snapshot))
        snapshot, earlier = of_last_run(replace(snapshot, log_hits=found))
        snapshot = replace(snapshot, log_hits=happened(snapshot))
        snapshot = replace(snapshot, outcome=replace(judge(snapshot, history), earlier=earlier))
        conditions = self._conditions.setdefault(snapshot.target, {})
        sight = blindness.Sight.of(snapshot, history)
        blind: list[NotMeasured] = []
        seen: set[_Key] = set()
        now_s = snapshot.now_s
        expected = snapshot.run.expects if snapshot.run is not None else ()
        for rule in self.rules:
            if not sight.can_judge(rule):
                blind += sight.not_measured(rule)
                continue
            try:
                hits = rule.judge(snapshot, history)
            except Exception as error:  # one broken rule must not stop the others or the screen
                blind.append(_failed(rule, error))
                continue
            for hit in hits:
                is_expected = rule.code in expected
                if is_expected:
                    hit = _on_purpose(hit)
                key = (rule.code, hit.cause or rule.cause, hit.subject)
                seen.add(key)
                condition = _Condition(rule, self._register.of(rule.code), hit, now_s, now_s)
                condition = conditions.setdefault(key, condition)
                condition.is_expected = is_expected
                _see(condition, hit, now_s)
        _expire(conditions, seen, now_s)
        firing = [condition for condition in conditions.values() if condition.is_firing]
        first = first_failure(snapshot) if len(firing) > 1 else None
        health, ground = health_of(snapshot, history)
        return Diagnosis(
            target=snapshot.target,
            state=snapshot.state,
            findings=_Order(self._register, first.rank if first is not None else None).of(firing),
            not_measured=tuple(dict.fromkeys([*unknown_progress(snapshot, history), *blind, *sight.gaps])),
            thresholds=thresholds.in_force(self.rules),
            outcome=snapshot.outcome,
            health=health,
            ground=ground,
        )

    def use(self, rules: Iterable[Rule]) -> None:
        """Judge by these rules from now on. Conditions keep their state if their rule is among them."""
        self.rules = tuple(rules)
        by_code = {rule.code: rule for rule in self.rules}
        for target, conditions in self._conditions.items():
            kept = {key: condition for key, condition in conditions.items() if condition.rule.code in by_code}
            for condition in kept.values():
                condition.rule = by_code[condition.rule.code]
            self._conditions[target] = kept

    def forget(self, target: str) -> None:
        """Forget a target that nobody watches any more."""
        self._conditions.pop(target, None)
        self._clocks.pop(target, None)

    def _reset_if_time_went_back(self, snapshot: TargetSnapshot) -> None:
        # When a replay jumps back in time, conditions that began later do not hold yet.
        now, last = snapshot.now_s, self._clocks.get(snapshot.target)
        if now is None:
            return
        if last is not None and now < last:
            self._conditions.pop(snapshot.target, None)
        self._clocks[snapshot.target] = now


def _on_purpose(hit: Hit) -> Hit:
    """Lower a hit to info if the recipe declares it as expected: the recipe demonstrates a bad habit."""
    return replace(hit, severity=Severity.INFO, summary=f"{hit.summary} (this recipe shows it on purpose)")


def _see(condition: _Condition, hit: Hit, now_s: float | None) -> None:
    condition.hit, condition.seen_s = hit, now_s
    if hit.since_s is not None:
        condition.since_s = hit.since_s
    if condition.is_firing:
        return
    # A line of a log may be ahead of the target's time: it has another time zone, and Slurm's end of a job
    # has no fraction of a second.
    lasted = math.inf if now_s is None or condition.since_s is None else max(0.0, now_s - condition.since_s)
    condition.is_firing = lasted >= condition.rule.for_s


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


class _Order:
    """Orders findings by the register: the one that ended the process comes first, or the one that explains
    it."""

    def __init__(self, register: Register, failed_rank: int | None) -> None:
        """`failed_rank` is the rank that failed first, where a launcher names it."""
        self._register = register
        self._failed_rank = failed_rank

    def of(self, firing: list[_Condition]) -> tuple[Finding, ...]:
        """The primary finding, then its consequences, then the rest by severity."""
        firing = self._without_needless(firing)
        if not firing:
            return ()
        loudest = max(condition.severity for condition in firing)
        # An info finding is never primary beside a warning or critical one, and explains none.
        loud = [c for c in firing if c.severity >= min(Severity.WARNING, loudest)]
        causes = {id(c): self._cause_of(c, loud) for c in firing}
        primary = self._primary(loud, causes)
        findings = [self._finding(c, c is primary, None if c is primary else causes[id(c)]) for c in firing]
        if primary.hit.is_intended:
            findings = [
                replace(f, severity=Severity.INFO) if f.is_primary or f.consequence_of == primary.code else f
                for f in findings
            ]
        return tuple(
            sorted(
                findings,
                key=lambda f: (
                    not f.is_primary,
                    f.consequence_of != primary.code,
                    -f.severity,
                    -f.confidence,
                    f.rule,
                ),
            )
        )

    def _primary(self, loud: list[_Condition], causes: dict[int, str | None]) -> _Condition:
        files = {_place(c)[0] for c in loud}
        is_one_log = len(files) == 1 and None not in files
        weights = self._weights(loud, causes)

        def key(condition: _Condition) -> tuple[object, ...]:
            has_ended, severity = weights[condition.code]
            is_consequence = causes[id(condition)] is not None
            is_of_others, *when = self._first(condition, is_one_log)
            # Prefer an error that says more: one that says little may come from an earlier program in the
            # same log.
            says_little = condition.row.explained_within_lines > 0
            is_about_course = condition.row.says is Says.COURSE
            return (
                is_consequence,
                not has_ended,
                -severity,
                is_about_course,
                is_of_others,
                says_little,
                *when,
            )

        return min(loud, key=key)

    def _weights(
        self, loud: list[_Condition], causes: dict[int, str | None]
    ) -> dict[str, tuple[bool, Severity]]:
        """Code → whether the finding, or one that it explains, ended the process, and the worst severity of
        these."""
        weights: dict[str, tuple[bool, Severity]] = {}
        explained_by = {condition.code: causes[id(condition)] for condition in loud}
        for condition in loud:
            weight = (condition.has_ended(condition.severity), condition.severity)
            code: str | None = condition.code
            seen: set[str] = set()
            while code is not None and code not in seen:
                seen.add(code)
                weights[code] = max(weight, weights.get(code, weight))
                code = explained_by.get(code)
        return weights

    def _first(self, condition: _Condition, is_one_log: bool) -> tuple[bool, bool, float, int, float]:
        """Sort key: delayed reports, then the rank that failed first, then the earliest finding. Findings of
        one log are ordered by line number, because not every line has a time."""
        is_told_late = condition.row.is_told_late
        rank = condition.hit.subject.rank
        is_of_another = None not in (rank, self._failed_rank) and rank != self._failed_rank
        since = math.inf if condition.since_s is None else condition.since_s
        first = float(_place(condition)[1]) if is_one_log else since
        return not is_told_late, is_of_another, first, -condition.severity, -condition.hit.confidence

    def _cause_of(self, condition: _Condition, loud: list[_Condition]) -> str | None:
        """The code of a firing rule that explains this one: by an edge, or by its position relative to an
        end."""
        # A hit that names its own causes overrides the register.
        others = [
            other
            for other in loud
            if other.code != condition.code and condition.code not in (other.hit.consequence_of or ())
        ]
        named = self._named_cause(condition, others)
        if named is not None:
            return named
        others = [other for other in others if not self._is_named(condition, other)]
        causes = (
            self._causes_by_place(condition, others)
            or self._ends_elsewhere(condition, others)
            or self._more_of_the_same(condition, others)
        )
        return min(causes, key=lambda c: self._first(c, False)).code if causes else None

    def _named_cause(self, condition: _Condition, others: list[_Condition]) -> str | None:
        """The first code in the list of explanations that fires near enough; None without one."""
        codes = {other.code for other in others if self._is_named(other, condition)}
        named = condition.hit.consequence_of
        if named is None:
            named = tuple(edge.cause for edge in self._register.explaining(condition.code))
        return next((code for code in named if code in codes), None)

    def _causes_by_place(self, condition: _Condition, others: list[_Condition]) -> list[_Condition]:
        """For an end from outside: earlier errors. For any other finding: ends from outside above it in the
        log."""
        least = condition.row.explained_by_earlier
        if least is None:
            return [c for c in others if c.row.explained_by_earlier is not None and _is_above(c, condition)]
        return [
            c
            for c in others
            if c.row.explained_by_earlier is None and c.severity >= least and not _is_above(condition, c)
        ]

    def _ends_elsewhere(self, condition: _Condition, others: list[_Condition]) -> list[_Condition]:
        """For a symptom that any end explains: the findings that ended a process. Empty for other
        findings."""
        row = condition.row
        if not row.explained_by_any_end and not row.explained_by_end_above:
            return []
        return [
            c
            for c in others
            if (row.explained_by_any_end or _is_above(c, condition))
            and c.has_ended(c.severity)
            and not c.row.explained_by_any_end
            and c.row.explained_by_earlier is None
        ]

    def _more_of_the_same(self, condition: _Condition, others: list[_Condition]) -> list[_Condition]:
        """For an error that says little: findings a few lines below it, except symptoms."""
        reach = condition.row.explained_within_lines
        return [
            c
            for c in others
            if reach
            and 0 <= _lines_between(condition, c) <= reach
            and not c.row.explained_by_any_end
            and not c.row.explained_by_end_above
        ]

    def _is_named(self, cause: _Condition, effect: _Condition) -> bool:
        """True if an edge says that `cause` explains `effect`, and their lines are close enough."""
        if effect.hit.consequence_of is not None:
            return cause.code in effect.hit.consequence_of
        edges = self._register.explaining(effect.code)
        reaches = [edge.within_lines for edge in edges if edge.cause == cause.code]
        return any(reach is None or 0 <= _lines_between(cause, effect) <= reach for reach in reaches)

    def _without_needless(self, firing: list[_Condition]) -> list[_Condition]:
        """Drop the rule of last resort if another finding ended the process or explains its end."""
        kept = [condition for condition in firing if not condition.row.is_last_resort]
        for last in firing:
            if last not in kept and any(self._is_enough(condition, last) for condition in kept):
                return kept
        return firing

    def _is_enough(self, condition: _Condition, last: _Condition) -> bool:
        severity = condition.rule.severity if condition.is_expected else condition.severity
        is_named = severity is Severity.CRITICAL and self._is_named(condition, last)
        return is_named or condition.has_ended(severity)

    def _finding(self, condition: _Condition, is_primary: bool, consequence_of: str | None) -> Finding:
        rule, hit, severity = condition.rule, condition.hit, condition.severity
        return Finding(
            rule=rule.code,
            name=rule.name,
            cause=hit.cause or rule.cause,
            severity=min(severity, Severity.WARNING) if hit.is_hidden else severity,
            confidence=hit.confidence,
            is_primary=is_primary,
            consequence_of=consequence_of,
            subject=hit.subject,
            summary=hit.summary,
            evidence=hit.evidence,
            fixes=tuple(fix for fix in hit.fixes if is_primary or not fix.is_for_primary),
            since_s=condition.since_s,
        )


def _place(condition: _Condition) -> tuple[str | None, int]:
    """File and line of the first evidence."""
    first = next(iter(condition.hit.evidence), None)
    return (first.file, first.line or 0) if first is not None else (None, 0)


def _lines_between(condition: _Condition, other: _Condition) -> float:
    """How many lines `other` stands below `condition`; NaN if they are in different logs."""
    (file, line), (other_file, other_line) = _place(condition), _place(other)
    return other_line - line if file is not None and file == other_file else math.nan


def _is_above(condition: _Condition, other: _Condition) -> bool:
    """True if `condition` stands above `other` in the same log."""
    return _lines_between(condition, other) > 0
