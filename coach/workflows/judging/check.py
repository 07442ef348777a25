"""Read and judge a named target, or all own jobs: the work of `coach check` without its output.

One object serves one command: what it learned for one job (where logs lie, how earlier runs ended) it need
not ask again for the next. When nobody names a target, `own_targets` lists those to judge.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from coach.analysis.comparing.time_to_target import time_to_target
from coach.analysis.jobs.belonging import Parts, is_of_another_cluster, without_rests
from coach.analysis.judging.several_jobs import Judged, whole, worst_first
from coach.analysis.judging.verdict_object import diagnosis_object, kept_object
from coach.analysis.judging.waiting import PENDING
from coach.analysis.spelling.printable import printable
from coach.config import Settings
from coach.lookback.history import History
from coach.model.errors import UserError
from coach.model.judging.finding import Diagnosis, NotMeasured
from coach.model.judging.verdict import PastRun
from coach.model.reading import JobList
from coach.model.slurm.cluster import Job, is_final
from coach.model.snapshot import TargetSnapshot
from coach.model.training.run import Run
from coach.node.secret_words import mask_values
from coach.rules.base import Rule
from coach.sources.io import Io
from coach.sources.logs.job_outputs import OutputPaths
from coach.sources.machine.user import user_name
from coach.sources.runs.seen_jobs import SeenJobs, remember_jobs
from coach.workflows.backend import resolve_backend
from coach.workflows.judging.directory_files import ForeignFiles
from coach.workflows.judging.earlier_runs import rows_of
from coach.workflows.judging.judge import Context, Draft, ReadTarget, among_others, by_itself, judge, rules_of
from coach.workflows.judging.one_reading import read_once
from coach.workflows.judging.targets import (
    Target,
    TargetKind,
    foreign_files,
    jobs_source,
    known_cluster,
    known_runs,
    locate_target,
    output_paths_of,
    resolve_target,
    rows_of_queue,
)
from coach.workflows.judging.why_pending import waiting_of
from coach.workflows.sharing import share_diagnosis

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
    history: History = field(default_factory=History)
    """The series that the diagnosis used; empty for a target of several parts."""
    waiting: Mapping[str, Any] | None = None
    """Why a job that has not started waits, as in the public JSON."""
    note: str | None = None
    """A file that has the target's name as well."""

    def as_json(self) -> dict[str, Any]:
        """The public JSON. A whole array also has its tasks, as `jobs`."""
        found: dict[str, Any] = {**diagnosis_object(self.diagnosis)}
        if self.files is not None:
            found |= asdict(self.files)
        run = self.snapshot.run
        if run is not None and run.segments:
            found["segments"] = [asdict(segment) for segment in run.segments]
        target = time_to_target(self.snapshot)
        if target is not None:
            found["time_to_target"] = asdict(target)
        if self.waiting is not None:
            found[PENDING] = dict(self.waiting)
        if self.parts:
            found["jobs"] = [diagnosis_object(part.diagnosis) for part in self.parts]
        return found

    def verdict(self) -> dict[str, Any]:
        """The verdict to keep: the public JSON with the target's end, and with secrets struck from the quoted
        lines."""
        masked: dict[str, Any] = mask_values(kept_object(self.diagnosis, self.as_json()))
        return masked


