"""The queue row of a followed job that is not on the screens' lists: another user's job, or an ended one."""

from __future__ import annotations

from collections.abc import Iterable

from coach.model.reading import JobRow, Reading
from coach.model.slurm.cluster import is_final
from coach.sources.io import Io
from coach.sources.logs.job_outputs import OutputPaths

INTERVAL_S = 60.0


class JobRowSource:
    """Asks Slurm for the row of one job: once a minute if it is another user's and has not ended.

    Own jobs that are active are in the queue. For an ended job it also delivers the measurements of the
    site's jobstats, if accounting may be asked.
    """

    name = "row"

    def __init__(self, io: Io, job_id: str, paths: OutputPaths, user: str) -> None:
        self.interval_s = INTERVAL_S
        self._io = io
        self._job_id = job_id
        self._paths = paths
        self._user = user
        if paths.summaries is not None:
            paths.summaries.want([job_id])
        self._asked_s: float | None = None

    def poll(self) -> Iterable[Reading]:
        start_s = self._io.now()
        if self._is_old(start_s):
            self._paths.forget(self._job_id)
            self._asked_s = None
        if self._asked_s is None:
            self._asked_s = start_s
        job = self._paths.row(self._job_id)
        summaries = self._paths.summaries
        summary = summaries.of(self._job_id) if summaries is not None else None
        end_s = self._io.now()
        row = JobRow(self._job_id, job, summary)
        yield Reading(self.name, end_s, end_s - start_s, row, target=self._job_id)

    def _is_old(self, now_s: float) -> bool:
        known = self._paths.known(self._job_id)
        if self._asked_s is None or known is None or known.user == self._user or is_final(known.state):
            return False
        return not 0 <= now_s - self._asked_s < INTERVAL_S / 2
