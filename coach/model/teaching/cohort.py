"""The people of a course, and what each of their runs has shared about itself.

Every word here but the user's number was written by somebody else, who may have written anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from coach.model.judging.finding import Severity

SILENT_S = 180.0
"""A run that goes on shares every half minute: after so long without a word nobody knows whether it still
does."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What one run has shared. Times are epoch seconds."""

    uid: int
    """Whose file it is: all that can be relied on."""
    run_id: str
    thing: str
    """The recipe, or the drill."""
    is_drill: bool
    state: str | None
    samples_per_s: float | None
    is_judged: bool
    """Whether coach has looked, and may tell."""
    code: str | None
    """The primary finding's; None where nothing was found, or nobody has looked."""
    severity: Severity | None
    is_solved: bool | None
    """Of a drill: False is given up, None not settled."""
    created_time_s: float | None
    started_time_s: float | None
    ended_time_s: float | None
    updated_time_s: float

    def waiting_s(self, now_s: float) -> float | None:
        """How long it has waited to start; None for a run that does not wait."""
        if self.state != "PENDING" or self.created_time_s is None:
            return None
        return max(0.0, now_s - self.created_time_s)

    def silent_s(self, now_s: float) -> float | None:
        """How long a run that should go on has said nothing; None for one that speaks, or has no more to
        say."""
        silent_s = now_s - self.updated_time_s
        return silent_s if self.state == "RUNNING" and silent_s > SILENT_S else None


@dataclass(frozen=True, slots=True)
class Person:
    """One of the cohort. Of every recipe and drill the newest run is kept."""

    user: str
    uid: int | None
    """None for a name of the roster without an account here."""
    is_expected: bool | None
    """Whether the roster or the group has him; None where there is neither."""
    runs: tuple[Summary, ...] = ()


@dataclass(frozen=True, slots=True)
class Cohort:
    """All that one directory tells."""

    directory: str
    people: tuple[Person, ...]
    bad_files: tuple[str, ...] = ()
    """Each with what is wrong with it."""
    left_out: Mapping[str | None, int] = field(default_factory=lambda: MappingProxyType({}))
    """Files that were not looked at, by their owner; None: by nobody known, as even their owner was not
    looked up."""

    @property
    def num_left_out(self) -> int:
        return sum(self.left_out.values())
