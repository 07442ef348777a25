"""Choose the events of one's own jobs worth an interruption: a start, an end, a finding. Pure.

The screens show them as a toast, a bell, or a notification of the terminal. Each snapshot is read once,
however many jobs it has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from coach.model.judging.finding import Diagnosis, Severity
from coach.model.slurm.cluster import has_failed, is_final
from coach.model.snapshot import Snapshot

CAUSE_S = 15.0
"""Seconds. The end of a failed job is reported with its cause, if the cause is found within this time."""
MOST_TOLD = 3
"""More notices at once are combined into one."""
_QUEUE = "jobs"


@dataclass(frozen=True, slots=True)
class Notice:
    """One notice. `name` is a run id or a job id; None for several jobs."""

    name: str | None
    words: str
    is_bad: bool


@dataclass(frozen=True, slots=True)
class _Standing:
    state: str
    nodes: str | None
    end_time_s: float | None

    @property
    def words(self) -> str:
        return f"{self.state} on {self.nodes}" if self.nodes and not is_final(self.state) else self.state


@dataclass(frozen=True, slots=True)
class _Held:
    """The end of a failed job, held back until its cause is known."""

    state: str
    since_s: float


class Notices:
    """Compares each snapshot with the one before. The state at coach's start is not news."""

    def __init__(self, user: str) -> None:
        self._user = user
        self._standings: Mapping[str, _Standing] = {}
        self._begun_s: float | None = None
        self._seen: tuple[object, object] | None = None
        """Jobs and runs of the previous snapshot."""
        self._held: dict[str, _Held] = {}
        self._findings: dict[str, frozenset[str]] = {}

    def notices(self, picture: Snapshot) -> list[Notice]:
        """The news of this snapshot. Several at once become one notice."""
        if not _is_queue_known(picture):
            return []
        is_first = self._begun_s is None
        changes, findings = list(self._changes(picture)), list(self._new_findings(picture))
        return _together([*changes, *([] if is_first else findings), *self._causes(picture)])

    def _changes(self, picture: Snapshot) -> Iterator[Notice]:
        seen = self._seen
        if seen is not None and seen[0] is picture.jobs and seen[1] is picture.runs:
            return
        before, begun_s = self._standings, self._begun_s
        self._seen, self._standings = (picture.jobs, picture.runs), _standings(picture, self._user)
        if begun_s is None:
            self._begun_s = picture.now_s
            return
        for name, now in self._standings.items():
            last = before.get(name)
            if last is None or last.state != now.state:
                yield from self._news_of(name, last, now, picture.now_s, begun_s)

    def _news_of(
        self, name: str, last: _Standing | None, now: _Standing, now_s: float, begun_s: float
    ) -> Iterator[Notice]:
        if not is_final(now.state):
            if now.state == "RUNNING":
                yield Notice(name, now.words, is_bad=False)
            return
        self._findings.pop(name, None)
        is_old = last is None and (now.end_time_s is None or now.end_time_s < begun_s)
        if is_old or (last is not None and is_final(last.state)):
            return
        if has_failed(now.state):
            self._held[name] = _Held(now.state, now_s)
        else:
            yield Notice(name, now.state, is_bad=False)

    def _new_findings(self, picture: Snapshot) -> Iterator[Notice]:
        """Causes above info of running jobs. Once a process has ended, the verdict waits until Slurm reports
        the end."""
        for name, diagnosis in picture.diagnoses.items():
            standing, target = self._standings.get(name), picture.targets.get(name)
            has_ended = target is not None and target.exit is not None
            if standing is None or is_final(standing.state) or has_ended:
                continue
            found = [
                each
                for each in diagnosis.findings
                if each.severity > Severity.INFO and each.consequence_of is None
            ]
            known = self._findings.get(name, frozenset())
            self._findings[name] = frozenset(each.rule for each in found)
            for each in found:
                if each.rule not in known:
                    words = f"{each.severity.word} {each.rule}: {each.summary}"
                    yield Notice(name, words, is_bad=True)

    def _causes(self, picture: Snapshot) -> Iterator[Notice]:
        for name, held in tuple(self._held.items()):
            cause = _cause(picture.diagnoses.get(name))
            if cause is not None or picture.now_s - held.since_s >= CAUSE_S:
                del self._held[name]
                yield Notice(name, held.state if cause is None else f"{held.state}: {cause}", True)


def has_active_jobs(picture: Snapshot, user: str) -> bool:
    """True as soon as a job of the user waits or runs."""
    return any(job.user == user and not is_final(job.state) for job in picture.jobs)


def notice_facts(notice: Notice) -> Mapping[str, str]:
    """The environment variables for the user's own command; without a name for several jobs."""
    return {
        "COACH_JOB": notice.name or "",
        "COACH_NOTICE": notice.words,
        "COACH_NOTICE_IS_BAD": "1" if notice.is_bad else "0",
    }


def _is_queue_known(picture: Snapshot) -> bool:
    status = picture.sources.get(_QUEUE)
    return status is not None and status.data_time_s is not None


def _standings(picture: Snapshot, user: str) -> Mapping[str, _Standing]:
    """The user's runs, and his jobs that belong to no run."""
    jobs = {job.job_id: job for job in picture.jobs if job.user == user}
    found: dict[str, _Standing] = {}
    of_runs = set()
    for run in picture.runs:
        job_id = run.job_id or run.run_id
        of_runs.add(job_id)
        if run.state is not None:
            job = jobs.get(job_id)
            nodes = job.nodes if job is not None and job.state == run.state else None
            found[run.run_id] = _Standing(run.state, nodes, run.ended_time_s)
    for job_id, job in jobs.items():
        if job_id not in of_runs:
            found[job_id] = _Standing(job.state, job.nodes, job.end_time_s)
    return found


def _cause(diagnosis: Diagnosis | None) -> str | None:
    if diagnosis is None or not diagnosis.findings:
        return None
    first = diagnosis.findings[0]
    return f"{first.rule} {first.summary}"


def _together(notices: Sequence[Notice]) -> list[Notice]:
    if len(notices) <= MOST_TOLD:
        return list(notices)
    num_bad = sum(each.is_bad for each in notices)
    words = f"{len(notices)} of your jobs have news"
    return [Notice(None, f"{words}, {num_bad} of it bad" if num_bad else words, num_bad > 0)]
