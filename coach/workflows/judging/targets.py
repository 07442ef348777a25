"""Resolve what a user names (a run, a job, a log), locate its files, and list the sources that follow it.
One place decides what `TARGET` means, so that `check`, `compare`, `record` and the screens mean the same
thing by it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from enum import Enum
from functools import partial
from pathlib import Path

from coach import runs
from coach.analysis.jobs.belonging import (
    Parts,
    RowsByTask,
    has_parts,
    is_job_id,
    is_job_of,
    is_of_another_cluster,
    parts_with_runs,
    runs_that_fit,
)
from coach.analysis.jobs.named_run import first_of_group as first_of_group
from coach.analysis.jobs.named_run import named_run as named_run
from coach.analysis.jobs.named_run import run_or_job as run_or_job
from coach.analysis.jobs.named_run import runs_of_array
from coach.config import DEFAULT_CLUSTER, Settings, Switch
from coach.model.errors import OTHERS_JOBS, UnknownTarget, UserError, hidden_by_site
from coach.model.reading import JobList, RunList
from coach.model.slurm.cluster import Job
from coach.model.training.run import Run
from coach.sources.base import PollingSource
from coach.sources.io import Io
from coach.sources.logs.job_outputs import JobRowSource, OutputPaths
from coach.sources.logs.log_source import LogSource
from coach.sources.machine.local_cluster import LocalClusterSource
from coach.sources.machine.user import user_name
from coach.sources.metrics.flight_recorder import FlightRecorderSource
from coach.sources.runs.local_process import Look, look
from coach.sources.runs.run_index import RunIndex
from coach.sources.runs.run_list import RunListSource
from coach.sources.runs.seen_jobs import SeenJobs, remember_jobs
from coach.sources.slurm.client import JobsSource, ask_private_kinds
from coach.workflows.judging.directory_files import (
    ForeignFiles,
    Found,
    directory_files,
    find_inside,
    is_metrics,
)
from coach.workflows.judging.job_files import job_files
from coach.workflows.judging.program_files import foreign_metrics
from coach.workflows.judging.run_sources import Signatures, run_sources
from coach.workflows.judging.run_sources import SourceFactory as SourceFactory

STDIN = "-"


class TargetKind(Enum):
    RUN = "run"
    LOG = "log"
    JOB = "job"
    DIRECTORY = "directory"
    PARTS = "parts"
    """A whole array or heterogeneous job: each part is judged by itself."""
    STDIN = "stdin"


@dataclass(frozen=True, slots=True)
class Target:
    """Something that can be read and diagnosed. `name` is the user's text."""

    name: str
    kind: TargetKind
    path: Path | None = None
    """The run directory, the log, or a directory that is not a run's."""
    logs: tuple[Path, ...] = ()
    metrics: tuple[Path, ...] = ()
    """Files that a person named: they replace those that would be found."""
    parts: Parts | None = None
    """The tasks, or components, of PARTS."""
    note: str | None = None
    """A file that has the target's name as well."""


def resolve_target(
    text: str, settings: Settings, io: Io, backend: str, user: str, output_paths: OutputPaths | None = None
) -> Target:
    """Resolve `-`, an existing path, a run id or a job id, in this order; a bare word, without a slash and a
    suffix, is a run or a job first: a file of its name may be anybody's. Raises UserError, with the nearest
    name as hint.

    A directory without logs and metrics hides no run or job of its name: scripts make a directory for each
    job id. `output_paths` remembers the answers received on the way.
    """
    if text == STDIN:
        return Target(text, TargetKind.STDIN)
    path = runs.expand_home(text)
    with contextlib.suppress(FileNotFoundError):  # without a working directory it can still be a job
        path = path.absolute()
    is_bare = "/" not in text and not Path(text).suffix
    problem: UserError | None = None
    for is_name in (is_bare, not is_bare):
        try:
            found = (
                _by_name(text, settings, io, backend, user, output_paths)
                if is_name
                else _at_path(io, text, path)
            )
        except UserError as error:
            if "/" in text:
                raise
            problem = problem or error
            continue
        if found is not None:
            is_hidden = is_name and is_bare and path.is_file()
            note = f"{text} is a {found.kind.value}; ./{text} names the file" if is_hidden else None
            return replace(found, note=note)
    if problem is not None:
        raise problem
    known = known_runs(settings, io)
    near = get_close_matches(Path(text).name, [*(run.run_id for run in known), *_names_beside(io, path)], 1)
    hint = f"did you mean {near[0]}?" if near else _hint_for_unknown(text, io, backend, user)
    raise UnknownTarget(f"{text}: no run, job or file of that name", hint)


