"""Read the files of several runs, to compare the runs. Each run is read at most once."""

from __future__ import annotations

from pathlib import Path

from coach.config import Settings
from coach.lookback.history import History
from coach.model.errors import UserError
from coach.model.snapshot import TargetSnapshot
from coach.model.training.run import Run
from coach.sources.io import Io
from coach.sources.machine.user import user_name
from coach.sources.runs.run_index import RunIndex
from coach.workflows.judging.one_reading import read_once
from coach.workflows.judging.targets import Target, TargetKind, list_runs


class RunReader:
    """Reads runs from their files alone: it neither asks Slurm's queue nor searches logs."""

    def __init__(self, settings: Settings, io: Io, backend: str) -> None:
        self._settings, self._io, self._backend = settings, io, backend
        self._read: dict[str, tuple[TargetSnapshot, History] | None] = {}

    def known(self) -> tuple[Run, ...]:
        """All runs, the newest first."""
        root = self._settings.runs_root
        return list_runs(self._io, root, RunIndex(self._settings.cache_dir, root))

    def read(self, run: Run) -> tuple[TargetSnapshot, History] | None:
        """The run's data; None if its files are gone or cannot be read."""
        if run.run_id not in self._read:
            target = Target(run.run_id, TargetKind.RUN, Path(run.run_dir))
            asked = (target, self._settings, self._io, self._backend, user_name(), ())
            try:
                self._read[run.run_id] = read_once(*asked, is_queue_asked=False)
            except UserError:
                self._read[run.run_id] = None
        return self._read[run.run_id]
