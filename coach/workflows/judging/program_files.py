"""Find the metric files of an own program that coach launched.

Every file in the run directory belongs to the run. Programs more often write elsewhere: into the directory
that the command line names, or below the one where they were started. Another run may write there at the same
time; then no file is taken, because a curve of two trainings is wrong for both, and `left_aside` reports it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from coach.model.errors import UserError
from coach.model.training.run import Run
from coach.sources.io import Io
from coach.sources.logs.own_metrics import ProgramMetricsSource, RunMetricsSource
from coach.sources.logs.printed_metrics import PrintedMetrics, end_of_log
from coach.sources.logs.run_outputs import RunLogs
from coach.sources.metrics.foreign_metrics import ForeignMetricsSource
from coach.sources.runs.run_files import read_run
from coach.workflows.judging.job_files import Kind, Window, find_files, kind_of_program

_AGAIN_S = 120.0
_OUTPUT_OPTION = re.compile(
    r"(?:--?|\+{0,2}|(?<=\.))"
    r"(?:(?:output|out|logging|log|save|work|run|results?|experiment|exp|tensorboard|tb)[_-]?"
    r"(?:dir|path|folder)|default_root_dir|logdir|hydra\.run\.dir)(?:=(.+))?",
    re.IGNORECASE,
)
"""Options by which frameworks name the directory for a run's results."""


class ProgramFiles:
    """The files; searched again from time to time, because they appear after the training has begun.

    `runs` returns the user's other runs; it is called only if the directory is not the run's own.
    """

    def __init__(self, io: Io, run_dir: Path, runs: Callable[[], Sequence[Run]]) -> None:
        self._io = io
        self._run_dir = run_dir
        self._runs = runs
        self._looked_s = -math.inf
        self._found: tuple[Path, ...] = ()
        self.left_aside = ""
        """The files that another run may have written, and that run; empty if every file is this run's."""

    def metrics(self) -> tuple[Path, ...]:
        """TensorBoard events, CSV, JSON lines and trainer_state.json that certainly belong to this run."""
        if not self._looked_s <= self._io.now() < self._looked_s + _AGAIN_S:
            self._found, self._looked_s = self._look(), self._io.now()
        return self._found

    def _look(self) -> tuple[Path, ...]:
        self.left_aside = ""
        inside = find_files(self._io, self._run_dir, kind_of_program, stays_inside=True).of(Kind.METRICS)
        if inside:
            return inside
        try:
            run = read_run(self._io, self._run_dir)
        except (OSError, UserError):
            return ()
        start_s = run.started_time_s or run.created_time_s
        places = places_of(run)
        if start_s is None or not places:
            return ()
        window = Window(start_s, run.ended_time_s or math.inf)
        for other in self._runs():
            if other.run_dir == run.run_dir or not _do_meet(places, places_of(other)):
                continue
            other_start_s = other.started_time_s or other.created_time_s
            if other_start_s is not None and window.is_shared_with(
                other_start_s, _end_of(other, other_start_s)
            ):
                files = self._files_of(places, window)
                self.left_aside = _said_aside(files, other, places) if files else ""
                return ()
        return self._files_of(places, window)

    def _files_of(self, places: Sequence[Path], window: Window) -> tuple[Path, ...]:
        return tuple(
            path
            for place in places
            for path in find_files(self._io, place, kind_of_program, window).of(Kind.METRICS)
        )


def _said_aside(files: Sequence[Path], other: Run, places: Sequence[Path]) -> str:
    """For example `metrics.csv and 2 more files in /srv/code may be of run y, which …`."""
    place = next((place for place in places if files[0].is_relative_to(place)), files[0].parent)
    more = f" and {len(files) - 1} more" if len(files) > 1 else ""
    return (
        f"{files[0].relative_to(place)}{more} in {place} may be of run {other.run_id}, which wrote there at "
        "the same time: not read"
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
    files = ProgramFiles(io, run_dir, runs)
    program = ProgramMetricsSource(io, target, printed, files.metrics, lambda: files.left_aside)
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


def _end_of(run: Run, start_s: float) -> float:
    """When the run ended. One that is over but has no end time counts as ended at its start."""
    is_over = run.state is not None and run.state not in ("PENDING", "RUNNING", "COMPLETING")
    return run.ended_time_s or (start_s if is_over else math.inf)


def places_of(run: Run) -> tuple[Path, ...]:
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


def _do_meet(places: Sequence[Path], others: Sequence[Path]) -> bool:
    return any(
        place.is_relative_to(other) or other.is_relative_to(place) for place in places for other in others
    )
