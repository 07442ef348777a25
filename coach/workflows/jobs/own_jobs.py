"""Resolve the runs and jobs that a person wants to act on: own ones, as the queue has them now.

Job ids are reused, and a screen may be a minute old, so Slurm is asked once more, in one call for all names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coach import runs
from coach.analysis.jobs.belonging import fits, has_lost_its_job, is_job_id, is_of_another_cluster
from coach.analysis.jobs.eligible_jobs import group_id, parse_task_ids, rows_by_id
from coach.analysis.jobs.named_run import named_run
from coach.config import Settings
from coach.launch import local
from coach.model.errors import UserError
from coach.model.slurm.cluster import is_final
from coach.model.slurm.job_action import QueuedJob, Step
from coach.model.training.run import Run, Submission
from coach.sources.follow import describe
from coach.sources.io import Io
from coach.sources.machine.user import user_name
from coach.sources.runs.local_process import find_process
from coach.sources.runs.run_files import parse_run
from coach.sources.runs.run_list import read_listed_run
from coach.sources.slurm.named_jobs import job_rows_query, parse_job_rows
from coach.workflows.backend import resolve_backend
from coach.workflows.jobs.lost_submits import Standing, ask_for_jobs
from coach.workflows.judging.targets import hint_for_hidden_job, known_cluster, known_runs


class NotYours(UserError):
    """The job belongs to another user."""


class HasEnded(UserError):
    """The job has ended: there is nothing left to act on."""


@dataclass(frozen=True, slots=True)
class Named:
    """A job named by its own id or by its run's, with all rows of its array."""

    job_id: str
    rows: tuple[QueuedJob, ...]
    run: Run | None = None
    """The named run, if a run was named."""

    @property
    def subject(self) -> str:
        return f"job {self.job_id}"


def look_up(
    targets: Sequence[str], settings: Settings, env: Mapping[str, str], io: Io
) -> tuple[list[Named | Step], list[tuple[str, UserError]]]:
    """Each target as a Slurm job or, for a run of this machine, as the step that ends it; and an error for
    each other target."""
    found: list[Named | Step | None] = []
    wrong: list[tuple[str, UserError]] = []
    asked: list[tuple[str, str, Run | None]] = []
    lost: dict[str, Run] = {}
    for target in dict.fromkeys(targets):
        try:
            named = _name(target, settings, env, io)
        except UserError as error:
            wrong.append((target, error))
            continue
        if isinstance(named, Step):
            found.append(named)
        elif isinstance(named, Run):
            lost[target] = named
        else:
            asked.append((target, *named))
    for target, standing in _find_lost(lost, settings, env, io):
        try:
            asked.append((target, *_found(standing, io.now())))
        except UserError as error:
            wrong.append((target, error))
    rows = _ask(dict.fromkeys(group_id(job_id) for _, job_id, _ in asked), io) if asked else ()
    for target, job_id, run in asked:
        try:
            found.append(_own(job_id, run, rows, settings))
        except UserError as error:
            wrong.append((target, error))
    return [each for each in found if each is not None], wrong


def run_of(target: str, settings: Settings, env: Mapping[str, str], io: Io) -> Run | None:
    """The run of coach with this id, short name or job id, also if Slurm has forgotten the job; None for
    another job.

    If several runs have the job's number, the newest that can be the job's.
    """
    known = known_runs(settings, io)
    here = [run for run in known if not is_of_another_cluster(run, known_cluster(settings))]
    named = named_run(target, here)
    numbered = [run for run in here if target in run.job_ids]
    if named is not None or not numbered or resolve_backend("auto", env) != "slurm":
        return named or next(iter(numbered), None)
    rows = _ask((group_id(target),), io, is_lenient=True)
    return next((run for run in numbered if _is_job_of(rows, run, settings)), None)