class Checker:
    """Reads and judges targets for one command. Raises UserError for a mistake in the settings of the
    rules."""

    def __init__(
        self,
        settings: Settings,
        io: Io,
        backend: str | None = None,
        *,
        rules: Sequence[Rule] | None = None,
        ended_as: str | None = None,
        is_alone: bool = False,
    ) -> None:
        """`rules`: None for those of the settings. `ended_as`: the state of a job that Slurm still calls
        COMPLETING. `is_alone`: judge each target by its own content alone, as for a comparison."""
        self._settings = settings
        self._io = io
        self._ended_as = ended_as
        self._context = Context(
            settings, io, rules_of(settings) if rules is None else rules, is_alone=is_alone
        )
        self._backend = resolve_backend(backend or settings.launch.backend, os.environ)
        self._user = user_name()
        self._paths = output_paths_of(io, settings)

    def target(self, text: str, logs: tuple[Path, ...] = (), metrics: tuple[Path, ...] = ()) -> Checked:
        """Judge one target beside its earlier attempts, and tell the cohort. `logs` and `metrics` that are
        named replace those that would be found. Raises UserError if it cannot be read."""
        target = resolve_target(text, self._settings, self._io, self._backend, self._user, self._paths)
        if target.parts is not None:
            if logs or metrics:
                raise UserError(
                    f"{text}: --log and --metrics belong to one task",
                    f"name it: {target.parts.rows[0].job_id}",
                )
            return replace(self._parts(target.name, target.parts), note=target.note)
        read, files = self._read(replace(target, logs=logs, metrics=metrics))
        draft = by_itself(read, self._context)
        self._catch_up(draft.this)
        io = None if read.snapshot.taken_for else self._io  # a pasted job may be another cluster's
        waiting = waiting_of(read.snapshot.job, io, self._paths.known)
        return Checked(
            self._shared(draft), read.snapshot, files, history=read.history, waiting=waiting, note=target.note
        )

    def read_and_judge(self, target: Target, queue: JobList | None = None) -> Checked:
        """Judge a target beside the earlier runs that are known already: none is read, and the cohort is not
        told. `queue`: the answer of Slurm, if it need not be asked. Raises UserError if it cannot be read."""
        read, files = self._read(target, queue)
        return Checked(judge(read, self._context), read.snapshot, files, history=read.history)

    def ended_run(self, run_dir: Path) -> Checked:
        """Judge a run by its files alone, for the job itself at its end: it holds its nodes meanwhile. Raises
        UserError."""
        return self.read_and_judge(Target(run_dir.name, TargetKind.RUN, run_dir), JobList((), False))

    def own_jobs(self, user: str | None = None) -> tuple[list[Judged], int]:
        """The judged own jobs, or those of another user, worst first, and the number left out; one question
        to the queue for all of them. Raises UserError if it does not answer."""
        is_caller = user in (None, self._user)
        own = own_targets(self._settings, self._io, user or self._user, self._backend, is_caller=is_caller)
        self._paths = own.output_paths
        return worst_first(self._judge_all(own.targets, own.queue)), own.num_left_out

    def _parts(self, name: str, parts: Parts) -> Checked:
        rows = sorted(parts.rows, key=_rank)[:MAX_TARGETS]
        self._paths.learn(rows)
        runs = known_runs(self._settings, self._io)
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
        drafts: list[Draft] = []
        if self._paths.summaries is not None:
            self._paths.summaries.want(each.name for each in targets if each.kind is TargetKind.JOB)
        for target in targets:
            try:
                drafts.append(by_itself(self._read(target, queue)[0], self._context))
            except UserError as error:
                # The reason stands in the place of this diagnosis, and the other targets are judged all the
                # same.
                because = NotMeasured("job", error.message, error.hint or "name its log file")
                unread = ReadTarget(TargetSnapshot(target.name, None), History())
                drafts.append(Draft(unread, Diagnosis(target.name, None, (), (because,))))
        return [Judged(self._shared(draft), draft.target.snapshot) for draft in drafts]

    def _shared(self, draft: Draft) -> Diagnosis:
        """The diagnosis beside all others, which the cohort gets too."""
        diagnosis = among_others(draft, self._context)
        if not self._settings.is_readonly:
            share_diagnosis(draft.target.snapshot.run, diagnosis)
        return diagnosis

    def _read(self, target: Target, queue: JobList | None = None) -> tuple[ReadTarget, FilesRead | None]:
        is_foreign = target.kind in (TargetKind.JOB, TargetKind.DIRECTORY)
        files = foreign_files(target, self._io, self._paths) if is_foreign else None
        snapshot, history = read_once(
            *(target, self._settings, self._io, self._backend, self._user, self._context.signatures()),
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
        read = ReadTarget(snapshot, history, _paths_read(target, snapshot, files))
        return read, None if files is None else _files_read(snapshot, files)

    def _catch_up(self, this: PastRun | None) -> None:
        """Judge the earlier attempts of this run that nobody has judged, if one of them could explain it."""
        past = self._context.past
        if past is None or this is None or (this.failure is None and this.samples_per_s is None):
            return
        known = known_runs(self._settings, self._io)
        past.catch_up(this, known, self._judge_past)

    def _judge_past(self, past: Run | Job) -> None:
        """Judge an earlier run or job by itself, so that its end is remembered. Raises UserError."""
        if isinstance(past, Job):
            self._paths.learn([past])
            if self._paths.summaries is not None:
                self._paths.summaries.leave(past.job_id)  # only its end is needed of an earlier run
            target = Target(past.job_id, TargetKind.JOB)
        else:
            target = Target(past.run_id, TargetKind.RUN, Path(past.run_dir))
        by_itself(self._read(target, rows_of(past))[0], self._context)
        self._context.forget([target.name])


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


def own_targets(settings: Settings, io: Io, user: str, backend: str, *, is_caller: bool = True) -> OwnTargets:
    """List each job of the user once; for somebody else (`is_caller` is False), those that Slurm still knows.
    Raises UserError if the queue does not answer."""
    if not is_caller and backend != "slurm":
        raise UserError(f"--user {user}: the local backend lists your own runs only")
    jobs = rows_of_queue(jobs_source(io, backend, settings, user))
    since_s = io.now() - ENDED_WITHIN_S
    known, paths = known_runs(settings, io), output_paths_of(io, settings)
    recent = [
        job for job in without_rests(jobs) if not is_final(job.state) or _is_since(job.end_time_s, since_s)
    ]
    recent.sort(key=_rank)
    targets = [locate_target(job.job_id, settings, io, known, job) for job in recent[:MAX_TARGETS]]
    paths.learn(jobs)
    gone: list[Job] = []
    if is_caller:
        taken = {str(target.path) for target in targets}
        targets += _ended_runs(known, taken, since_s, settings, backend)
        gone = list(_gone(settings, io, user, jobs, known, since_s)) if backend == "slurm" else []
    paths.learn(gone)
    targets += [Target(job.job_id, TargetKind.JOB) for job in gone]
    ended = [job for job in gone if is_final(job.state)]
    num_left_out = max(0, len(recent) - MAX_TARGETS) + max(0, len(targets) - MAX_TARGETS)
    queue = JobList((*jobs, *ended), False, has_outputs=backend == "slurm")
    return OwnTargets(tuple(targets[:MAX_TARGETS]), queue, paths, num_left_out)


def _rank(job: Job) -> tuple[bool, bool]:
    """Sorts the jobs that run first, then those that went wrong."""
    return job.state != "RUNNING", job.state in ("PENDING", "COMPLETED")


def _ended_runs(
    known: tuple[Run, ...], taken: set[str], since_s: float, settings: Settings, backend: str
) -> Iterator[Target]:
    """The runs of this cluster that have ended since then, without those in the directories `taken`."""
    for run in known:
        is_here = run.backend == backend and not is_of_another_cluster(run, known_cluster(settings))
        if (
            is_here
            and is_final(run.state)
            and _is_since(run.ended_time_s, since_s)
            and run.run_dir not in taken
        ):
            yield Target(run.run_id, TargetKind.RUN, Path(run.run_dir))


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
