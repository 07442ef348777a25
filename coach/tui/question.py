"""Answers that are asked for only when a screen needs them. Each is kept with its time, so that opening the
screen again costs nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, TypeVar

from coach.lookback.node_past import NodePast
from coach.model.slurm.accounting import PastJob

T = TypeVar("T")

FRESH_S = 60.0
"""A younger answer is shown again, and Slurm is not asked."""
FAILURE_FRESH_S = 15.0
"""A younger failure is shown again, so that opening a screen does not ask an unreachable controller again at
once."""


class Question(StrEnum):
    """A question whose one answer serves all jobs and screens."""

    PLACE_IN_QUEUE = "place_in_queue"
    """The data that decide the place of the user's jobs in the queue: a PlaceInQueue."""
    RESERVATIONS = "reservations"
    """The reservations that the user may see: a Part with a tuple of Reservation."""
    ALLOCATIONS = "allocations"
    """Which job has which GPU: a tuple of GpuAllocation."""
    STEP_USE = "step_use"
    """Slurm's measurements of the user's running jobs: StepUses."""
    PAST_JOBS = "past_jobs"
    """The user's ended jobs: PastJobs."""
    REMEMBERED = "remembered"
    """The user's ended jobs and their kept verdicts, from coach's memory: PastJobs. Slurm is not asked."""
    COHORT = "cohort"
    """The data that the runs of a course share: a Cohort."""


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """The last answer, or the reason of the failure. `is_under_way`: the next answer has not arrived."""

    value: T | None = None
    error: str | None = None
    time_s: float | None = None
    is_under_way: bool = False
    failed_s: float | None = None
    """When the last question failed; None if it was answered."""

    def is_fresh(self, now_s: float) -> bool:
        if self.failed_s is not None and now_s - self.failed_s < FAILURE_FRESH_S:
            return True
        return self.time_s is not None and now_s - self.time_s < FRESH_S


@dataclass(slots=True)
class Answers:
    """The last answer to each question, and a history of values that Slurm reports only for the current time;
    for all screens."""

    by_question: dict[Question, Answer[Any]] = field(default_factory=dict)
    node_past: NodePast = field(default_factory=NodePast)
    """The allocation of nodes since coach was opened."""

    @property
    def past_jobs(self) -> tuple[PastJob, ...]:
        """Ended jobs, newest first: those of the last answer of Slurm, and those that coach remembers."""
        ended, own = self[Question.PAST_JOBS].value, self[Question.REMEMBERED].value
        jobs = () if ended is None else tuple(ended.jobs)
        known = {past.job.job_id for past in jobs}
        more = () if own is None else tuple(past for past in own.jobs if past.job.job_id not in known)
        if not jobs or not more:
            return jobs or more
        return tuple(sorted((*more, *jobs), key=lambda past: -(past.job.end_time_s or 0.0)))

    def __getitem__(self, question: Question) -> Answer[Any]:
        return self.by_question.get(question) or Answer()
