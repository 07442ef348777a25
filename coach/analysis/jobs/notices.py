"""What of one's own jobs is worth interrupting somebody for: a start, an end, a finding. Pure.

The screens tell it beside the screen on top: as a toast, a bell, a notification of the terminal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from coach.analysis.jobs.watched_jobs import News, WatchedJobs, active_names
from coach.model.judging.finding import Diagnosis
from coach.model.slurm.cluster import has_failed
from coach.model.snapshot import Snapshot

CAUSE_S = 15.0
"""The end of a job that failed is told with its cause, if that is known within this time."""
MOST_TOLD = 3
"""More at once are told as one."""
_QUEUE = "jobs"


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing to tell. `name` is a run id or a job id; of several, None."""

    name: str | None
    words: str
    is_bad: bool


class Notices:
    """Goes from one picture to the next. What was so when coach opened is no news."""

    def __init__(self, user: str) -> None:
        self._user = user
        self._watched: dict[str, WatchedJobs] = {}
        self._held: dict[str, News] = {}
        """Jobs that failed, until their cause is known."""
        self._has_begun = False

    @property
    def num_watched(self) -> int:
        """How many of the user's jobs wait or run."""
        return len(self._watched)

    def notices(self, picture: Snapshot) -> list[Notice]:
        """What is new in this picture. Several at once are one."""
        status = picture.sources.get(_QUEUE)
        if status is None or status.data_time_s is None:
            return []
        for name in active_names(picture, self._user):
            if name not in self._watched:
                self._watched[name] = WatchedJobs([name])
                if not self._has_begun:
                    self._watched[name].news(picture)
        self._has_begun = True
        return _together([*self._told(picture), *self._causes(picture)])

    def _told(self, picture: Snapshot) -> Iterator[Notice]:
        for name, watched in tuple(self._watched.items()):
            for each in watched.news(picture):
                if each.has_ended and each.state is not None and has_failed(each.state):
                    self._held[each.name] = each
                elif each.has_ended or each.state == "RUNNING" or each.rule is not None:
                    yield Notice(each.name, each.words, each.rule is not None)
            if watched.is_done:
                del self._watched[name]

    def _causes(self, picture: Snapshot) -> Iterator[Notice]:
        for name, each in tuple(self._held.items()):
            cause = _cause(picture.diagnoses.get(name))
            if cause is not None or picture.now_s - each.time_s >= CAUSE_S:
                del self._held[name]
                yield Notice(name, each.words if cause is None else f"{each.words}: {cause}", True)


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
