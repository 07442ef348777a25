"""Read and judge a named target, or all own jobs: the work of `coach check` without its output.

One object serves one command: what it learned for one job (where logs lie, how earlier runs ended) it need
not ask again for the next. When nobody names a target, `own_targets` lists those to judge.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coach.analysis.jobs.belonging import Parts, is_of_another_cluster, without_rests
from coach.analysis.judging.several_jobs import Judged, whole, worst_first
from coach.analysis.spelling.printable import printable
from coach.analysis.teaching.withheld_findings import as_told
from coach.config import Settings
from coach.late import late
from coach.launch.recipe import drill_names
from coach.lookback.history import History
from coach.model.errors import UserError
from coach.model.judging.finding import Diagnosis, NotMeasured
from coach.model.judging.verdict import PastRun
from coach.model.reading import JobList
from coach.model.slurm.cluster import Job, is_final
from coach.model.snapshot import TargetSnapshot
from coach.model.training.run import Run
from coach.rules.engine import Engine
from coach.rules.registry import signatures
from coach.sources.io import Io
from coach.sources.logs.job_outputs import OutputPaths
from coach.sources.machine.user import user_name
from coach.sources.runs.run_files import run_around
from coach.sources.runs.seen_jobs import SeenJobs, remember_jobs
from coach.workflows.backend import resolve_backend
from coach.workflows.judging.earlier_runs import PastRuns, joined, rows_of
from coach.workflows.judging.job_files import ForeignFiles
from coach.workflows.judging.judge import with_advice
from coach.workflows.judging.one_reading import read_once
from coach.workflows.judging.targets import (
    Target,
    TargetKind,
    foreign_files,
    jobs_source,
    known_cluster,
    list_runs,
    locate_target,
    output_paths_of,
    resolve_target,
    run_index,
)
from coach.workflows.judging.why_pending import waiting_of
from coach.workflows.sharing import share_diagnosis

if TYPE_CHECKING:
    from coach.workflows.judging import room_now, stacks_kept
else:
    room_now, stacks_kept = late("coach.workflows.judging", "room_now", "stacks_kept")

_STDIN_PATH = Path("/dev/stdin")


@dataclass(frozen=True, slots=True)
class ReadFile:
    """A file of a foreign target. `problem` says why it was not read."""

    path: str
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class FilesRead:
    """The files read of a target whose files had to be found, and the searches that found nothing."""

    files: tuple[ReadFile, ...]
    not_found: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Checked:
    """One judged target. `parts` are the tasks of an array, or the components of a heterogeneous job, if the
    target named all of it."""

    diagnosis: Diagnosis
    snapshot: TargetSnapshot
    files: FilesRead | None = None
    parts: tuple[Judged, ...] = ()
    num_left_out: int = 0
    history: History | None = None
    """The series that the diagnosis used; None for a target of several parts."""
    waiting: Mapping[str, Any] | None = None
    """Why a job that has not started waits, as in the public JSON."""
    note: str | None = None
    """A file that has the target's name as well."""


