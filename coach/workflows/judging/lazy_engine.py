"""Load the rules when they are first needed: the first frame does not wait for a hundred patterns."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from coach.analysis.teaching.withheld_findings import as_told
from coach.config import Advice, Settings
from coach.late import late
from coach.lookback.history import History
from coach.model.errors import UserError
from coach.model.judging.finding import SITE_ADVICE, Diagnosis, Finding, Fix
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import Signature

if TYPE_CHECKING:
    from coach.rules.base import Rule
    from coach.rules.engine import Engine
    from coach.workflows.judging.earlier_runs import PastRuns

if TYPE_CHECKING:
    from coach.launch import recipe
    from coach.rules import engine, registry, thresholds
    from coach.workflows.judging import earlier_runs, rule_files
else:
    recipe = late("coach.launch", "recipe")
    engine, registry, thresholds = late("coach.rules", "engine", "registry", "thresholds")
    earlier_runs, rule_files = late("coach.workflows.judging", "earlier_runs", "rule_files")


def rules_of(settings: Settings) -> tuple[Rule, ...]:
    """The rules that may fire under these settings. Raises UserError for an unknown rule or threshold, and
    for a file of rules that cannot be read."""
    added = rule_files.read(settings.rule_files)
    thresholds_ = {**added.thresholds, **settings.thresholds}
    rules = registry.build(thresholds_, settings.muted_rules, settings.origins, added.signatures)
    codes = [rule.code for rule in registry.rule_classes()]
    for code in settings.advice:
        thresholds.check_codes(
            [code], codes, f"advice.{code}", thresholds.place_of(settings.origins, f"advice.{code}")
        )
    return rules


def thresholds_of(settings: Settings, code: str) -> Mapping[str, float] | None:
    """The thresholds of a rule that the config or a file of rules sets; None if none does. A file that cannot
    be read sets none, as for the screens."""
    if code in settings.thresholds:
        return settings.thresholds[code]
    try:
        return rule_files.read(settings.rule_files).thresholds.get(code)
    except UserError:
        return None


def with_advice(diagnosis: Diagnosis, advice: Mapping[str, Advice]) -> Diagnosis:
    """The diagnosis; each finding ends with the site's advice for its rule, as its last fix."""
    if not any(finding.rule in advice for finding in diagnosis.findings):
        return diagnosis
    return replace(diagnosis, findings=tuple(_advised(finding, advice) for finding in diagnosis.findings))


def _advised(finding: Finding, advice: Mapping[str, Advice]) -> Finding:
    said = advice.get(finding.rule)
    if said is None:
        return finding
    title = SITE_ADVICE + (f"{said.text} ({said.url})" if said.url else said.text)
    return replace(finding, fixes=(*finding.fixes, Fix(title=title)))


class LazyEngine:
    """The engine with the rules of the user's settings. Several threads may ask for its signatures."""

    def __init__(self, settings: Settings, *, has_past: bool = False) -> None:
        """`has_past`: add findings about earlier runs; False for a recording, which shows only its own
        content."""
        self.problem: str | None = None
        """Why the settings of the rules are invalid; all rules then run with their defaults."""
        self._settings = settings
        self._engine: Engine | None = None
        self._has_past = has_past
        self._past: PastRuns | None = None
        self._is_settled = False
        self._drills: frozenset[str] | None = None
        self._lock = threading.Lock()

    def use(self, settings: Settings) -> None:
        """Use these settings from the next diagnosis on."""
        with self._lock:
            self._settings, self._is_settled = settings, False

    def signatures(self) -> Sequence[Signature]:
        """Signatures of all rules, muted ones too: if a rule is unmuted, the lines logged meanwhile are
        known."""
        try:
            added = rule_files.read(self._settings.rule_files).signatures
        except UserError:  # `diagnose` reports it
            added = ()
        return registry.signatures(registry.build(added=added))

    def diagnose(self, snapshot: TargetSnapshot, history: History) -> Diagnosis:
        loaded = self._load()
        if self._drills is None:
            self._drills = recipe.drill_names()
        diagnosis = loaded.diagnose(snapshot, history)
        if self._past is not None:
            diagnosis = self._past.judge(loaded.rules, snapshot, history, diagnosis)
        return as_told(with_advice(diagnosis, self._settings.advice), snapshot.run, self._drills)

    def forget(self, targets: Iterable[str]) -> None:
        """Drop everything remembered about these targets."""
        if self._engine is not None:
            for target in targets:
                self._engine.forget(target)
                if self._past is not None:
                    self._past.forget(target)

    def _load(self) -> Engine:
        with self._lock:
            if self._engine is None or not self._is_settled:
                try:
                    self.problem, rules = None, rules_of(self._settings)
                except UserError as problem:
                    self.problem, rules = problem.message, registry.build()
                if self._engine is None:
                    self._engine = engine.Engine(rules)
                    self._past = earlier_runs.PastRuns(self._settings) if self._has_past else None
                else:
                    self._engine.use(rules)
                self._is_settled = True
            return self._engine
