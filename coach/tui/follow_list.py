"""Chooses the jobs to follow besides those of open screens: the user's running jobs, and for the findings
also the user's jobs that ended within a day.

Each followed job means several files that are read repeatedly, so their number is limited. If more jobs run,
they take turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from coach.analysis.judging.ranking import RECENT_S
from coach.model.slurm.cluster import Job, is_final
from coach.model.training.run import Run
from coach.tui.context import Context
from coach.tui.screen_specs import Follows

MAX_FOLLOWED = 6
"""How many runs the list of runs follows for their findings, newest first."""
MAX_LIVE = 12
TURN_S = 300.0
MAX_ENDED = 4
"""How many ended jobs are read at a time. Each takes a few files and one judgement."""
SETTLE_S = 15.0
"""A job is judged once more this long after its end: a file server delivers the last lines of its nodes
late."""


@dataclass(frozen=True, slots=True)
class _Ended:
    """A job or run that has ended, with its end in Unix seconds."""

    target: str
    has_completed: bool
    ended_s: float | None
    """None if unknown."""


class FollowList:
    """Chooses the targets to follow. It searches each queue only once for the user's jobs, which may be tens
    of thousands."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._judged_s: dict[str, float] = {}
        """When each ended job was first judged, in Unix seconds of the data's clock."""
        self._settled: set[str] = set()
        """Ended jobs that need no further look."""
        self._own_jobs: tuple[Sequence[Job] | None, tuple[Job, ...]] = (None, ())

    def targets(self, follows: Follows, named: tuple[str, ...], before: tuple[str, ...]) -> tuple[str, ...]:
        """The targets to follow while a screen is on top. `named` are the screen's own; `before` were
        followed until it opened."""
        if follows is Follows.TARGETS:
            return named
        if follows is Follows.BEFORE:
            return tuple(dict.fromkeys((*named, *before)))
        return tuple(dict.fromkeys((*named, *self._own(follows))))

    def _own(self, follows: Follows) -> tuple[str, ...]:
        """The user's own runs and jobs, including those without an open screen."""
        context = self._context
        newest = sorted(context.snapshot.runs, key=lambda run: run.run_id, reverse=True)
        if follows is Follows.NEWEST_RUNS:
            return tuple(run.run_id for run in newest[:MAX_FOLLOWED])
        states = [(run, context.state_of(run)) for run in newest]
        active = [run.run_id for run, state in states if not is_final(state)]
        foreign = self._foreign()
        live = [*active, *(job.job_id for job in foreign if job.state == "RUNNING")]
        if len(live) > MAX_LIVE:
            start = int(context.now_s // TURN_S) * MAX_LIVE % len(live)
            live = [*live[start:], *live[:start]][:MAX_LIVE]
        ended = [_ended_job(job) for job in foreign if is_final(job.state)]
        if follows is Follows.RECENT_JOBS or self._can_read_foreign:
            ended += self._ended_within_a_day(states)
        return (*live, *self._to_be_read(ended)[:MAX_ENDED])

    def _to_be_read(self, ended: list[_Ended]) -> list[str]:
        """Jobs without a verdict, then jobs that need a second judgement."""
        context = self._context
        unsettled = [each for each in ended if not self._is_settled(each)]
        # Failed jobs come before completed ones; in both, the newest first, since the user is waiting for it.
        unsettled.sort(key=lambda each: (each.has_completed, -(each.ended_s or 0.0)))
        due = {each.target: None for each in unsettled}
        context.unread = [name for name in due if name not in context.found]
        judged = [name for name in due if name in context.found]
        return [*context.unread, *judged]

    def _ended_within_a_day(self, states: Sequence[tuple[Run, str | None]]) -> list[_Ended]:
        """Those that are not known to be settled."""
        context = self._context
        since_s = context.now_s - RECENT_S
        runs = [
            _Ended(run.run_id, state == "COMPLETED", run.ended_time_s)
            for run, state in states
            if run.run_id not in self._settled
            if (run.ended_time_s or 0.0) >= since_s and is_final(state)
        ]
        past = context.answers.past_jobs if self._can_read_foreign else ()
        recent = [each.job for each in past if not each.run_id and (each.job.end_time_s or 0.0) >= since_s]
        if not recent:
            return runs
        # Jobs that are still in the queue are judged from their row there.
        known = {run.job_id for run, _ in states}.union(context.jobs_by_id)
        return [*runs, *(_ended_job(job) for job in recent if job.job_id not in known)]

    def _is_settled(self, ended: _Ended) -> bool:
        """True once the job was judged later than SETTLE_S after its end. It then stays settled."""
        context, name = self._context, ended.target
        if name in self._settled or name in context.kept:
            return True
        if name in context.found and name in context.snapshot.diagnoses:
            judged_s = self._judged_s.setdefault(name, context.now_s)
            since_s = ended.ended_s if ended.ended_s is not None else judged_s
            if context.now_s - since_s > SETTLE_S:
                self._settled.add(name)
        return name in self._settled

    @property
    def _can_read_foreign(self) -> bool:
        """False for a recording: it holds only the files of the jobs that were followed while it was made."""
        return not self._context.mode.is_recorded

    def _foreign(self) -> tuple[Job, ...]:
        """The user's jobs in the queue that coach did not launch. Waiting jobs are left out: they have no
        files to read."""
        context = self._context
        if not self._can_read_foreign:
            return ()
        if self._own_jobs[0] is not context.snapshot.jobs:
            own = (
                job
                for job in context.snapshot.jobs
                if job.user == context.user
                and job.raw_job_id
                and (job.state == "RUNNING" or is_final(job.state))
            )
            self._own_jobs = (context.snapshot.jobs, tuple(own))
        numbers = {run.job_id for run in context.snapshot.runs}
        return tuple(
            job
            for job in self._own_jobs[1]
            if job.job_id not in numbers or context.run_of_job(job.job_id) is None
        )


def _ended_job(job: Job) -> _Ended:
    return _Ended(job.job_id, job.state == "COMPLETED", job.end_time_s)
