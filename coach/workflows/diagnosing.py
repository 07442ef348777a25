"""The rules, loaded when they are first needed: the first frame does not wait for a hundred patterns."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from coach.config import Settings
from coach.model.errors import UserError
from coach.model.finding import Diagnosis
from coach.model.history import History
from coach.model.log import Signature
from coach.model.snapshot import TargetSnapshot

if TYPE_CHECKING:
    from coach.rules.engine import Engine


class LazyEngine:
    """The engine with the rules of the user's settings. May be asked from several threads for its signatures."""

    def __init__(self, settings: Settings) -> None:
        self.problem: str | None = None
        """What is wrong with the settings of the rules; then all rules run with their defaults."""
        self._settings = settings
        self._engine: Engine | None = None
        self._lock = threading.Lock()

    def signatures(self) -> Sequence[Signature]:
        from coach.rules.registry import signatures

        return signatures(self._load().rules)

    def diagnose(self, snapshot: TargetSnapshot, history: History) -> Diagnosis:
        return self._load().diagnose(snapshot, history)

    def forget(self, targets: Iterable[str]) -> None:
        """Drop what is remembered about these targets."""
        if self._engine is not None:
            for target in targets:
                self._engine.forget(target)

    def _load(self) -> Engine:
        with self._lock:
            if self._engine is None:
                from coach.rules.engine import Engine
                from coach.rules.registry import build

                settings = self._settings
                try:
                    rules = build(settings.thresholds, settings.muted_rules, settings.origins)
                except UserError as problem:
                    self.problem, rules = problem.message, build()
                self._engine = Engine(rules)
            return self._engine