def _by_name(
    text: str, settings: Settings, io: Io, backend: str, user: str, output_paths: OutputPaths | None
) -> Target | None:
    known = known_runs(settings, io)
    named = named_run(text, known)
    if named is not None:
        return Target(named.run_id, TargetKind.RUN, Path(named.run_dir))
    if runs.RUN_ID.match(text):
        found = _at_path(io, text, settings.runs_root / text)
        if found is not None:
            return found
    if not is_job_id(text):
        return None
    paths = output_paths or output_paths_of(io, settings)
    return _by_job_id(text, settings, io, backend, user, known, paths)


def _hint_for_unknown(text: str, io: Io, backend: str, user: str) -> str:
    hint = hint_for_hidden_job(io, user) if is_job_id(text) and backend == "slurm" else None
    return hint or "`coach runs` lists the runs, `coach jobs` the jobs"


def hint_for_hidden_job(io: Io, user: str) -> str | None:
    """A hint for a job that Slurm does not know, if the site hides other users' jobs."""
    if "jobs" in (ask_private_kinds(io, user) or ()):
        return f"if it is somebody else's: {hidden_by_site(OTHERS_JOBS)}"
    return None


def _by_job_id(
    job_id: str,
    settings: Settings,
    io: Io,
    backend: str,
    user: str,
    known: Sequence[Run],
    paths: OutputPaths,
) -> Target | None:
    """The run of this job, or the job itself if coach did not launch it. The queue decides which run it is;
    without an answer, the newest run."""
    cluster = known_cluster(settings)
    runs_of_it = [run for run in known if job_id in run.job_ids]
    here = [run for run in known if not is_of_another_cluster(run, cluster)]
    tasks = runs_of_array(job_id, here)
    queue = _queue(job_id, io, backend, user, is_needed=not (runs_of_it or tasks))
    paths.learn(queue)
    remember_jobs(SeenJobs(settings.cache_dir), queue, user, io.now())
    job = RowsByTask({job.job_id: job for job in queue}).get(job_id)
    if job is not None and not tasks and not has_parts(job_id, queue):
        paths.learn([job])  # squeue lists tasks that wait in one row
        return _of_row(job_id, job, known, settings)
    newest = next((run for run in (*here, *known) if job_id in run.job_ids), None)
    if newest is not None:
        return Target(job_id, TargetKind.RUN, Path(newest.run_dir))
    return _job_without_run(job_id, paths, tasks, cluster) if backend == "slurm" else None


def _queue(job_id: str, io: Io, backend: str, user: str, *, is_needed: bool) -> tuple[Job, ...]:
    """The user's queue. If Slurm does not answer: empty, or UserError if the queue is needed."""
    try:
        return rows_of_queue(JobsSource(io, user, 0.0)) if backend == "slurm" else ()
    except UserError as error:
        if is_needed:
            raise UserError(f"{job_id}: Slurm does not answer: {error.message}") from None
        return ()


def _of_row(name: str, job: Job, known: Iterable[Run], settings: Settings) -> Target:
    run = run_of(job, known, known_cluster(settings))
    return Target(name, TargetKind.RUN, Path(run.run_dir)) if run else Target(name, TargetKind.JOB)


