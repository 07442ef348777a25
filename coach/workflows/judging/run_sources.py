"""The sources that follow a run: its record, metrics, telemetry and logs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from coach.model.training.log import Signature
from coach.sources.base import PollingSource
from coach.sources.io import Io, for_folder
from coach.sources.logs.log_source import LogSource
from coach.sources.logs.run_outputs import RunLogs
from coach.sources.metrics.flight_recorder import FlightRecorderSource
from coach.sources.metrics.stack_samples import StackSamplesSource
from coach.sources.metrics.telemetry_files import TelemetrySource
from coach.sources.runs.run_files import RunFilesSource
from coach.workflows.judging.directory_files import ForeignFiles
from coach.workflows.judging.program_files import run_dumps, run_metrics

if TYPE_CHECKING:
    from coach.model.training.run import Run
    from coach.sources.logs.job_outputs import OutputPaths
    from coach.sources.runs.local_process import Look

Signatures = Callable[[], Sequence[Signature]]
SourceFactory = Callable[[], PollingSource]


def run_sources(
    io: Io,
    name: str,
    run_dir: Path,
    output_paths: OutputPaths,
    list_runs: Callable[[], Sequence[Run]],
    look: Look,
    signatures: Signatures,
    logs: Sequence[Path],
    metrics: Sequence[Path],
) -> Mapping[str, SourceFactory]:
    """The sources by `source:target`. `logs` and `metrics` that are named replace those that would be found.
    `list_runs` returns all runs in the directory of the runs."""
    io = for_folder(io, run_dir, (*logs, *metrics))
    own = RunLogs(io, run_dir, output_paths.of)
    dumps = ForeignFiles(io, lambda: run_dumps(io, run_dir, output_paths, list_runs))
    return {
        f"run:{name}": lambda: RunFilesSource(io, name, run_dir, look),
        f"metrics:{name}": lambda: run_metrics(io, name, run_dir, own, list_runs, metrics),
        f"telemetry:{name}": lambda: TelemetrySource(io, name, run_dir),
        f"stacks:{name}": lambda: StackSamplesSource(io, name, run_dir),
        f"flight:{name}": lambda: FlightRecorderSource(io, name, dumps.dumps),
        f"log:{name}": lambda: LogSource(
            io, name, lambda: logs or own.paths(), signatures, start_of=own.start_of
        ),
    }
