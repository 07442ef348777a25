"""What the doctor says of this place: one check per line, each with what to do.

Values only, so that the screen, the text and the JSON show the same report, and the exit status is decided in
one place.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class CheckState(StrEnum):
    """How a check came out."""

    OK = "ok"
    WARNING = "warning"
    """It works; something about it deserves a look."""
    WRONG = "wrong"
    """Something of coach does not work here."""
    UNKNOWN = "unknown"
    """It could not be found out."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    area: str
    """The heading it stands under: slurm, gpus, telemetry, launch, environments, roots, config, python,
    terminal."""
    what: str
    state: CheckState
    value: str | None = None
    """What was found; None when nothing was."""
    because: str | None = None
    """Why it is in this state, or what it means."""
    todo: str | None = None
    """What to do about it, ready to be typed where possible."""
    is_needed: bool = True
    """Whether the main job, a launch with Enter, hangs on it: if so, not knowing it means not being able to
    tell."""


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that was looked at, in the order to be read."""

    checks: tuple[Check, ...]
    duration_s: float

    @property
    def exit_status(self) -> int:
        """0 all well, 1 something does not work here, 2 cannot tell."""
        if any(check.state is CheckState.WRONG for check in self.checks):
            return 1
        is_unknown = any(check.state is CheckState.UNKNOWN and check.is_needed for check in self.checks)
        return 2 if is_unknown else 0

    @property
    def verdict(self) -> str:
        """The exit status in words, with the names of what decided it."""
        wrong = self._names(CheckState.WRONG)
        match self.exit_status:
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

    def _names(self, state: CheckState) -> list[str]:
        """The checks in this state that count."""
        counts = (check for check in self.checks if check.is_needed or check.state is CheckState.WRONG)
        return [f"{check.area} ({check.what})" for check in counts if check.state is state]