class Checker:
    """Judges targets for one command."""

    def __init__(
        self, settings: Settings, io: Io, engine: Engine, backend: str | None, ended_as: str | None = None
    ) -> None:
        """`ended_as`: the state of a job that Slurm still calls COMPLETING."""
        self._ended_as = ended_as
        self._settings = settings
        self._io = io
        self._engine = engine
        self._backend = resolve_backend(backend or settings.launch.backend, os.environ)
        self._user = user_name()
        self._paths = output_paths_of(io, settings)
        self._past = PastRuns(settings)
        self._drills = drill_names()

    def target(self, text: str, logs: tuple[Path, ...] = (), metrics: tuple[Path, ...] = ()) -> Checked:
        """Judge one target. `logs` and `metrics` that are named replace those that would be found. Raises
        UserError if it cannot be read."""
        target = resolve_target(text, self._settings, self._io, self._backend, self._user, self._paths)
        if target.parts is not None:
            if logs or metrics:
                raise UserError(
                    f"{text}: --log and --metrics belong to one task",
                    f"name it: {target.parts.rows[0].job_id}",
                )
            return replace(self._parts(target.name, target.parts), note=target.note)
        target = replace(target, logs=logs, metrics=metrics)
        snapshot, history, diagnosis, files = self._read(target)
        read = None if files is None else _files_read(snapshot, files)
        this = self._past.note(snapshot, history, diagnosis)
        if this is not None and (this.failure is not None or this.samples_per_s is not None):
            known = list_runs(self._io, self._settings.runs_root, run_index(self._settings))
            self._past.catch_up(this, known, self._io, self._read_past)
        seen = stacks_kept.with_stacks(diagnosis, snapshot, self._settings)
        told = self._beside_others(room_now.RoomNow(self._io).added_to(seen, snapshot), snapshot, this)
        told = self._as_told(told, _paths_read(target, snapshot, files))
        waiting = waiting_of(snapshot.job, self._io, self._paths.known)
        return Checked(told, snapshot, read, history=history, waiting=waiting, note=target.note)

    def by_itself(self, target: Target) -> tuple[TargetSnapshot, History, Diagnosis]:
        """Judge one target without earlier runs: nothing is recorded and nobody is told. Raises UserError if
        it cannot be read."""
        snapshot, history, diagnosis, files = self._read(target)
        told = as_told(diagnosis, snapshot.run, self._drills)
        return snapshot, history, self._as_told(told, _paths_read(target, snapshot, files))

    def ended_run(self, run_dir: Path) -> Checked:
        """Judge a run by its files alone, for the job itself at its end: Slurm is not asked, and no earlier
        run is read. The cohort is not told: the job tells it once it has reported why it ended. Raises
        UserError."""
        target = Target(run_dir.name, TargetKind.RUN, run_dir)
        snapshot, history, diagnosis, _ = self._read(target, JobList((), False))
        this = self._past.note(snapshot, history, diagnosis)
        told = self._with_past(room_now.RoomNow(self._io).added_to(diagnosis, snapshot), snapshot, this)
        return Checked(told, snapshot, None, history=history)

    def own_jobs(self, user: str | None = None) -> tuple[list[Judged], int]:
        """The judged own jobs, or those of another user, worst first, and the number left out; one question
        to the queue for all of them. Raises UserError if it does not answer."""
        if user is None or user == self._user:
            own = own_targets(self._settings, self._io, self._user, self._backend)
        else:
            own = targets_of(user, self._settings, self._io, self._backend)
        self._paths = own.output_paths
        return worst_first(self._judge_all(own.targets, own.queue)), own.num_left_out

    def _parts(self, name: str, parts: Parts) -> Checked:
        rows = sorted(parts.rows, key=_rank)[:MAX_TARGETS]
        self._paths.learn(rows)
        runs = list_runs(self._io, self._settings.runs_root, run_index(self._settings))
        targets = [locate_target(job.job_id, self._settings, self._io, runs, job) for job in rows]
        known = tuple(job for job in parts.rows if job.job_id not in parts.with_unknown_end)
        judged = worst_first(self._judge_all(targets, JobList(known, False)))
        all_of_it = whole(name, known, judged, parts.number)
        return Checked(
            *(all_of_it.diagnosis, all_of_it.snapshot, None, tuple(judged), len(parts.rows) - len(rows)),
            waiting=waiting_of(all_of_it.snapshot.job, self._io, self._paths.known),
        )

    def _judge_all(self, targets: Sequence[Target], queue: JobList) -> list[Judged]:
        """Judge each target by itself first: each then counts as an earlier run of the others."""
        read: list[tuple[Diagnosis, TargetSnapshot, PastRun | None, Iterable[Path]]] = []
        if self._paths.summaries is not None:
            self._paths.summaries.want(each.name for each in targets if each.kind is TargetKind.JOB)
        for target in targets:
            try:
                snapshot, history, diagnosis, files = self._read(target, queue)
                this = self._past.note(snapshot, history, diagnosis)
                seen = stacks_kept.with_stacks(diagnosis, snapshot, self._settings)
                read.append((seen, snapshot, this, _paths_read(target, snapshot, files)))
            except UserError as error:
                # The reason stands in the place of this diagnosis, and the other targets are judged all the
                # same.
                because = NotMeasured("job", error.message, error.hint or "name its log file")
                diagnosis = Diagnosis(target.name, None, (), (because,))
                read.append((diagnosis, TargetSnapshot(target.name, None), None, ()))
        return [
            Judged(self._as_told(self._beside_others(diagnosis, snapshot, this), paths), snapshot)
            for diagnosis, snapshot, this, paths in read
        ]

    def _as_told(self, diagnosis: Diagnosis, paths: Iterable[Path]) -> Diagnosis:
        """Withhold the diagnosis of an open drill also if only one file of its run was named."""
        for path in paths:
            diagnosis = as_told(diagnosis, run_around(self._io, path), self._drills)
        return diagnosis

    def _beside_others(
        self, diagnosis: Diagnosis, snapshot: TargetSnapshot, this: PastRun | None
    ) -> Diagnosis:
        told = self._with_past(diagnosis, snapshot, this)
        if not self._settings.is_readonly:
            share_diagnosis(snapshot.run, told)
        return told

    def _with_past(self, diagnosis: Diagnosis, snapshot: TargetSnapshot, this: PastRun | None) -> Diagnosis:
        """Add the findings of earlier runs and the site's advice; withhold everything if the drill is
        open."""
        found = () if this is None else self._past.findings(self._engine.rules, snapshot, this)
        advised = with_advice(joined(diagnosis, found), self._settings.advice)
        return as_told(advised, snapshot.run, self._drills)

    def _read(
        self, target: Target, queue: JobList | None = None
    ) -> tuple[TargetSnapshot, History, Diagnosis, ForeignFiles | None]:
        is_foreign = target.kind in (TargetKind.JOB, TargetKind.DIRECTORY)
        files = foreign_files(target, self._io, self._paths) if is_foreign else None
        snapshot, history = read_once(
            *(target, self._settings, self._io, self._backend, self._user, signatures(self._engine.rules)),
            queue=queue,
            output_paths=self._paths,
            files=files,
            ended_as=self._ended_as,
        )
        binary = [tail.file for tail in snapshot.log_tails if tail.is_binary]
        if binary and snapshot.run is None and snapshot.job is None:
            raise UserError(
                f"{printable(target.name)}: a binary file, not a log", "give a text log, a run or a job id"
            )
        return snapshot, history, self._engine.diagnose(snapshot, history), files

    def _read_past(self, past: Run | Job) -> tuple[TargetSnapshot, History, Diagnosis]:
        if isinstance(past, Job):
            self._paths.learn([past])
            if self._paths.summaries is not None:
                self._paths.summaries.leave(past.job_id)  # only its end is needed of an earlier run
            target = Target(past.job_id, TargetKind.JOB)
        else:
            target = Target(past.run_id, TargetKind.RUN, Path(past.run_dir))
        snapshot, history, diagnosis, _ = self._read(target, rows_of(past))
        self._engine.forget(target.name)
        return snapshot, history, diagnosis