def _job_without_run(
    job_id: str, paths: OutputPaths, tasks: Sequence[Run], cluster: str | None
) -> Target | None:
    """A job that is no run, or a whole array or heterogeneous job. `tasks`: the runs of the array with this
    number."""
    rest, rows = paths.row(job_id), paths.parts(job_id)
    tasks = runs_that_fit(tasks, rows if rest is None else [rest, *rows], cluster)
    if rest is not None and not rows and not tasks:
        return Target(job_id, TargetKind.JOB)
    parts = parts_with_runs(rows, tasks, rest, paths.has_left)
    return Target(job_id, TargetKind.PARTS, parts=parts) if parts.rows else None


def output_paths_of(io: Io, settings: Settings) -> OutputPaths:
    """The log paths of jobs, also of jobs that Slurm has forgotten but coach has seen."""
    seen = SeenJobs(settings.cache_dir)
    may_ask = settings.why_off(Switch.HISTORY) is None
    return OutputPaths(io, lambda: [each.job for each in seen.read()[0]], asks_summaries=may_ask)


def run_of(job: Job, known: Iterable[Run], cluster: str | None) -> Run | None:
    """The run whose job this is. `known` is newest first; if several runs have the job's number, the newest
    possible one."""
    return next((run for run in known if is_job_of(job, run, cluster)), None)


def known_cluster(settings: Settings) -> str | None:
    """The cluster's name; None if it is not known."""
    return settings.cluster if settings.cluster != DEFAULT_CLUSTER else None


def locate_target(
    text: str, settings: Settings, io: Io, known: Sequence[Run], job: Job | None = None
) -> Target:
    """The target that the screens follow. `job` is the row of the queue, if the name means one.

    Never raises: its sources report errors.
    """
    if job is not None:
        return _of_row(text, job, known, settings)
    for run in known:
        if text in (run.run_id, run.run_dir, *run.job_ids):
            return Target(text, TargetKind.RUN, Path(run.run_dir))
    if "/" in text:
        path = Path(text)
        is_run = _exists(io, runs.RunPaths(path).run_json)
        return Target(text, TargetKind.RUN if is_run else TargetKind.LOG, path)
    if is_job_id(text):
        return Target(text, TargetKind.JOB)
    return Target(text, TargetKind.RUN, settings.runs_root / text)


def list_runs(io: Io, runs_root: Path, index: RunIndex | None = None) -> tuple[Run, ...]:
    """The existing runs, newest first; empty if they cannot be read. With an index, ended runs are taken from
    it."""
    for reading in RunListSource(io, runs_root, index=index).poll():
        if isinstance(reading.payload, RunList):
            return reading.payload.runs
    return ()


def known_runs(settings: Settings, io: Io) -> tuple[Run, ...]:
    """All runs of the user, newest first. Those that have ended are taken from the index."""
    return list_runs(io, settings.runs_root, run_index(settings))


def run_index(settings: Settings, *, is_live: bool = True) -> RunIndex | None:
    """The index of ended runs that other sessions have built; None unless `is_live`: a recording must hold
    everything that it shows."""
    return RunIndex(settings.cache_dir, settings.runs_root) if is_live else None


