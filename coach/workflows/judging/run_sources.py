"""The sources that follow a run: its record, metrics, telemetry and logs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from coach.model.training.log import Signature
from coach.model.training.run import Run
from coach.sources.base import PollingSource
from coach.sources.io import Io, for_folder
from coach.sources.logs.job_outputs import OutputPaths
from coach.sources.logs.log_source import LogSource
from coach.sources.logs.run_outputs import RunLogs
from coach.sources.metrics.stack_samples import StackSamplesSource
from coach.sources.metrics.telemetry_files import TelemetrySource
from coach.sources.runs.local_process import Look
from coach.sources.runs.run_files import RunFilesSource
from coach.workflows.judging.program_files import run_metrics

Signatures = Callable[[], Sequence[Signature]]
SourceFactory = Callable[[], PollingSource]


@dataclass(frozen=True, slots=True)
class RunSources:
    """The files of one run. `list_runs` returns all runs in its directory."""

    io: Io
    name: str
    run_dir: Path
    output_paths: OutputPaths
    list_runs: Callable[[], Sequence[Run]]
    look: Look

    def by_key(
        self, signatures: Signatures, logs: Sequence[Path], metrics: Sequence[Path]
    ) -> Mapping[str, SourceFactory]:
        """The sources by `source:target`. Files that are named replace those that would be found."""
        io, name, run_dir = for_folder(self.io, self.run_dir, (*logs, *metrics)), self.name, self.run_dir
        own = RunLogs(io, run_dir, self.output_paths.of)
        return {
            f"run:{name}": lambda: RunFilesSource(io, name, run_dir, self.look),
            f"metrics:{name}": lambda: run_metrics(io, name, run_dir, own, self.list_runs, metrics),
            f"telemetry:{name}": lambda: TelemetrySource(io, name, run_dir),
            f"stacks:{name}": lambda: StackSamplesSource(io, name, run_dir),
            f"log:{name}": lambda: LogSource(
                io, name, lambda: logs or own.paths(), signatures, start_of=own.start_of
            ),
        }