def run_dirs_of(named: Iterable[Named], settings: Settings) -> dict[str, Path]:
    """Job id → the newest run of coach that can be this job's; job ids restart when a cluster is set up anew.
    Each task of an array is a job."""
    found = {each.job_id: Path(each.run.run_dir) for each in named if each.run is not None}
    missing: dict[str, Sequence[QueuedJob]] = {}
    for each in named:
        if each.run is None:
            missing |= rows_by_id(each.job_id, each.rows)
    for path in _run_dirs_newest_first(settings.runs_root) if missing else ():
        try:
            run = parse_run(runs.read_own_record(path), str(path))
        except runs.RunFileError:
            continue
        rows = missing.get(run.job_id or "")
        if rows and run.job_id and run.backend == "slurm" and _is_job_of(rows, run, settings):
            found[run.job_id] = path
            del missing[run.job_id]
        if not missing:
            break
    return found


def run_dir_of(named: Named, job_id: str, settings: Settings) -> Path | None:
    """The run directory of one row of a named job: of an array the task with this id."""
    found = run_dirs_of((named,), settings)
    return found.get(job_id, found.get(named.job_id))


def _run_dirs_newest_first(runs_root: Path) -> list[Path]:
    return sorted((path for path in runs_root.glob("*-*") if runs.RUN_ID.match(path.name)), reverse=True)


def _name(
    target: str, settings: Settings, env: Mapping[str, str], io: Io
) -> Step | Run | tuple[str, Run | None]:
    """The step that ends a local run; a run whose job has to be looked for; or a job id, with its run if that
    was named."""
    run_dir = settings.runs_root / target
    if runs.RUN_ID.match(target) and run_dir.is_dir():
        return _name_run(target, run_dir, settings, io)
    job_id = group_id(target) if "[" in target else target
    if job_id != target and ((tasks := parse_task_ids(target)) is None or tasks.is_cut):
        # The whole job must not stand for tasks that were mistyped.
        raise UserError(
            f"{target!r}: not a list of tasks",
            f"for example {job_id}_[2,5-7]; {job_id}+1 is one part of a heterogeneous job",
        )
    if not is_job_id(job_id):
        named = named_run(target, known_runs(settings, io))
        if named is not None:
            return _name_run(named.run_id, Path(named.run_dir), settings, io)
        raise UserError(f"{target!r}: neither a run in {settings.runs_root} nor a job id")
    if resolve_backend("auto", env) != "slurm":
        raise UserError(
            f"job {target}: there is no Slurm on this machine", "a local run is cancelled by its run id"
        )
    return target, None


def _name_run(run_id: str, run_dir: Path, settings: Settings, io: Io) -> Step | Run | tuple[str, Run | None]:
    try:
        run_json = runs.read_own_record(run_dir)
    except runs.RunFileError as error:
        raise UserError(str(error), "coach changes only your own runs") from None
    if run_json.get("backend") == "local":
        return _end_local(run_id, run_dir, run_json, io)
    job_id = run_json.get("job_id")
    run, cluster = parse_run(run_json, str(run_dir)), known_cluster(settings)
    if is_of_another_cluster(run, cluster):
        job = f"job {job_id}" if job_id else "a run"
        raise UserError(f"{run_id}: it is {job} of cluster {run.cluster}, and this is {cluster}")
    if not isinstance(job_id, str) or not is_job_id(job_id):
        return _without_job_id(run_id, run_dir, io)
    return job_id, run


def _without_job_id(run_id: str, run_dir: Path, io: Io) -> Run:
    """The run, if a search for its job makes sense. Raises UserError otherwise."""
    try:
        run = read_listed_run(io, run_dir)
    except OSError as error:
        raise UserError(describe(error)) from None
    if is_final(run.state):
        raise HasEnded(f"{run_id}: it has ended already ({run.state})")
    if not has_lost_its_job(run):
        raise UserError(f"{run_id}: it has no job id, and it has started: `coach jobs` lists the jobs")
    return run


