"""The offer of a fix as a value.

Kept apart from the code that makes it, so that a screen can name it without loading the launch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from coach.model.judging.finding import Finding, Fix
from coach.model.launching.launch import Plan
from coach.model.training.run import Checkpoint, Run
from coach.rules.advice.launched_with import saves_in_run_dir


@dataclass(frozen=True, slots=True)
class RelaunchOffer:
    """A fix, planned as a new launch and ready to submit, with its effect on the run that it comes from."""

    parent: Run
    finding: Finding
    fix: Fix
    plan: Plan
    diff: tuple[str, ...]
    """The parent's script against the child's: lines of a unified diff."""
    changes: tuple[tuple[str, str, str], ...]
    """What changes: (name, old value, new value)."""
    is_parent_active: bool
    parent_step: int | None
    """The newest step of the parent."""
    checkpoint: Checkpoint | None
    """The newest complete checkpoint of the parent."""
    lost: tuple[str, ...]
    """The work that an active parent loses when it is cancelled, and its torn checkpoints: lines for
    people."""

    commands: Mapping[str, tuple[str, ...]]
    """The exact commands of each choice for the parent: `cancel`, `keep`, `wait`. None for a choice that is
    not possible."""

    @property
    def may_save_elsewhere(self) -> bool:
        """True if the parent may write its checkpoints outside its run directory."""
        return not saves_in_run_dir(self.parent)

    @property
    def lines(self) -> tuple[str, ...]:
        """Each change as old → new, then the diff of the scripts."""
        return (*(f"{name}: {old} → {new}" for name, old, new in self.changes), *self.diff)