def target_sources(
    target: Target,
    io: Io,
    signatures: Signatures,
    output_paths: OutputPaths,
    look: Look = look,
    files: ForeignFiles | None = None,
    index: RunIndex | None = None,
) -> Mapping[str, SourceFactory]:
    """The sources that follow a target, by `source:target`. `files`: a foreign target's, if the caller
    reports them. `index` saves reading the files of ended runs."""
    name, kind = target.name, target.kind
    if kind is TargetKind.RUN and target.path is not None:
        runs_here = partial(list_runs, io, target.path.parent, index)
        named = target.logs, target.metrics
        return run_sources(io, name, target.path, output_paths, runs_here, look, signatures, *named)
    if kind not in (TargetKind.JOB, TargetKind.DIRECTORY, TargetKind.LOG):
        return {}
    found = files or foreign_files(target, io, output_paths)
    if kind is TargetKind.DIRECTORY:  # the numbers of several logs may be of several trainings
        reads_printed = not found.metrics() and len(found.logs()) == 1
    else:
        reads_printed = kind is TargetKind.LOG or not target.metrics
    printed = found.logs_with_numbers if reads_printed else None
    sources: dict[str, SourceFactory] = {
        f"log:{name}": lambda: LogSource(found.io, name, found.logs, lambda: found.signatures(signatures())),
        f"metrics:{name}": lambda: foreign_metrics(found.io, name, found.metrics, printed),
    }
    if kind is TargetKind.JOB:
        sources[f"row:{name}"] = lambda: JobRowSource(io, name, output_paths, user_name())
    if kind is not TargetKind.LOG:
        sources[f"flight:{name}"] = lambda: FlightRecorderSource(found.io, name, found.dumps)
    return sources


def foreign_files(target: Target, io: Io, output_paths: OutputPaths) -> ForeignFiles:
    """The files of a job that coach did not launch, of a directory that is not a run's, or of a log."""
    logs, metrics, path = target.logs, target.metrics, target.path or Path()
    if target.kind is TargetKind.JOB:
        return job_files(io, target.name, output_paths, logs, metrics)
    if target.kind is TargetKind.DIRECTORY:
        return directory_files(io, path, logs, metrics)
    own = () if is_metrics(path) else (path,), (path,) if is_metrics(path) else ()
    return ForeignFiles(io, lambda: Found(None), logs=logs or own[0], metrics=metrics or own[1])


def jobs_source(io: Io, backend: str, settings: Settings, user: str) -> PollingSource:
    """The source of the caller's own jobs, asked once by commands."""
    if backend == "slurm":
        return JobsSource(io, user, settings.jobs_interval_s, is_all=False)
    return local_queue(settings, io, user)


def local_queue(settings: Settings, io: Io, user: str) -> LocalClusterSource:
    """This machine as a cluster. Runs that ended long ago are taken from the index."""
    index = RunIndex(settings.cache_dir, settings.runs_root)
    return LocalClusterSource(io, settings.runs_root, user, known_ends=index.ends)


def queue_of(target: Target, backend: str) -> str:
    """The queue to ask about the target: a run of this machine is not in Slurm's queue, even if there is a
    Slurm."""
    if backend == "local" or target.kind is not TargetKind.RUN or target.path is None:
        return backend
    of_run = runs.read_json_if_any(runs.RunPaths(target.path).run_json).get("backend")
    return "local" if of_run == "local" else backend


def _at_path(io: Io, text: str, path: Path) -> Target | None:
    if not text:
        return None
    if _exists(io, runs.RunPaths(path).run_json):
        return Target(text, TargetKind.RUN, path)
    try:
        io.list_dir(path)
    except NotADirectoryError:
        return Target(text, TargetKind.LOG, path)
    except (OSError, ValueError):
        return Target(text, TargetKind.LOG, path) if _exists(io, path) else None
    if not find_inside(io, path).files:
        raise UserError(
            f"{text}: a directory without run.json, and without logs or metrics of names that coach knows",
            "give a run directory or a log file",
        )
    return Target(text, TargetKind.DIRECTORY, path)


def _exists(io: Io, path: Path) -> bool:
    try:
        io.size(path)
    except (OSError, ValueError):
        return False
    return True


def rows_of_queue(source: PollingSource) -> tuple[Job, ...]:
    """The rows of one look at the queue. Raises UserError, in Slurm's words, if it does not answer."""
    for reading in source.poll():
        if reading.error is not None:
            raise UserError(reading.error)
        if isinstance(reading.payload, JobList):
            return reading.payload.jobs
    return ()


def _names_beside(io: Io, path: Path) -> list[str]:
    try:
        return [name for name in io.list_dir(path.parent) if not name.startswith(".")]
    except (OSError, ValueError):
        return []
