"""Read and judge the trace of a run, or a trace file that a person names."""

from __future__ import annotations

import re
from pathlib import Path

from coach import runs
from coach.analysis.measured.trace_report import report
from coach.config import Settings
from coach.model.errors import UserError
from coach.model.training.trace import TraceReport
from coach.runs import expand_home
from coach.sources.io import Io, for_folder
from coach.sources.metrics.trace_file import read_trace
from coach.workflows.judging.directory_files import Walk
from coach.workflows.judging.targets import TargetKind, resolve_target

_is_trace = re.compile(r"\.json(?:\.gz)?$").search
_DEEPEST = 2
"""Levels below a directory that are searched: TensorBoard's handler makes a folder of its own."""


def trace_report(text: str, settings: Settings, io: Io, backend: str, user: str) -> tuple[Path, TraceReport]:
    """The path and report of the newest trace of a run, a directory or a file. Raises UserError if there is
    none."""
    path = expand_home(text).absolute()
    try:
        if not _is_trace(path.name):
            path, io = _newest(text, path, settings, io, backend, user)
        return path, report(read_trace(io, path))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from None


def _newest(text: str, path: Path, settings: Settings, io: Io, backend: str, user: str) -> tuple[Path, Io]:
    """The newest trace, and the Io that opens it."""
    folder = path
    if not path.is_dir() or (path / "run.json").exists():
        target = resolve_target(text, settings, io, backend, user)
        if target.kind is not TargetKind.RUN or target.path is None:
            raise UserError(
                f"{text}: not a run, nor a folder with traces", "name the trace: a .json or .json.gz file"
            )
        folder, io = runs.RunPaths(target.path).profile_dir, for_folder(io, target.path)
    found = [
        (io.modified_s(folder / name), folder / name)
        for name in Walk(io, folder, _is_trace, max_depth=_DEEPEST).paths()
        if _is_trace(name)
    ]
    if not found:
        raise UserError(
            f"{text}: no trace in {folder}",
            "`coach launch profile` makes one; torch.profiler's export_chrome_trace of your own program too",
        )
    return max(found)[1], io