def _paths_read(target: Target, snapshot: TargetSnapshot, files: ForeignFiles | None) -> set[Path]:
    """Paths of the files that were read, also of those given by another name or as standard input."""
    paths = [*target.logs, *target.metrics]
    if target.kind is TargetKind.STDIN:
        paths.append(_STDIN_PATH)
    elif snapshot.run is None:
        paths += [Path(tail.file) for tail in snapshot.log_tails]
        paths += [target.path] if target.path is not None else []
    if target.kind is TargetKind.DIRECTORY and files is not None:
        paths += files.metrics()
    return {path.resolve() for path in paths}


def _files_read(snapshot: TargetSnapshot, files: ForeignFiles) -> FilesRead:
    logs = [
        ReadFile(file.path, file.problem or (None if file.is_found else "no such file, or not yet"))
        for file in snapshot.log_files
    ]
    return FilesRead((*logs, *(ReadFile(str(path)) for path in files.metrics())), tuple(files.lines()))


# Jobs that are judged when nobody names a target: own jobs that run, wait, or ended within a day. The queue
# is asked once for all. Slurm forgets a job minutes after its end: earlier ones are known from run
# directories and from the queues seen by any coach.

ENDED_WITHIN_S = 86400.0
MAX_TARGETS = 200
"""Each target is read whole. Of an array of thousands, tasks that run or went wrong come first, and the
number left out is reported."""


@dataclass(frozen=True, slots=True)
class OwnTargets:
    """`queue` and `output_paths` hold the answers that were needed here, so that nothing is asked again."""

    targets: tuple[Target, ...]
    queue: JobList
    output_paths: OutputPaths
    num_left_out: int


