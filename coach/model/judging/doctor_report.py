"""The doctor's report: one check per line, each with its remedy.

These are values, so that the screen, the text and the JSON show the same report, and one place decides the
exit status.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

LAUNCH = "launch"
"""The area of the checks that plan a launch."""


class CheckState(StrEnum):
    """The result of a check."""

    OK = "ok"
    WARNING = "warning"
    """The feature works, but something about it needs attention."""
    WRONG = "wrong"
    """A part of coach does not work here."""
    UNKNOWN = "unknown"
    """The check could not be made."""


OK, WARNING, WRONG, UNKNOWN = CheckState


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that the doctor checked."""

    area: str
    """The heading in the report: slurm, gpus, telemetry, launch, environments, roots, config, python,
    terminal."""
    what: str
    state: CheckState
    value: str | None = None
    """The value that was found; None if nothing was found."""
    because: str | None = None
    """The cause of the state, or its meaning."""
    todo: str | None = None
    """The remedy: a command that can be typed, where one exists."""
    is_needed: bool = True
    """True if a launch depends on it. If such a check is UNKNOWN, the doctor cannot tell whether launches
    work."""


@dataclass(frozen=True, slots=True)
class Report:
    """All checks, in reading order."""

    checks: tuple[Check, ...]
    duration_s: float

    @property
    def exit_status(self) -> int:
        """0: all is well. 1: something does not work here. 2: the doctor cannot tell."""
        if any(check.state is CheckState.WRONG for check in self.checks):
            return 1
        is_unknown = any(check.state is CheckState.UNKNOWN and check.is_needed for check in self.checks)
        return 2 if is_unknown else 0

    @property
    def verdict(self) -> str:
        """The exit status in words, with the names of the checks that decided it."""
        wrong = self._names(CheckState.WRONG)
        match self.exit_status:
            case 0 if warned := self._warned_launch():
                return f"nothing fails here, but a launch has a warning: {', '.join(warned)}"
            case 0:
                return "all well: a launch works here"
            case 1 if len(wrong) == 1:
                return f"one thing does not work here: {wrong[0]}"
            case 1:
                return f"{len(wrong)} things do not work here: {', '.join(wrong)}"
            case _:
                return (
                    f"cannot tell whether a launch works here: {', '.join(self._names(CheckState.UNKNOWN))}"
                )

    def _warned_launch(self) -> list[str]:
        """The checks of a launch that warn."""
        warned = (each for each in self.checks if each.area == LAUNCH and each.state is CheckState.WARNING)
        return [f"{each.area} ({each.what})" for each in warned]

    def _names(self, state: CheckState) -> list[str]:
        """The checks in this state that decide the exit status."""
        counts = (check for check in self.checks if check.is_needed or check.state is CheckState.WRONG)
        return [f"{check.area} ({check.what})" for check in counts if check.state is state]
