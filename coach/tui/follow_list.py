"""Which jobs are followed though no screen of theirs is open: one's own that run, and for the findings also
those that ended within a day.

Each followed job is several files that are read again and again, so there is a limit; beyond it the jobs take
turns.
"""

from __future__ import annotations

from collections.abc import Sequence

from coach.analysis.judging.ranking import RECENT_S
from coach.model.slurm.cluster import Job, is_final
from coach.model.training.run import Run
from coach.tui.context import Context
from coach.tui.mode import Mode
from coach.tui.question import Question
from coach.tui.screen_specs import Follows

MAX_FOLLOWED = 6
"""Runs that the list of runs follows, newest first, to know their findings."""
MAX_LIVE = 12
TURN_S = 300.0
MAX_ENDED = 3
SETTLE_S = 15.0
"""Ended jobs are read once, MAX_ENDED at a time, until SETTLE_S after their first diagnosis: a log's last
lines are read when no more come."""


class FollowList:
    """Looks for the user's own jobs only once in each queue: everybody's jobs may be tens of thousands."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._judged_s: dict[str, float] = {}
        """When an ended job was judged first."""
        self._own_jobs: tuple[Sequence[Job] | None, tuple[Job, ...]] = (None, ())

    def targets(self, follows: Follows, named: tuple[str, ...], before: tuple[str, ...]) -> tuple[str, ...]:
        """What to follow while a screen is on top that names some targets; `before` it, others were
        followed."""
        if follows is Follows.TARGETS:
            return named
        if follows is Follows.BEFORE:
            return tuple(dict.fromkeys((*named, *before)))
        return tuple(dict.fromkeys((*named, *self._own(follows))))

    def _own(self, follows: Follows) -> tuple[str, ...]:
        """One's own runs and jobs, though no screen of theirs is open."""
        context = self._context
        newest = sorted(context.snapshot.runs, key=lambda run: run.run_id, reverse=True)
        if follows is Follows.NEWEST_RUNS:
            return tuple(run.run_id for run in newest[:MAX_FOLLOWED])
        active = [run.run_id for run in newest if not is_final(context.state_of(run))]
        foreign = self._foreign()
        live = [*active, *(job.job_id for job in foreign if job.state == "RUNNING")]
        if len(live) > MAX_LIVE:
            start = int(context.now_s // TURN_S) * MAX_LIVE % len(live)
            live = [*live[start:], *live[:start]][:MAX_LIVE]
        # A failed job is judged before the completed ones.
        ended = [job.job_id for job in sorted(foreign, key=_has_completed) if is_final(job.state)]
        if follows is Follows.RECENT_JOBS or self._can_read_foreign:
            ended += self._ended_within_a_day(newest)
        context.unread = [name for name in dict.fromkeys(ended) if not self._is_settled(name)]
        return (*live, *context.unread[:MAX_ENDED])

    def _ended_within_a_day(self, newest: Sequence[Run]) -> list[str]:
        context = self._context
        since_s = context.now_s - RECENT_S
        states = {run.run_id: context.state_of(run) for run in newest}
        ended = [run for run in newest if is_final(states[run.run_id])]
        ended.sort(key=lambda run: states[run.run_id] == "COMPLETED")
        told = context.answers[Question.PAST_JOBS].value
        past = told.jobs if told is not None and self._can_read_foreign else ()
        return [
            *(run.run_id for run in ended if (run.ended_time_s or 0.0) >= since_s),
            *(
                each.job.job_id
                for each in past
                if not each.run_id and (each.job.end_time_s or 0.0) >= since_s
            ),
        ]

    def _is_settled(self, name: str) -> bool:
        if name not in self._context.found:
            return False
        judged_s = self._judged_s.setdefault(name, self._context.clock())
        return self._context.clock() - judged_s > SETTLE_S

    @property
    def _can_read_foreign(self) -> bool:
        """A recording holds the files of the jobs that were followed then, and of no others."""
        return self._context.mode not in (Mode.REPLAY, Mode.DEMO)

    def _foreign(self) -> tuple[Job, ...]:
        """Own jobs in the queue that coach did not launch."""
        context = self._context
        if not self._can_read_foreign:
            return ()
        if self._own_jobs[0] is not context.snapshot.jobs:
            own = (job for job in context.snapshot.jobs if job.user == context.user and job.raw_job_id)
            self._own_jobs = (context.snapshot.jobs, tuple(own))
        numbers = {run.job_id for run in context.snapshot.runs}
        return tuple(
            job
            for job in self._own_jobs[1]
            if job.job_id not in numbers or context.run_of_job(job.job_id) is None
        )


def _has_completed(job: Job) -> bool:
    return job.state == "COMPLETED"
