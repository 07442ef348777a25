"""Keep the records of runs small while the screens are open, a little at each look.

This is a source like the others, in a thread of its own, because thinning reads many megabytes and a file
system may hang. Each look makes a bounded number of calls to the file server, and thins at most one part of
one run. The queue is not asked: the session's snapshot shows which runs have ended.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator

from coach.analysis.jobs.thinning import ThinPlan, plan_thinning
from coach.analysis.spelling.sizes import format_bytes
from coach.config import Settings
from coach.model.errors import UserError
from coach.model.reading import Reading
from coach.model.slurm.cluster import is_final
from coach.model.snapshot import Snapshot
from coach.model.training.records import RunRecords
from coach.sources.io import Io
from coach.sources.runs.record_sizes import RecordSizes
from coach.workflows.jobs.known_runs import SILENT_S
from coach.workflows.jobs.thin_records import limits_of, perform

LOOK_INTERVAL_S = 60.0
MAX_OPERATIONS = 40
"""Calls to the file server at one look, or those of one run if it needs more."""
REST_S = 1800.0
"""After all runs were measured and their records are small enough, nothing is measured for this long."""


class RecordsSource:
    """Checks the records of all runs, and thins them if they hold too much."""

    name = "records"
    interval_s = LOOK_INTERVAL_S

    def __init__(self, settings: Settings, io: Io, picture: Callable[[], Snapshot]) -> None:
        self._settings = settings
        self._io = io
        self._picture = picture
        self._sizes = RecordSizes(settings.runs_root, settings.cache_dir)
        self._problem: str | None = None
        self._small_s = -math.inf
        """When the records of all runs were last known to be small enough."""

    def poll(self) -> Iterator[Reading]:
        if 0 <= self._io.now() - self._small_s < REST_S:
            yield Reading(self.name, self._io.now(), 0.0, None, self._problem)
            return
        start_s = time.monotonic()
        try:
            records = self._sizes.look(MAX_OPERATIONS)
            if records is not None:
                self._sizes.save()
                self._problem = self._keep_small(records)
        except OSError as error:
            self._problem = error.strerror or str(error)
        except UserError as error:  # another coach is thinning
            self._problem = None if "another coach" in error.message else error.message
        duration_s = time.monotonic() - start_s
        yield Reading(self.name, self._io.now(), duration_s, None, self._problem)

    def _keep_small(self, records: tuple[RunRecords, ...]) -> str | None:
        """Thin one part if the records hold too much. Returns why they still do; None if all is well."""
        picture = self._picture()
        ended = ended_runs(picture, self._io.now())
        others = frozenset(one.run_id for one in records) - ended
        plan = plan_thinning(records, others, limits_of(self._settings))
        if not plan.is_over:
            self._small_s = self._io.now()
            return None
        problems: list[str] = []
        if not self._settings.is_readonly:
            for _ in perform(plan.steps[:1], self._settings, problems.append):
                pass
        if problems:
            return problems[0]
        return None if plan.is_enough and not self._settings.is_readonly else _words(plan)


def _words(plan: ThinPlan) -> str:
    held = f"{format_bytes(plan.now.size_bytes)}, {plan.now.num_files} files"
    return f"the records of your runs are over the limit ({held}): `coach runs clean` removes whole runs"


def ended_runs(picture: Snapshot, now_s: float) -> frozenset[str]:
    """Runs that certainly ended at least a day ago, so that nobody has just requeued them: any other may be
    alive. Open drills are left out."""
    queue = picture.sources.get("jobs")
    is_queue_known = queue is not None and queue.data_time_s is not None and queue.error is None
    alive = {job.job_id for job in picture.jobs if not is_final(job.state)}
    return frozenset(
        run.run_id
        for run in picture.runs
        if is_final(run.state)
        and not run.is_open_drill
        and run.ended_time_s is not None
        and now_s - run.ended_time_s > SILENT_S
        and (run.backend != "slurm" or (is_queue_known and run.job_id not in alive))
    )