def own_targets(settings: Settings, io: Io, user: str, backend: str) -> OwnTargets:
    """List each job once. Raises UserError if the queue does not answer."""
    jobs = _ask(settings, io, user, backend)
    since_s = io.now() - ENDED_WITHIN_S
    known = list_runs(io, settings.runs_root, run_index(settings))
    recent = [
        job for job in without_rests(jobs) if not is_final(job.state) or _is_since(job.end_time_s, since_s)
    ]
    recent.sort(key=_rank)
    targets = [locate_target(job.job_id, settings, io, known, job) for job in recent[:MAX_TARGETS]]
    taken = {str(target.path) for target in targets}
    targets += [
        Target(run.run_id, TargetKind.RUN, Path(run.run_dir))
        for run in known
        if run.backend == backend and run.run_dir not in taken and _has_ended_since(run, since_s, settings)
    ]
    paths = output_paths_of(io, settings)
    paths.learn(jobs)
    gone = list(_gone(settings, io, user, jobs, known, since_s)) if backend == "slurm" else []
    paths.learn(gone)
    targets += [Target(job.job_id, TargetKind.JOB) for job in gone]
    ended = [job for job in gone if is_final(job.state)]
    num_left_out = max(0, len(recent) - MAX_TARGETS) + max(0, len(targets) - MAX_TARGETS)
    queue = JobList((*jobs, *ended), False, has_outputs=backend == "slurm")
    return OwnTargets(tuple(targets[:MAX_TARGETS]), queue, paths, num_left_out)


def targets_of(user: str, settings: Settings, io: Io, backend: str) -> OwnTargets:
    """List another user's jobs: those that Slurm still knows. Raises UserError if the queue does not
    answer."""
    if backend != "slurm":
        raise UserError(f"--user {user}: the local backend lists your own runs only")
    jobs = _ask(settings, io, user, backend)
    since_s = io.now() - ENDED_WITHIN_S
    recent = [job for job in jobs if not is_final(job.state) or _is_since(job.end_time_s, since_s)]
    recent.sort(key=_rank)
    known = list_runs(io, settings.runs_root, run_index(settings))
    paths = output_paths_of(io, settings)
    paths.learn(jobs)
    targets = tuple(locate_target(job.job_id, settings, io, known, job) for job in recent[:MAX_TARGETS])
    queue = JobList(jobs, False, has_outputs=True)
    return OwnTargets(targets, queue, paths, max(0, len(recent) - MAX_TARGETS))


def _rank(job: Job) -> tuple[bool, bool]:
    """Sorts the jobs that run first, then those that went wrong."""
    return job.state != "RUNNING", job.state in ("PENDING", "COMPLETED")


def _ask(settings: Settings, io: Io, user: str, backend: str) -> tuple[Job, ...]:
    for reading in jobs_source(io, backend, settings, user).poll():
        if reading.error is not None:
            raise UserError(reading.error)
        if isinstance(reading.payload, JobList):
            return reading.payload.jobs
    return ()


def _has_ended_since(run: Run, since_s: float, settings: Settings) -> bool:
    is_here = not is_of_another_cluster(run, known_cluster(settings))
    return is_here and is_final(run.state) and _is_since(run.ended_time_s, since_s)


def _is_since(time_s: float | None, since_s: float) -> bool:
    return time_s is not None and time_s >= since_s


def _gone(
    settings: Settings, io: Io, user: str, jobs: tuple[Job, ...], known: tuple[Run, ...], since_s: float
) -> Iterator[Job]:
    """Jobs that coach did not launch and the queue has forgotten, the newest of each job id. A job without a
    known output file is left out: there is nothing to read."""
    memory = SeenJobs(settings.cache_dir)
    remember_jobs(memory, jobs, user, io.now())
    told = {job.job_id for job in jobs} | {run.job_id for run in known}
    for seen in memory.read()[0]:
        job = seen.job
        when_s = job.end_time_s if job.end_time_s is not None else seen.last_seen_s
        if job.job_id in told or "[" in job.job_id or job.stdout is None or job.state == "PENDING":
            continue
        told.add(job.job_id)
        if job.user == user and _is_since(when_s, since_s):
            yield job
