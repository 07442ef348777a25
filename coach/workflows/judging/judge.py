"""Judge a target: one order of steps for the commands, the screens, and a job's own verdict.

    rules → stacks → room on the disk → earlier runs → the site's advice → what a drill withholds

A recording, a comparison and a rehearsal judge a target by its own content alone: for them `Context.is_alone`
leaves out the three steps in the middle. The rules load when they are first needed: the first frame does not
wait for a hundred patterns.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from coach.analysis.teaching.withheld_findings import as_told
from coach.config import Advice, Settings
from coach.late import late
from coach.lookback.history import History
from coach.model.errors import UserError
from coach.model.judging.finding import SITE_ADVICE, Diagnosis, Finding, Fix
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import Signature
from coach.sources.io import Io
from coach.sources.runs.run_files import run_around

if TYPE_CHECKING:
    from coach.model.judging.verdict import PastRun
    from coach.rules.base import Rule
    from coach.rules.engine import Engine
    from coach.workflows.judging.earlier_runs import PastRuns
    from coach.workflows.judging.full_disk import FullDisk

if TYPE_CHECKING:
    from coach.launch import recipe
    from coach.rules import engine, registry, thresholds
    from coach.workflows.judging import earlier_runs, full_disk, rule_files, taken_stacks
else:
    recipe = late("coach.launch", "recipe")
    engine, registry, thresholds = late("coach.rules", "engine", "registry", "thresholds")
    earlier_runs, full_disk, rule_files, taken_stacks = late(
        "coach.workflows.judging", "earlier_runs", "full_disk", "rule_files", "taken_stacks"
    )


@dataclass(frozen=True, slots=True)
class ReadTarget:
    """All that was read of one target. `files` are paths that were named or found: one of them may belong to
    the run of an open drill."""

    snapshot: TargetSnapshot
    history: History
    files: Collection[Path] = ()


@dataclass(frozen=True, slots=True)
class Draft:
    """The diagnosis of a target by itself. `this` holds the facts that later runs need of it; None if they
    need none."""

    target: ReadTarget
    diagnosis: Diagnosis
    this: PastRun | None = None


def judge(target: ReadTarget, context: Context) -> Diagnosis:
    """The diagnosis that may be shown."""
    return among_others(by_itself(target, context), context)


def by_itself(target: ReadTarget, context: Context) -> Draft:
    """The first half of the steps. How the target ended is remembered: of several targets, each counts as an
    earlier run of the others."""
    muted = {rule.code for rule in registry.rule_classes()} - {rule.code for rule in context.engine.rules}
    # The lines of a muted rule are lines that nothing recognises, wherever they were read.
    hits = tuple(hit for hit in target.snapshot.log_hits if hit.rule not in muted)
    snapshot = replace(target.snapshot, log_hits=hits)
    if not context.is_alone:
        snapshot = taken_stacks.with_places(snapshot, target.history, context.settings)
    diagnosis = context.engine.diagnose(snapshot, target.history)
    if context.past is None or context.room is None:
        return Draft(target, diagnosis)
    this = context.past.note(snapshot, target.history, diagnosis)
    with_stacks = taken_stacks.with_stacks(diagnosis, snapshot, context.settings)
    return Draft(target, context.room.added_to(with_stacks, snapshot), this)


def among_others(draft: Draft, context: Context) -> Diagnosis:
    """The second half of the steps."""
    diagnosis, snapshot = draft.diagnosis, draft.target.snapshot
    if context.past is not None and draft.this is not None:
        past = context.past.findings(context.engine.rules, snapshot, draft.this)
        diagnosis = earlier_runs.joined(diagnosis, past)
    diagnosis = with_advice(diagnosis, context.settings.advice)
    diagnosis = as_told(diagnosis, snapshot.run, context.drills)
    for path in draft.target.files:
        diagnosis = as_told(diagnosis, run_around(context.io, path), context.drills)
    return diagnosis


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
    findings: list[Finding] = []
    for finding in diagnosis.findings:
        own = advice.get(finding.rule)
        if own is not None:
            title = SITE_ADVICE + (f"{own.text} ({own.url})" if own.url else own.text)
            finding = replace(finding, fixes=(*finding.fixes, Fix(title=title)))
        findings.append(finding)
    return replace(diagnosis, findings=tuple(findings))


class Context:
    """What a judgement needs beside its target: the rules, and the memory of conditions and of earlier runs.
    Several threads may ask for the signatures; one thread judges."""

    def __init__(
        self, settings: Settings, io: Io, rules: Sequence[Rule] | None = None, *, is_alone: bool = False
    ) -> None:
        """`rules`: None for those of the settings; a mistake in the settings is then the context's
        `problem`."""
        self.settings, self.io = settings, io
        self.problem: str | None = None
        """Why the settings of the rules are invalid; all rules then run with their defaults."""
        self.past: PastRuns | None = None
        """None until the rules are loaded, and for a target that is judged alone."""
        self.room: FullDisk | None = None
        self.drills: frozenset[str] = frozenset()
        self._rules = rules
        self.is_alone = is_alone
        self._engine: Engine | None = None
        self._is_settled = False
        self._lock = threading.Lock()

    def diagnose(self, snapshot: TargetSnapshot, history: History) -> Diagnosis:
        """Judge what the sources of a target have told so far."""
        return judge(ReadTarget(snapshot, history), self)

    def use(self, settings: Settings) -> None:
        """Use these settings from the next judgement on."""
        with self._lock:
            self.settings, self._is_settled = settings, False

    def signatures(self) -> Sequence[Signature]:
        """Signatures of all rules, muted ones too: if a rule is unmuted, the lines logged meanwhile are
        known."""
        try:
            added = rule_files.read(self.settings.rule_files).signatures
        except UserError:  # `engine` reports it
            added = ()
        return registry.signatures(registry.build(added=added))

    def forget(self, targets: Iterable[str]) -> None:
        """Drop everything remembered about these targets."""
        for target in targets if self._engine is not None else ():
            self.engine.forget(target)
            if self.past is not None:
                self.past.forget(target)

    @property
    def engine(self) -> Engine:
        """The engine with the rules of the newest settings."""
        with self._lock:
            if self._engine is None:
                self.drills = recipe.drill_names()
                self._engine = engine.Engine(())
                if not self.is_alone:
                    self.past = earlier_runs.PastRuns(self.settings)
                    self.room = full_disk.FullDisk(self.io)
            if not self._is_settled:
                self._engine.use(self._valid_rules())
                self._is_settled = True
            return self._engine

    def _valid_rules(self) -> Sequence[Rule]:
        self.problem = None
        if self._rules is not None:
            return self._rules
        try:
            return rules_of(self.settings)
        except UserError as problem:
            self.problem = problem.message
            return registry.build()
