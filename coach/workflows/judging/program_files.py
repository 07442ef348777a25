"""Find the metric files of an own program that coach launched.

Every file in the run directory belongs to the run. Programs more often write elsewhere: into the directory
that the command line names, or below the one where they were started. Another run may write there at the same
time; then no file is taken, because a curve of two trainings is wrong for both, and `left_aside` reports it.
"""

from __future__ import annotations

import errno
import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from coach.model.errors import UserError
from coach.model.slurm.cluster import is_final
from coach.model.training.run import Run
from coach.sources.io import Io
from coach.sources.logs.job_outputs import OutputPaths
from coach.sources.logs.own_metrics import ProgramMetricsSource, RunMetricsSource
from coach.sources.logs.printed_metrics import PrintedMetrics, end_of_log
from coach.sources.logs.run_outputs import RunLogs
from coach.sources.metrics.foreign_metrics import ForeignMetricsSource
from coach.sources.runs.run_files import read_run
from coach.workflows.judging.directory_files import (
    TRAINING_TABLE,
    ForeignFiles,
    Found,
    Kind,
    find_files,
    kind_of,
)
from coach.workflows.judging.job_files import Belonging, Writer, dump_of, dumps_in_cache

_OUTPUT_OPTION = re.compile(
    r"(?:--?|\+{0,2}|(?<=\.))"
    r"(?:(?:output|out|logging|log|save|work|run|results?|experiment|exp|tensorboard|tb)[_-]?"
    r"(?:dir|path|folder)|default_root_dir|logdir|hydra\.run\.dir)(?:=(.+))?",
    re.IGNORECASE,
)
"""Options by which frameworks name the directory for a run's results."""


def _look(io: Io, run_dir: Path, runs: Callable[[], Sequence[Run]]) -> Found:
    """The files that certainly belong to this run. `runs` returns the user's other runs; it is called only if
    the directory is not the run's own."""
    inside = find_files(io, run_dir, _kind_of, stays_inside=True)
    if inside.files:
        return inside
    try:
        run = read_run(io, run_dir)
    except (OSError, UserError):
        return Found(None)
    own = _writer_of(run, _places_of(run))
    if own is None:
        return Found(None)
    others = [_writer_of(other, _places_of(other)) for other in runs() if other.run_dir != run.run_dir]
    belonging = Belonging(io, own, filter(None, others))
    found = [find_files(io, Path(folder), _kind_of, belonging.owns) for folder in own.folders]
    files = tuple(path for each in found for path in each.of(Kind.METRICS))
    return Found(None, {Kind.METRICS: files}, left_out=belonging.left_out)


def run_dumps(io: Io, run_dir: Path, paths: OutputPaths, runs: Callable[[], Sequence[Run]]) -> Found:
    """The flight-recorder dumps in the run's directory, and those in the user's cache that certainly belong
    to this run."""
    found = find_files(io, run_dir, dump_of, stays_inside=True)
    try:
        cached = _cached_dumps(io, read_run(io, run_dir), paths, runs)
    except (OSError, UserError):
        cached = ()
    return replace(found, files={Kind.DUMP: (*found.of(Kind.DUMP), *cached)})


def _cached_dumps(
    io: Io, run: Run, paths: OutputPaths, runs: Callable[[], Sequence[Run]]
) -> tuple[Path, ...]:
    """Raises OSError if the jobs that ran beside the run are not known."""
    own = _writer_of(run, (Path("/"),))
    if own is None or io.owner_of(Path(run.run_dir)) != os.geteuid():
        return ()

    def others() -> Iterator[Writer]:
        for other in runs():
            writer = _writer_of(other, (Path("/"),)) if other.run_dir != run.run_dir else None
            if writer is not None:
                yield writer
        if run.backend == "slurm":
            job = paths.row(run.job_id or "")
            if job is None:
                raise OSError(errno.EIO, f"the jobs beside run {run.run_id} are not known")
            yield from (Writer.of(each) for each in paths.others(job) if each.user == job.user)

    return dumps_in_cache(io, own, others)


def _kind_of(path: str) -> Kind | None:
    is_metrics = kind_of(path) is Kind.METRICS or TRAINING_TABLE.search(path)
    return Kind.METRICS if is_metrics else None


def _writer_of(run: Run, places: Sequence[Path]) -> Writer | None:
    """A run and the directories for its results; None if they or its start are not known."""
    start_s = run.started_time_s or run.created_time_s
    if start_s is None or not places:
        return None
    # A run that is over but has no end time counts as ended at its start.
    end_s = run.ended_time_s or (start_s if is_final(run.state) else math.inf)
    return Writer(run.run_id, tuple(f"{place}/" for place in places), start_s, end_s)


def _said_aside(found: Found) -> str:
    """The files that another run may have written, and that run; empty if every file is this run's. For
    example `metrics.csv and 2 more files in /srv/code may be of run y, which …`."""
    if not found.left_out:
        return ""
    (first, others), more = next(iter(found.left_out.items())), len(found.left_out) - 1
    files = f"{first.name} and {more} more files" if more else first.name
    return (
        f"{files} in {first.parent} may be of run {others[0]}, which wrote there at the same time: not read"
    )


def run_metrics(
    io: Io,
    target: str,
    run_dir: Path,
    logs: RunLogs,
    runs: Callable[[], Sequence[Run]],
    named: Sequence[Path] = (),
) -> RunMetricsSource | ForeignMetricsSource:
    """The source of a run's metrics, for any trainer. Reads only the `named` files, if there are any."""
    if named:
        return ForeignMetricsSource(io, target, lambda: named)
    printed = PrintedMetrics(io, logs.paths, logs.start_of)
    files = ForeignFiles(io, partial(_look, io, run_dir, runs))
    program = ProgramMetricsSource(io, target, printed, files.metrics, lambda: _said_aside(files.last))
    return RunMetricsSource(io, target, run_dir, logs.is_own_program, program)


def foreign_metrics(
    io: Io,
    target: str,
    files: Callable[[], Sequence[Path]],
    logs: Callable[[], Sequence[Path]] | None = None,
) -> ProgramMetricsSource | ForeignMetricsSource:
    """The source of the metrics of a training that coach did not launch: the numbers that it prints into
    `logs`, or else its `files`. Without logs only the files."""
    if logs is None:
        return ForeignMetricsSource(io, target, files)
    printed = PrintedMetrics(io, logs, lambda path: end_of_log(io, path))
    return ProgramMetricsSource(io, target, printed, files)


def _places_of(run: Run) -> tuple[Path, ...]:
    """The directories that an own program's command line names for its results, else the one in which it was
    started. Empty for a recipe's run."""
    own = run.launch.get("own")
    if not isinstance(own, dict):
        return ()
    directory, words = own.get("directory"), own.get("words")
    if not isinstance(directory, str) or not isinstance(words, list):
        return ()
    named = tuple(Path(directory, word).absolute() for word in _named([str(word) for word in words]))
    return named or (Path(directory),)


def _named(words: Sequence[str]) -> Iterator[str]:
    for index, word in enumerate(words):
        found = _OUTPUT_OPTION.fullmatch(word)
        if found is None:
            continue
        value = found[1] if found[1] is not None else next(iter(words[index + 1 : index + 2]), "")
        if value and value[0] not in "-$~":
            yield value
