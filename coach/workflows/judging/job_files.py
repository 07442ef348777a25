"""Find the files of a job that coach did not launch. They are, in this order:

1. the output files that Slurm names;
2. logs that the job's script names, written while it ran;
3. what lies in the job's directory: logs with its number in their path, and files of the names that
   frameworks write, from the time that it ran;
4. the flight-recorder dumps in the user's own cache, where torch writes them by default.

Another job's file is never taken (`Belonging`).
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path

from coach.model.slurm.cluster import Job
from coach.runs import expand_home
from coach.sources.io import Io, for_user
from coach.sources.logs.job_outputs import LATE_S, OutputPaths, span_of
from coach.sources.logs.output_path import names_of, output_paths
from coach.sources.logs.script_outputs import named_outputs
from coach.sources.machine.user import user_name
from coach.sources.slurm.kept_script import split_command
from coach.workflows.judging.directory_files import ForeignFiles, Found
from coach.workflows.judging.directory_files import Kind as Kind
from coach.workflows.judging.directory_files import find_files as find_files
from coach.workflows.judging.directory_files import kind_of as kind_of

_SKEW_S = 60.0
"""Seconds by which the clocks of nodes and file servers may differ."""
_MAX_SCRIPT_BYTES = 1 << 16

_NUMBER = re.compile(
    r"(?:node|host|gpu|cpu|rank|worker|epoch|fold)[-_]?\d+"
    r"|(?:(?<![A-Za-z\d])|(?<=job))(?P<job>\d+(?:_\d+)?)(?![A-Za-z\d_])",
    re.IGNORECASE,
)
"""Letters beside a number make it a part of a name: the 2 in `healthy2-9.out`."""
_COUNT = re.compile(r"(?:checkpoint|ckpt|version|step|seed|trial|attempt|iter)[-_]?\d+", re.IGNORECASE)
"""Such a number may be the job's own, but it hardly shows that another job wrote the file."""


def job_numbers(path: str) -> set[str]:
    """The numbers in a path that may be a job's: `17`, or `17_3` for a task of an array."""
    return {found["job"] for found in _NUMBER.finditer(path)}


@dataclass(frozen=True, slots=True)
class Writer:
    """A job or a run, and what shows that a file is its own. Times are epoch seconds."""

    name: str
    folders: tuple[str, ...]
    """The directories to which it writes, as texts that begin the path of each file in them."""
    start_s: float
    end_s: float
    numbers: frozenset[str] = frozenset()
    outputs: tuple[Path, ...] = ()
    """The files that Slurm names."""

    @classmethod
    def of(cls, job: Job) -> Writer:
        array, is_task, _ = job.job_id.partition("_")
        numbers = {job.job_id, job.raw_job_id or job.job_id} - ({array} if is_task else set())
        folder = f"{(job.work_dir or '').rstrip('/')}/"
        return cls(job.job_id, (folder,), *span_of(job), frozenset(numbers), output_paths(job) or ())

    def wrote_at(self, time_s: float, late_s: float = LATE_S) -> bool:
        return self.start_s - _SKEW_S <= time_s <= self.end_s + late_s

    def ran_beside(self, other: Writer) -> bool:
        return other.start_s < self.end_s and other.end_s > self.start_s


class Belonging:
    """Decides which files are a writer's own: those with its number, and those that changed last while it
    ran, and no other in the same directory or below it did. A file that Slurm names as the output of another
    job, or that has its number, is that job's."""

    def __init__(self, io: Io, own: Writer, others: Iterable[Writer]) -> None:
        self.left_out: dict[Path, tuple[str, ...]] = {}
        """Files that may be another's → the names of their possible writers."""
        self._io, self._own, self._others = io, own, tuple(others)
        self._claims = defaultdict[str, list[Writer]](list)
        """Number, or name of an output file → the others that have it."""
        for other in self._others:
            for claim in (*other.numbers, *(path.name for path in other.outputs)):
                self._claims[claim].append(other)
        near = [
            each for each in self._others if any(folder.startswith(own.folders) for folder in each.folders)
        ]
        self.from_s = max(
            [own.start_s - _SKEW_S, *(each.end_s for each in near if each.end_s <= own.start_s)]
        )
        self._to_s = min([own.end_s + LATE_S, *(each.start_s for each in near if each.start_s >= own.end_s)])
        self._rivals = [each for each in near if each.ran_beside(own)]

    def owns(self, path: Path, time_s: float) -> bool:
        """True for a file of the writer's that changed last at this time."""
        name = str(path).removeprefix(self._own.folders[0])
        numbers = job_numbers(_COUNT.sub("", name))
        suspects = (other for claim in (*numbers, path.name) for other in self._claims.get(claim, ()))
        if any(self._is_of(other, path, numbers) for other in suspects if other.wrote_at(time_s)):
            return False
        if self.has_number_in(name):
            return self._own.wrote_at(time_s)
        if not self.from_s <= time_s <= self._to_s:
            return False
        writers = self.writers_of(path, time_s)
        if writers:
            self.left_out[path] = writers
        return not writers

    def has_number_in(self, path: str) -> bool:
        """True if a path has the writer's number."""
        return not job_numbers(path).isdisjoint(self._own.numbers)

    def _is_of(self, other: Writer, path: Path, numbers: set[str]) -> bool:
        return not numbers.isdisjoint(other.numbers) or any(
            each.name == path.name and self._io.real_path(each) == self._io.real_path(path)
            for each in other.outputs
        )

    def writers_of(self, path: Path, time_s: float) -> tuple[str, ...]:
        """Names of the others that may have written a file at a time: in the writer's own directory, those
        with a directory above the file."""
        is_inside = str(path).startswith(self._own.folders)
        return tuple(
            other.name
            for other in self._rivals
            if other.wrote_at(time_s, _SKEW_S) and (not is_inside or str(path).startswith(other.folders))
        )

    def sharers(self) -> tuple[str, ...]:
        """Names of the others that wrote to the same output file at the same time."""
        outputs = set(self._own.outputs)
        sharers = (each for each in self._others if not outputs.isdisjoint(each.outputs))
        return tuple(each.name for each in sharers if each.ran_beside(self._own))