def _find_lost(
    lost: Mapping[str, Run], settings: Settings, env: Mapping[str, str], io: Io
) -> Iterable[tuple[str, Standing]]:
    """The state of each submission, by one question for all."""
    if not lost:
        return
    if resolve_backend("auto", env) != "slurm":
        for target, run in lost.items():
            yield target, Standing(run, None, Submission.UNKNOWN, "there is no Slurm on this machine")
        return
    standing = ask_for_jobs(list(lost.values()), settings, io, user_name())
    for target, run in lost.items():
        yield target, standing[run.run_id]


def _found(standing: Standing, now_s: float) -> tuple[str, Run]:
    run_id, job = standing.run.run_id, standing.job
    if job is None:
        raise UserError(f"{run_id}: {standing.words}", standing.hint(now_s))
    if is_final(job.state):
        raise HasEnded(f"{run_id}: it has ended already (job {job.job_id} is {job.state})")
    return job.job_id, standing.run


def _end_local(run_id: str, run_dir: Path, run_json: Mapping[str, Any], io: Io) -> Step:
    process = find_process(run_json)
    try:
        run = read_listed_run(io, run_dir)
    except OSError as error:
        raise UserError(describe(error)) from None
    if is_final(run.state):
        raise HasEnded(f"{run_id}: it has ended already ({run.state})")
    if not run.is_visible:
        raise local.elsewhere(run_id, run.host)
    if process is None:
        raise UserError(f"{run_id}: nothing of this run is running on this machine")
    started_s = run.started_time_s
    used_s = None if started_s is None else max(0, int(io.now() - started_s))
    row = QueuedJob(run_id, run_id, user_name(), run.state or "", time_used_s=used_s, name=run.recipe)
    return Step(("kill", "-TERM", str(process.pid)), (run_id,), str(run_dir), row)


def _own(job_id: str, run: Run | None, rows: Sequence[QueuedJob], settings: Settings) -> Named:
    of_it = tuple(row for row in rows if group_id(row.job_id) == group_id(job_id))
    if not of_it:
        raise UserError(f"job {job_id}: Slurm does not know it, or has forgotten it")
    if run is not None and not _is_job_of(of_it, run, settings):
        raise UserError(
            f"{run.run_id}: Slurm has forgotten its job; {job_id} is the number of another one now"
        )
    named = {row.raw_job_id for row in of_it if row.job_id == job_id}
    if run is not None and run.raw_job_id is not None and named - {run.raw_job_id}:
        raise UserError(
            f"{run.run_id}: it is job {run.raw_job_id}, submitted inside {job_id}, whose number it took",
            f"name the job: {run.raw_job_id}",
        )
    others = {row.user for row in of_it} - {user_name()}
    if others:
        raise NotYours(
            f"job {job_id}: it belongs to {', '.join(sorted(others))}, coach changes only your own jobs"
        )
    return Named(job_id, of_it, run)


def _is_job_of(rows: Iterable[QueuedJob], run: Run, settings: Settings) -> bool:
    cluster = known_cluster(settings)
    return all(fits(run, row.user, row.submit_time_s, cluster) for row in rows)


def _ask(job_ids: Iterable[str], io: Io, *, is_lenient: bool = False) -> tuple[QueuedJob, ...]:
    """The rows of these jobs. Raises UserError in Slurm's words if it does not answer, or does not know the
    only job named; with `is_lenient` an unknown job has no rows."""
    names = tuple(job_ids)
    result = io.run(job_rows_query(names))
    if is_lenient and "Invalid job id" in result.stderr:
        return ()
    if result.returncode != 0:
        words = result.error or " ".join(result.stderr.split())
        hint = hint_for_hidden_job(io, user_name()) if "Invalid job id" in words else None
        raise UserError(f"job {', '.join(names)}: {words}", hint)
    query = result.query
    return parse_job_rows(result.text, query.separator, query.record_end)
