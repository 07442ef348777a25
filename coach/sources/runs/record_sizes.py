"""Measure the records of each run, a few at a time, and keep the sizes of runs that do not change.

Logs, checkpoints and profiles are no records. All runs together may need thousands of requests to a shared
file server, so each call makes only a limited number, and the next call continues.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from coach import runs
from coach.model.training.records import RunRecords, Volume
from coach.sources.values import table, whole

FILE_NAME = "record-sizes.json"
_NOT_RECORDS = frozenset({"stdout.log", "stderr.log"})
_PARTS = ("old", "telemetry", "metrics", "other")


class RecordSizes:
    """Sizes of the records of all runs below a root. `look` continues measuring, `save` stores the
    results."""

    def __init__(self, runs_root: Path, cache_dir: Path) -> None:
        self._root = runs_root
        self._file = cache_dir / FILE_NAME
        self._waiting: list[str] | None = None
        self._found: dict[str, RunRecords] = {}
        self._num_operations = 0
        try:
            self._kept = dict(table(runs.read_json(self._file).get("records")))
        except runs.RunFileError:
            self._kept = {}

    def look(self, max_operations: int) -> tuple[RunRecords, ...] | None:
        """Measure runs until all are known, or until about `max_operations` requests were made. Returns the
        records of all runs, or None if some are still unknown. Raises OSError if the root cannot be read.

        The call after a complete result starts anew.
        """
        self._num_operations = 0
        if self._waiting is None:
            self._waiting = self._run_ids()
            self._found = {}
        while self._waiting:
            if self._num_operations >= max_operations:
                return None
            run_id = self._waiting.pop()
            records = self._records_of(run_id)
            if records is not None:
                self._found[run_id] = records
        self._waiting = None
        return tuple(self._found[run_id] for run_id in sorted(self._found))

    def save(self) -> None:
        """Store the results. If they cannot be stored, the next look measures again."""
        kept = {run_id: entry for run_id, entry in self._kept.items() if run_id in self._found}
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            runs.write_json(self._file, {"schema": runs.SCHEMA, "records": kept})

    def _run_ids(self) -> list[str]:
        """The directories of runs below the root, without links. The newest come first: `look` begins at the
        end, with the oldest."""
        self._num_operations += 1
        try:
            with os.scandir(self._root) as entries:
                names = [
                    entry.name
                    for entry in entries
                    if runs.RUN_ID.match(entry.name) and entry.is_dir(follow_symlinks=False)
                ]
        except FileNotFoundError:
            return []
        return sorted(names, reverse=True)

    def _records_of(self, run_id: str) -> RunRecords | None:
        run_dir = self._root / run_id
        age = self._age(run_dir)
        if age is None:
            return None
        entry = self._kept.get(run_id)
        if isinstance(entry, list) and entry[: len(age)] == age:
            numbers = [whole(value) or 0 for value in entry[len(age) :]]
            if len(numbers) == 2 * len(_PARTS):
                volumes = [Volume(*numbers[index : index + 2]) for index in range(0, len(numbers), 2)]
                return RunRecords(run_id, *volumes)
        paths = runs.RunPaths(run_dir)
        other = self._count(run_dir) + self._count(paths.stacks_dir, and_below=True)
        found = RunRecords(
            run_id,
            old=self._count(paths.telemetry_dir / "old"),
            telemetry=self._count(paths.telemetry_dir),
            metrics=self._count(paths.metrics_dir),
            other=other,
        )
        if paths.exit_json.exists():  # while a run writes, its files grow but its directories stay the same
            volumes = [found.old, found.telemetry, found.metrics, found.other]
            counts = [number for volume in volumes for number in (volume.num_files, volume.size_bytes)]
            self._kept[run_id] = [*age, *counts]
        return found

    def _age(self, run_dir: Path) -> list[int] | None:
        """Modification times that change when files are added, removed or replaced. None for another user's
        run."""
        paths = runs.RunPaths(run_dir)
        ages = []
        for folder in (run_dir, paths.telemetry_dir, paths.telemetry_dir / "old", paths.metrics_dir):
            self._num_operations += 1
            try:
                found = folder.lstat()
            except OSError:
                ages.append(0)
                continue
            if folder == run_dir and found.st_uid != os.geteuid():
                return None
            ages.append(found.st_mtime_ns)
        return ages

    def _count(self, folder: Path, *, and_below: bool = False) -> Volume:
        """The files directly in a directory; with `and_below` also those in its directories. A link counts as
        empty, and so does a file that vanishes meanwhile."""
        total, below = Volume(), []
        self._num_operations += 1
        if folder.is_symlink():
            return total
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                self._num_operations += 1
                if and_below and entry.is_dir(follow_symlinks=False):
                    below.append(folder / entry.name)
                if entry.name in _NOT_RECORDS or not entry.is_file(follow_symlinks=False):
                    continue
                with contextlib.suppress(FileNotFoundError):
                    total += Volume(1, entry.stat(follow_symlinks=False).st_size)
        return sum(map(self._count, below), total)