def belonging_of(io: Io, job: Job, paths: OutputPaths) -> Belonging:
    """Decides about the files of a job, beside all jobs that are known."""
    return Belonging(io, Writer.of(job), map(Writer.of, paths.others(job)))


def dumps_in_cache(io: Io, own: Writer, others: Callable[[], Iterable[Writer]]) -> tuple[Path, ...]:
    """The flight-recorder dumps where torch writes them if no other place is named: files of this user,
    written while the job ran and no other job of the user did. Their names hold no job. `others` is
    called only if there are dumps of that time.

    Place: torch/csrc/distributed/c10d/FlightRecorder.cpp (2.9), and torchcomms' TORCHCOMM_FR_DUMP_TEMP_FILE.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or expand_home("~/.cache"))

    def is_of_the_time(path: Path, time_s: float) -> bool:
        return own.wrote_at(time_s) and io.owner_of(path) == os.geteuid()

    places = (cache / "torch", cache)
    found = [find_files(io, place, dump_of, is_of_the_time, max_depth=0).of(Kind.DUMP) for place in places]
    if not any(found):
        return ()
    belonging = Belonging(io, _without_place(own), map(_without_place, others()))
    return tuple(path for path in chain(*found) if belonging.owns(path, io.modified_s(path)))


def _without_place(writer: Writer) -> Writer:
    return replace(writer, folders=("/",), numbers=frozenset(), outputs=())


def dump_of(path: str) -> Kind | None:
    return Kind.DUMP if kind_of(path) is Kind.DUMP else None


def job_dumps_in_cache(io: Io, job: Job, paths: OutputPaths) -> tuple[Path, ...]:
    """The dumps of a job of this user in the user's own cache; none of another user's job."""
    if job.user != user_name():
        return ()

    def others() -> Iterable[Writer]:
        return (Writer.of(other) for other in paths.others(job) if other.user == job.user)

    return dumps_in_cache(io, Writer.of(job), others)


def job_files(
    io: Io,
    job_id: str,
    paths: OutputPaths,
    logs: tuple[Path, ...] = (),
    metrics: tuple[Path, ...] = (),
) -> ForeignFiles:
    """The files of a job, opened for its user."""
    io = for_user(io, lambda: paths.user(job_id), (*logs, *metrics))
    look = partial(_look_for_job, io, job_id, paths)
    return ForeignFiles(io, look, partial(paths.of, job_id), logs, metrics)


def _look_for_job(io: Io, job_id: str, paths: OutputPaths) -> Found:
    job = paths.row(job_id) if "[" not in job_id else None
    if job is None or job.work_dir is None or job.state == "PENDING":
        return Found(None)
    belonging = belonging_of(io, job, paths)
    here = re.escape(f"{job.work_dir.rstrip('/')}/")
    by_script = [pattern.removeprefix(here) for pattern in _named_by_script(io, job, job.work_dir)]
    step_log = partial(_step_log, [rf"(?:.*/)?(?:{pattern})" for pattern in by_script])

    def kind(path: str) -> Kind | None:
        by_name = kind_of(path)
        is_unclear = by_name is None or (by_name is Kind.LOG and not belonging.has_number_in(path))
        return step_log(path) if is_unclear else by_name

    found = find_files(io, Path(job.work_dir), kind, belonging.owns)
    step_logs = list(found.of(Kind.STEP_LOG))
    for pattern in by_script:
        folder, _, name = pattern.rpartition("/")
        if folder.startswith("/"):
            place = Path(re.sub(r"\\(.)", r"\1", folder))
            there = find_files(io, place, partial(_step_log, [name]), belonging.owns, max_depth=0)
            step_logs += there.of(Kind.STEP_LOG)
    return replace(
        found,
        files={
            **found.files,
            Kind.STEP_LOG: tuple(step_logs),
            Kind.DUMP: (*found.of(Kind.DUMP), *job_dumps_in_cache(io, job, paths)),
        },
        left_out=belonging.left_out,
        sharers=belonging.sharers(),
        is_completed=job.state == "COMPLETED",
        does_script_name_logs=bool(by_script),
    )


def _named_by_script(io: Io, job: Job, work_dir: str) -> tuple[str, ...]:
    names = names_of(job)
    if names is None:
        return ()
    try:
        submitted = split_command(io, job.command or "", work_dir)
        script = io.read(submitted[0], 0, _MAX_SCRIPT_BYTES) if submitted else b""
    except (OSError, ValueError):
        return ()
    return named_outputs(script.decode("utf-8", "replace"), names)


def _step_log(patterns: Sequence[str], path: str) -> Kind | None:
    return Kind.STEP_LOG if any(re.fullmatch(pattern, path) for pattern in patterns) else None
