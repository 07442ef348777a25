"""Keep a verdict, and find it again by the name of its run or job.

A kept verdict needs no log, no rule and no question to Slurm.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coach import runs
from coach.analysis.jobs.belonging import is_of_another_cluster
from coach.analysis.judging.verdict_object import is_withheld
from coach.config import Settings
from coach.late import late
from coach.model.slurm.cluster import is_final
from coach.model.snapshot import TargetSnapshot
from coach.model.training.run import Run
from coach.sources.io import Io
from coach.sources.machine.user import user_name
from coach.sources.runs.seen_jobs import SeenJobs, remember_jobs
from coach.sources.runs.verdict_files import (
    keep_verdict_of_job,
    keep_verdict_of_run,
    verdict_of_forgotten_job,
    verdict_of_job,
    verdict_of_run,
)
from coach.workflows.judging.targets import known_cluster, known_runs

if TYPE_CHECKING:
    from coach.workflows.judging import check
else:
    check = late("coach.workflows.judging", "check")  # it loads the rules: a kept verdict needs none


def verdict_of(
    text: str, settings: Settings, io: Io, backend: str | None, ended_as: str | None = None
) -> tuple[Mapping[str, Any], str | None]:
    """The kept verdict of a named target; else a new one, which is kept if the target has ended, and a note
    on a file of the same name. Raises UserError."""
    kept = kept_verdict(text, settings, io)
    if kept is not None:
        return kept, None
    checked = check.Checker(settings, io, backend, ended_as=ended_as).target(text)
    verdict = checked.verdict()
    keep(settings, io, checked.snapshot, verdict)
    return verdict, checked.note


def kept_verdict(text: str, settings: Settings, io: Io) -> dict[str, Any] | None:
    """The kept verdict of a named target; None if the target has to be judged."""
    named = runs.expand_home(text) if text.startswith(("/", ".", "~")) else settings.runs_root / text
    verdict = verdict_of_run(named) if runs.RUN_ID.match(named.name) else None
    if verdict is None and text[:1].isdigit() and "-" not in text:
        verdict = _of_job(text, settings, io)
    if verdict is None or is_withheld(verdict) or not is_final(_text(verdict, "state")):
        return None  # an open drill may have been answered since
    return {**verdict, "target": text}


def _of_job(job_id: str, settings: Settings, io: Io) -> dict[str, Any] | None:
    cluster = known_cluster(settings)
    known = known_runs(settings, io)
    own = next(
        (run for run in known if run.job_id == job_id and not is_of_another_cluster(run, cluster)), None
    )
    seen = next(
        (each.job for each in SeenJobs(settings.cache_dir).read()[0] if each.job.job_id == job_id), None
    )
    if own is not None:
        is_later = seen is not None and (seen.submit_time_s or 0.0) > (own.ended_time_s or 0.0)
        return verdict_of_run(Path(own.run_dir)) if is_final(own.state) and not is_later else None
    if seen is None or not is_final(seen.state):
        return None
    return verdict_of_job(settings.cache_dir, job_id, seen.submit_time_s)


def kept_of_forgotten(job_id: str, settings: Settings) -> dict[str, Any] | None:
    """The kept verdict of a job that neither Slurm nor a run directory knows any more."""
    verdict = verdict_of_forgotten_job(settings.cache_dir, job_id)
    return None if verdict is None or is_withheld(verdict) else {**verdict, "target": job_id}


def keep(
    settings: Settings,
    io: Io,
    snapshot: TargetSnapshot,
    verdict: Mapping[str, Any],
    *,
    is_by_job: bool = False,
) -> None:
    """Keep the verdict of an own run, or of any job, that has ended. With `readonly`, nothing is written into
    the run, unless the job itself does."""
    whose = snapshot.run or snapshot.job
    if whose is None or not is_final(_text(verdict, "state")):
        return
    is_own = whose.user in (None, user_name())
    if isinstance(whose, Run):
        if is_own and (is_by_job or not settings.is_readonly):
            keep_verdict_of_run(Path(whose.run_dir), verdict)
    elif whose.submit_time_s is not None:
        # Another user's job is not remembered among the own ones, but can be asked for again by its id. The
        # row of a whole array is no row of the queue.
        if is_own and len(verdict.get("jobs", ())) < 2:
            # The next call compares it with the job of that id, and notices if Slurm has reused the id.
            remember_jobs(SeenJobs(settings.cache_dir), [whose], user_name(), io.now())
        keep_verdict_of_job(settings.cache_dir, whose.job_id, whose.submit_time_s, verdict)


def _text(value: Mapping[str, Any], key: str) -> str | None:
    found = value.get(key)
    return found if isinstance(found, str) else None
