"""Report the news of runs and jobs whose end somebody waits for. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from coach.analysis.queueing.arrays import group_id
from coach.model.judging.finding import Severity
from coach.model.slurm.cluster import Job, is_final
from coach.model.snapshot import Snapshot

GONE_S = 60.0
"""Seconds to wait for a job that neither the queue nor its run reports: an answer of the queue may be this
old."""
_QUEUE = "jobs"


@dataclass(frozen=True, slots=True)
class News:
    """One line of news. `name` is a run id, or a job id as squeue prints it."""

    time_s: float
    name: str
    words: str
    has_ended: bool = False


@dataclass(frozen=True, slots=True)
class _Standing:
    name: str
    state: str | None
    words: str


class WatchedJobs:
    """Follows names from one snapshot to the next, and reports the changes."""

    def __init__(self, names: Sequence[str]) -> None:
        """`names` are run ids and job ids; an array's id means all its tasks."""
        self._names = tuple(dict.fromkeys(names))
        self._told: dict[str, _Standing] = {}
        self._findings: dict[str, frozenset[str]] = {}
        self._gone_since_s: dict[str, float] = {}
        self._done: set[str] = set()

    @property
    def is_done(self) -> bool:
        """True when the last one has ended."""
        return self._done.issuperset(self._names)

    @property
    def num_left(self) -> int:
        """How many of the names have not ended."""
        return len(self._names) - len(self._done)

    def news(self, picture: Snapshot) -> list[News]:
        """The changes from the previous snapshot to this one, in the order of the names."""
        return [each for name in self._names for each in self._news_of(name, picture)]

    def _news_of(self, name: str, picture: Snapshot) -> Iterator[News]:
        standings = _standings(name, picture)
        known = [each for each in standings if each.state is not None]
        if not known:
            yield from self._note_gone(name, picture)
            return
        self._gone_since_s.pop(name, None)
        for each in known:
            if each != self._told.get(each.name):
                self._told[each.name] = each
                yield News(picture.now_s, each.name, each.words, is_final(each.state))
        if all(is_final(each.state) for each in known):
            self._done.add(name)
        else:
            self._done.discard(name)  # it was requeued
            yield from self._new_findings(name, picture)

    def _note_gone(self, name: str, picture: Snapshot) -> Iterator[News]:
        queue = picture.sources.get(_QUEUE)
        if name in self._done or queue is None or queue.data_time_s is None or queue.error is not None:
            return
        since_s = self._gone_since_s.setdefault(name, picture.now_s)
        if picture.now_s - since_s >= GONE_S:
            self._done.add(name)
            yield News(picture.now_s, name, "Slurm does not know it any more", True)

    def _new_findings(self, name: str, picture: Snapshot) -> Iterator[News]:
        """Findings above info that are new; a finding that disappeared and came back is new again.

        Once a process has ended, the verdict waits until Slurm reports the end.
        """
        target = picture.targets.get(name)
        if target is not None and target.exit is not None:
            return
        diagnosis = picture.diagnoses.get(name)
        found = [each for each in diagnosis.findings if each.severity > Severity.INFO] if diagnosis else []
        before = self._findings.get(name, frozenset())
        self._findings[name] = frozenset(each.rule for each in found)
        for each in found:
            if each.rule not in before:
                words = f"{each.severity.word} {each.rule}: {each.summary}"
                yield News(picture.now_s, name, words)


def active_names(picture: Snapshot, user: str) -> tuple[str, ...]:
    """The user's active runs, and his active jobs that coach did not launch, an array as one."""
    runs = [run for run in picture.runs if run.state is not None and not is_final(run.state)]
    of_runs = {run.job_id for run in picture.runs} | {run.run_id for run in picture.runs}
    jobs = [
        group_id(job.job_id) if "_" in job.job_id else job.job_id
        for job in picture.jobs
        if job.user == user and not is_final(job.state) and job.job_id not in of_runs
    ]
    return tuple(dict.fromkeys([*(run.run_id for run in runs), *jobs]))


def _standings(name: str, picture: Snapshot) -> list[_Standing]:
    run = next((run for run in picture.runs if run.run_id == name), None)
    if run is not None:
        row = next((job for job in picture.jobs if job.job_id == (run.job_id or run.run_id)), None)
        return [_Standing(name, run.state, _words(run.state, row))]
    rows = [job for job in picture.jobs if name in (job.job_id, group_id(job.job_id))]
    target = picture.targets.get(name)
    if not rows and target is not None and target.job is not None:
        rows = [target.job]
    return [_Standing(job.job_id, job.state, _words(job.state, job)) for job in rows]


def _words(state: str | None, job: Job | None) -> str:
    """For example `PENDING (Priority)` or `RUNNING on node[1-2]`."""
    if job is None or state != job.state:
        return state or ""
    if state == "PENDING" and job.reason:
        return f"{state} ({job.reason})"
    return f"{state} on {job.nodes}" if state == "RUNNING" and job.nodes else state
