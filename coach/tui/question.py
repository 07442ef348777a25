"""An answer that is asked for only when a screen needs it: kept with its time, so that opening the screen
again costs nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, TypeVar

from coach.lookback.node_past import NodePast
from coach.model.slurm.accounting import PastJob

T = TypeVar("T")

FRESH_S = 60.0
"""An answer younger than this is shown again instead of asked for."""
FAILURE_FRESH_S = 15.0
"""A failure younger than this is shown again: a screen that opens does not ask a silent controller at
once."""


class Question(StrEnum):
    """What is asked once, for everything at a time."""

    PLACE_IN_QUEUE = "place_in_queue"
    """What one's place in the queue depends on: a PlaceInQueue."""
    ALLOCATIONS = "allocations"
    """Which job has which GPU: a tuple of GpuAllocation."""
    STEP_USE = "step_use"
    """What Slurm measured of one's running jobs: StepUses."""
    PAST_JOBS = "past_jobs"
    """One's jobs that have ended: PastJobs."""
    FAILED_TODAY = "failed_today"
    """One's jobs that ended badly within a day, as coach remembers them: PastJobs. Slurm is asked nothing."""
    COHORT = "cohort"
    """What the runs of a course have shared: a Cohort."""


@dataclass(frozen=True, slots=True)
class Asked(Generic[T]):
    """The last answer, or the reason why it failed; `is_under_way` while the next one is waited for."""

    value: T | None = None
    error: str | None = None
    time_s: float | None = None
    is_under_way: bool = False
    failed_s: float | None = None
    """When it was asked last, if there was no answer."""

    def is_fresh(self, now_s: float) -> bool:
        if self.failed_s is not None and now_s - self.failed_s < FAILURE_FRESH_S:
            return True
        return self.time_s is not None and now_s - self.time_s < FRESH_S


@dataclass(slots=True)
class Answers:
    """The last answer to each question, and what Slurm tells of the present alone, for all screens."""

    by_question: dict[Question, Asked[Any]] = field(default_factory=dict)
    node_past: NodePast = field(default_factory=NodePast)
    """What nodes had allocated while coach was open."""

    @property
    def past_jobs(self) -> tuple[PastJob, ...]:
        """The newest first: all that ended lately once that was asked for, else those that coach saw fail."""
        told = self[Question.PAST_JOBS].value or self[Question.FAILED_TODAY].value
        return () if told is None else tuple(told.jobs)

    def __getitem__(self, question: Question) -> Asked[Any]:
        return self.by_question.get(question) or Asked()
