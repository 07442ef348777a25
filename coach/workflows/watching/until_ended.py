"""Follow runs and jobs until the last one has ended: the screens' session, without a screen."""

from __future__ import annotations

import queue
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from coach.analysis.jobs.watched_jobs import News, WatchedJobs, active_names
from coach.config import Settings
from coach.model.errors import UserError
from coach.model.snapshot import Snapshot, Watch
from coach.sources.io import Io, SystemIo, scrubbed_environment
from coach.sources.machine.user import user_name
from coach.workflows.judging.kept_verdicts import verdict_of
from coach.workflows.judging.targets import TargetKind, resolve_target
from coach.workflows.watching.live_session import WatchSession, live_session

MAX_JUDGED = 8
"""Runs and jobs that are judged while they run; only the state of any more is followed."""
_CLOSE_S = 600.0
"""Seconds for which the pace is that of a person at a screen; after that, of a screen nobody touches."""
_LISTS = ("jobs", "runs")


class EndWatch:
    """Waits for the user's runs and jobs."""

    def __init__(
        self, names: Sequence[str], settings: Settings, backend: str, env: Mapping[str, str]
    ) -> None:
        """`names` are a person's words; empty: all active runs and jobs. Raises UserError for a name that
        is neither a run nor a job."""
        self._io = SystemIo(scrubbed_environment(env), timeout_s=settings.slurm_timeout_s)
        self._names = [_name(text, settings, self._io, backend) for text in names]
        self._settings = settings
        self._backend = backend
        self._env = env
        self._watched: WatchedJobs | None = None

    @property
    def num_left(self) -> int:
        """Number of runs and jobs not known to have ended."""
        return self._watched.num_left if self._watched is not None else len(self._names)

    def verdict(self, name: str) -> Mapping[str, Any]:
        """The verdict of an ended run or job: the kept one, or a new one, which is then kept. Raises
        UserError."""
        return verdict_of(name, self._settings, self._io, self._backend)[0]

    def follow(self, tell: Callable[[News], object], tell_problem: Callable[[str | None], object]) -> None:
        """Return when the last one has ended. `tell` gets the news as they arrive; `tell_problem` gets why
        Slurm does not answer, and None when it answers again."""
        pictures: queue.SimpleQueue[Snapshot] = queue.SimpleQueue()
        session = live_session(self._settings, self._backend, self._env)
        session.watch(Watch(all_jobs=False))
        session.start(pictures.put)
        try:
            self._follow(session, pictures, tell, tell_problem)
        finally:
            session.stop()

    def _follow(
        self,
        session: WatchSession,
        pictures: queue.SimpleQueue[Snapshot],
        tell: Callable[[News], object],
        tell_problem: Callable[[str | None], object],
    ) -> None:
        begun_s: float | None = None
        problem: str | None = None
        while self._watched is None or not self._watched.is_done:
            picture = pictures.get()
            if (now := _problem(picture)) != problem:
                problem = now
                tell_problem(problem)
            if not _is_complete(picture):
                continue
            if self._watched is None:
                names = self._names or active_names(picture, user_name())
                self._watched = WatchedJobs(names)
                session.watch(Watch(all_jobs=False, targets=tuple(names[:MAX_JUDGED])))
            begun_s = begun_s if begun_s is not None else picture.now_s
            session.attend(0.0, is_focused=picture.now_s - begun_s < _CLOSE_S, is_run_open=False)
            for each in self._watched.news(picture):
                tell(each)


def _name(text: str, settings: Settings, io: Io, backend: str) -> str:
    """The run's id if coach launched the job, else the job's id."""
    target = resolve_target(text, settings, io, backend, user_name())
    if target.kind is TargetKind.RUN and target.path is not None:
        if target.path.parent != settings.runs_root:
            raise UserError(f"{text}: not below {settings.runs_root}", "name one of `coach runs`")
        return target.path.name
    if target.kind in (TargetKind.JOB, TargetKind.PARTS):
        return text
    raise UserError(
        f"{text}: a file has no end to wait for", "name a run or a job; `coach why FILE` diagnoses it"
    )


def _is_complete(picture: Snapshot) -> bool:
    """True if the queue and the runs have been read once."""
    known = (picture.sources.get(name) for name in _LISTS)
    return all(status is not None and status.data_time_s is not None for status in known)


def _problem(picture: Snapshot) -> str | None:
    status = picture.sources.get("jobs")
    return status.error if status is not None else None
