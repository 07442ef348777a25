"""Measure the size of a run directory: one walk per run; the sizes of ended runs are kept.

A walk makes thousands of requests to a shared file server, so each command has a limit. The sizes of the
remaining runs are unknown until a later command continues. Sizes are those of the files, not of the blocks
that a file system allocates.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from coach import runs
from coach.sources.values import table, whole
from coach.trusted import private_folder

MAX_OPERATIONS = 10_000
MAX_OPERATIONS_PER_RUN = 4_000


class RunSizes:
    """Sizes of runs, requested one by one. `save` stores the results."""

    def __init__(
        self, cache_file: Path, max_operations: int = MAX_OPERATIONS, max_checks: int | None = None
    ) -> None:
        """`max_checks`: number of ended runs, the first ones requested, whose stored size is checked for
        changes; None: all."""
        self._file = cache_file
        self._left = max_operations
        self._checks_left = max_checks
        self._is_changed = False
        self._kept = dict(table(runs.read_json_if_any(cache_file).get("sizes")))

    def size_of(self, run_dir: str | Path, has_ended: bool) -> int | None:
        """Bytes of all files of a run, including its logs; None if unknown."""
        key = str(run_dir)
        entry = self._kept.get(key)
        if has_ended and self._checks_left is not None and isinstance(entry, list):
            if not self._checks_left:
                return whole(entry[-1])
            self._checks_left -= 1
        run_dir = Path(run_dir)
        age = self._age(run_dir) if has_ended else None
        if age is not None and isinstance(entry, list) and entry[:-1] == age:
            return whole(entry[-1])
        size_bytes = self._walk(run_dir)
        if size_bytes is not None and age is not None and age == self._age(run_dir):
            self._kept[key], self._is_changed = [*age, size_bytes], True
        return size_bytes

    def save(self) -> None:
        """Store the sizes of ended runs that still exist. If they cannot be stored, the next command measures
        again."""
        if not self._is_changed:
            return
        # The keys are strings.
        kept = {key: entry for key, entry in self._kept.items() if os.path.isdir(key)}  # noqa: PTH112
        with contextlib.suppress(OSError):
            private_folder(self._file.parent)
            runs.write_json(self._file, {"schema": runs.SCHEMA, "sizes": kept})

    def _age(self, run_dir: Path) -> list[int] | None:
        """Modification times that change when files come or go: the rename of exit.json changes the run
        directory's, checkpoints change that of their folder."""
        paths = runs.RunPaths(run_dir)
        try:
            ages = [run_dir.stat().st_mtime_ns]
        except OSError:
            return None
        try:
            ages.append(paths.checkpoints_dir.stat().st_mtime_ns)
        except OSError:
            ages.append(0)
        self._left -= 2
        return ages

    def _walk(self, run_dir: Path) -> int | None:
        allowed = min(self._left, MAX_OPERATIONS_PER_RUN)
        if allowed <= 0:
            return None
        total = num_operations = 0
        folders = [str(run_dir)]
        try:
            while folders:
                with os.scandir(folders.pop()) as entries:
                    num_operations += 1
                    for entry in entries:
                        num_operations += 1
                        if num_operations > allowed:
                            return None
                        if entry.is_dir(follow_symlinks=False):
                            folders.append(entry.path)
                        elif entry.is_file(follow_symlinks=False):
                            total += entry.stat(follow_symlinks=False).st_size
        except OSError:
            return None
        finally:
            self._left -= num_operations
        return total + sum(size_of_file(log) for log in runs.scheduler_logs(run_dir.parent, run_dir.name))


def size_of_file(path: Path) -> int:
    """Bytes of a file; 0 if it does not exist or is not a regular file."""
    try:
        found = path.lstat()
    except OSError:
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else 0


def size_of_tree(path: Path) -> int | None:
    """Bytes of a file, or of all files below a directory; None if there are too many."""
    total, num_files = size_of_file(path), 0
    for place, _, names in os.walk(path):
        num_files += len(names)
        if num_files > MAX_OPERATIONS_PER_RUN:
            return None
        total += sum(size_of_file(Path(place, name)) for name in names)
    return total
