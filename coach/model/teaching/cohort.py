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

STALLED_S = 180.0
"""A running run makes no progress if its last step is older than this, and older than STALLED_GAPS times the
longest time between its last steps."""
STALLED_GAPS = 5.0
_FIRST_GAP_S = 120.0
"""Taken for the time between two steps while the run has made only one."""


@dataclass(frozen=True, slots=True)
class OnLadder:
    """A run's place on a ladder that was launched as one group."""

    name: str
    group_id: str
    rung: int
    """Of two rungs of the ladder, the one with the smaller number comes first."""
    ratio: float | None
    """The least of the document's figure over the first rung; None: it states none, or it cannot be tested on
    these machines."""
    samples_per_s: float | None
    """The same of a figure in samples per second."""


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
    job_id: str | None = None
    step: int | None = None
    """The last step that its first rank recorded."""
    max_steps: int | None = None
    """None if the launch sets no number of steps."""
    last_step_time_s: float | None = None
    step_gap_s: float | None = None
    """The longest time between two of the last steps."""
    is_spoiled: bool = False
    """True for the run of a drill that ended otherwise than by its planted fault."""
    ladder: OnLadder | None = None
    """None for a run that is no rung."""
    rungs: tuple[Summary, ...] = ()
    """All runs of a ladder's group, if this one stands for them."""

    @property
    def is_finished(self) -> bool:
        """True for a recipe that completed without a critical finding, and for a drill that was solved."""
        if self.is_drill:
            return self.is_solved is True
        return self.state == "COMPLETED" and self.severity is not Severity.CRITICAL

    def waiting_s(self, now_s: float) -> float | None:
        """Seconds that the run has been pending; None for any other run."""
        if self.state != "PENDING" or self.created_time_s is None:
            return None
        return max(0.0, now_s - self.created_time_s)

    def silent_s(self, now_s: float) -> float | None:
        """Seconds since the last summary of a running run, if longer than `SILENT_S`; else None."""
        silent_s = now_s - self.updated_time_s
        return silent_s if self.state == "RUNNING" and silent_s > SILENT_S else None

    def last_step_s(self, now_s: float) -> float | None:
        """Seconds since the last step; None before the first one."""
        return None if self.last_step_time_s is None else max(0.0, now_s - self.last_step_time_s)

    def stalled_s(self, now_s: float) -> float | None:
        """Seconds since the last step of a run that makes no progress; else None.

        A silent run is not judged, for nobody knows whether it still runs, and a drill neither: its fault is
        planted.
        """
        age_s = self.last_step_s(now_s)
        if age_s is None or self.is_drill or self.state != "RUNNING" or self.silent_s(now_s) is not None:
            return None
        gap_s = _FIRST_GAP_S if self.step_gap_s is None else self.step_gap_s
        return age_s if age_s > max(STALLED_S, STALLED_GAPS * gap_s) else None


@dataclass(frozen=True, slots=True)
class Person:
    """One member of the cohort, with the newest run of each recipe and drill."""

    user: str
    uid: int | None
    """None for a name on the roster that has no account here."""
    is_expected: bool | None
    """True if the roster or the group lists the user; None if there is neither."""
    runs: tuple[Summary, ...] = ()
    best: Mapping[str, Summary] = field(default_factory=lambda: MappingProxyType({}))
    """Id of a newest run → the person's best run of the same recipe or drill, where that is an earlier
    one."""

    def best_of(self, newest: Summary) -> Summary:
        """The best run of the same recipe or drill; the newest itself if no earlier one is better."""
        return self.best.get(newest.run_id, newest)


@dataclass(frozen=True, slots=True)
class Count:
    """Number of people by their result in one recipe or drill. Each person counts once."""

    thing: str
    is_drill: bool
    num_finished: int
    """People with a completed run, or a solved drill."""
    num_active: int
    """People without either, whose newest run waits or runs, or whose drill is open."""
    num_failed: int
    """The others: their newest run has ended otherwise, or they gave the drill up."""


@dataclass(frozen=True, slots=True)
class Cohort:
    """The content of one cohort directory."""

    directory: str
    people: tuple[Person, ...]
    bad_files: tuple[str, ...] = ()
    """Unusable files, each with its problem."""
    left_out: Mapping[str | None, int] = field(default_factory=lambda: MappingProxyType({}))
    """Owner → number of skipped files. None: files of unknown owners, whose owner was not even looked up."""
    tickets: frozenset[tuple[int, str]] = frozenset()
    """The uid and the run of each ticket that lies in the directory."""

    @property
    def num_left_out(self) -> int:
        return sum(self.left_out.values())
