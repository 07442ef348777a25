"""The members of a course, and the summaries that their runs have shared.

Every text except the uid comes from other people's files: treat it as hostile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from coach.model.judging.finding import Severity

SILENT_S = 180.0
"""An active run shares a summary every 30 s. After this many seconds without one, nobody knows whether it
still runs."""


@dataclass(frozen=True, slots=True)
class Summary:
    """The shared summary of one run. Times are epoch seconds."""

    uid: int
    """Owner of the file: the only value that nobody can forge."""
    run_id: str
    thing: str
    """The recipe or the drill."""
    is_drill: bool
    state: str | None
    samples_per_s: float | None
    is_judged: bool
    """True if coach has judged the run and may share the result."""
    code: str | None
    """Code of the primary finding; None without a finding or a judgement."""
    severity: Severity | None
    is_solved: bool | None
    """For a drill: True is solved, False is given up, None is open."""
    created_time_s: float | None
    started_time_s: float | None
    ended_time_s: float | None
    updated_time_s: float

    def waiting_s(self, now_s: float) -> float | None:
        """Seconds that the run has been pending; None for any other run."""
        if self.state != "PENDING" or self.created_time_s is None:
            return None
        return max(0.0, now_s - self.created_time_s)

    def silent_s(self, now_s: float) -> float | None:
        """Seconds since the last summary of a running run, if longer than `SILENT_S`; else None."""
        silent_s = now_s - self.updated_time_s
        return silent_s if self.state == "RUNNING" and silent_s > SILENT_S else None


@dataclass(frozen=True, slots=True)
class Person:
    """One member of the cohort, with the newest run of each recipe and drill."""

    user: str
    uid: int | None
    """None for a name on the roster that has no account here."""
    is_expected: bool | None
    """True if the roster or the group lists the user; None if there is neither."""
    runs: tuple[Summary, ...] = ()


@dataclass(frozen=True, slots=True)
class Cohort:
    """The content of one cohort directory."""

    directory: str
    people: tuple[Person, ...]
    bad_files: tuple[str, ...] = ()
    """Unusable files, each with its problem."""
    left_out: Mapping[str | None, int] = field(default_factory=lambda: MappingProxyType({}))
    """Owner → number of skipped files. None: files of unknown owners, whose owner was not even looked up."""

    @property
    def num_left_out(self) -> int:
        return sum(self.left_out.values())
