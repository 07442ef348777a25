"""Run the user's own command for a job of theirs that holds idle GPUs: key `idle_gpus.command`, off by
default.

coach itself never ends such a job. This is a source like the others, in a thread of its own, because the
command may take long. It asks Slurm nothing: the session's picture and histories hold the samplers'
measurements.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from coach.analysis.jobs.idle_gpus import IdleGpus, idle_gpus, is_due
from coach.config import Settings, Switch
from coach.lookback.history import History
from coach.model.reading import Reading
from coach.model.slurm.cluster import Job
from coach.model.snapshot import Snapshot, TargetSnapshot
from coach.poller import SourceFactory
from coach.sources.io import Io
from coach.sources.runs.idle_claims import IdleClaims
from coach.workflows.watching.user_command import run_user_command

NAME = "idle-gpus"
LOOK_INTERVAL_S = 30.0
TIMEOUT_S = 60.0
TOLD_S = 600.0
"""Seconds for which a failure stands in the banner."""


def may_run(settings: Settings) -> bool:
    """True if a command is configured and nothing forbids it."""
    return (
        bool(settings.idle_command) and not settings.is_readonly and not settings.why_off(Switch.IDLE_COMMAND)
    )


def idle_command_sources(
    settings: Settings, io: Io, user: str, picture: Callable[[], Snapshot], history: Callable[[str], History]
) -> dict[str, SourceFactory]:
    """The source by its key, if the command may run. The command is part of the key: a changed setting makes
    another source."""
    if not may_run(settings):
        return {}
    key = f"{NAME} {settings.idle_minutes_of_command:g} {' '.join(settings.idle_command)}"
    return {
        key.replace(":", " "): lambda: IdleCommandSource(
            settings, io, user, picture, history, dict(os.environ)
        )
    }


class IdleCommandSource:
    """Checks the user's running jobs, and runs the command once for each period of idle GPUs."""

    name = NAME
    interval_s = LOOK_INTERVAL_S

    def __init__(
        self,
        settings: Settings,
        io: Io,
        user: str,
        picture: Callable[[], Snapshot],
        history: Callable[[str], History],
        env: Mapping[str, str],
    ) -> None:
        self._settings = settings
        self._io = io
        self._user = user
        self._picture = picture
        self._history = history
        self._env = env
        self._claims = IdleClaims(settings.cache_dir, settings.cluster)
        self._busy_s: dict[str, float] = {}
        """Job id → time at which it was last seen at work: older samples are thinned out."""
        self._problem: tuple[float, str] | None = None

    def poll(self) -> Iterator[Reading]:
        start_s = time.monotonic()
        for target in self._picture().targets.values():
            job = target.job
            if job is not None and job.user == self._user and job.state == "RUNNING":
                self._look(target, job)
        now_s = self._io.now()
        if self._problem is not None and not 0 <= now_s - self._problem[0] < TOLD_S:
            self._problem = None
        words = self._problem[1] if self._problem is not None else None
        yield Reading(self.name, now_s, time.monotonic() - start_s, None, words)

    def _look(self, target: TargetSnapshot, job: Job) -> None:
        now_s = self._io.now()
        found = idle_gpus(self._history(target.target), job.num_gpus, now_s)
        if found is None:
            self._busy_s[job.job_id] = now_s
            return
        busy_s = self._busy_s.get(job.job_id)
        if busy_s is not None and busy_s > found.since_s:
            found = replace(found, since_s=busy_s)
        try:
            last_s = self._claims.last_s(job)
            if is_due(found, self._settings.idle_minutes_of_command, last_s) and self._claims.claim(
                job, last_s
            ):
                self._run(target, job, found)
        except OSError as error:
            self._tell(job, f"not run, since it cannot be remembered: {error.strerror or error}")

    def _run(self, target: TargetSnapshot, job: Job, found: IdleGpus) -> None:
        words = self._settings.idle_command
        if (why := run_user_command(words, facts(target, job, found), self._env, TIMEOUT_S)) is not None:
            self._tell(job, why)

    def _tell(self, job: Job, what: str) -> None:
        self._problem = (self._io.now(), f"idle_gpus.command for job {job.job_id}: {what}")


def facts(target: TargetSnapshot, job: Job, found: IdleGpus) -> dict[str, str]:
    """The environment variables that the command gets."""
    run_id = target.run.run_id if target.run is not None else ""
    return {
        "COACH_JOB_ID": job.job_id,
        "COACH_JOB_NAME": job.name,
        "COACH_RUN_ID": run_id,
        "COACH_NODE": ",".join(found.nodes),
        "COACH_NUM_GPUS": str(found.num_gpus),
        "COACH_IDLE_MINUTES": str(int((found.newest_s - found.since_s) // 60)),
    }
