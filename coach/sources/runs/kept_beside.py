"""What coach keeps beside the records of runs: copies of its code, profiles, and files of its cache.

None of it is thinned. Code is what a job starts from, a profile was asked for and is of no use in part, and a
cache is small and made again. It is counted so that a person knows where files and space go.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from coach import runs
from coach.model.training.records import Volume

MAX_FILES = 20_000
"""So many are looked at: a profile may be thousands of files."""
_OWN_FOLDERS = ("answers", "resubmit", "stacks", "verdicts")
"""Of the cache directory, where data and the caches of libraries lie as well."""


@dataclass(frozen=True, slots=True)
class Kept:
    """One kind of what is kept."""

    what: str
    volume: Volume
    is_whole: bool = True
    """False where there is more than was looked at."""


def look_beside(runs_root: Path, cache_dir: Path) -> tuple[Kept, ...]:
    """Code, profiles and cache. A place that is not there, or cannot be read, holds nothing."""
    profiles = (runs_root / name / "profile" for name in _names(runs_root) if runs.RUN_ID.match(name))
    own = (cache_dir / name for name in _OWN_FOLDERS)
    return (
        _kept("code of launches", _below(runs_root / runs.CODE_FOLDER)),
        _kept("profiles", (path for folder in profiles for path in _below(folder))),
        _kept("cache", (*_files(cache_dir), *(path for folder in own for path in _below(folder)))),
    )


def _kept(what: str, paths: Iterator[Path] | tuple[Path, ...]) -> Kept:
    num_files = size_bytes = 0
    for path in paths:
        if num_files == MAX_FILES:
            return Kept(what, Volume(num_files, size_bytes), is_whole=False)
        try:
            size_bytes += path.lstat().st_size
        except OSError:
            continue  # it has gone meanwhile
        num_files += 1
    return Kept(what, Volume(num_files, size_bytes))


def _names(folder: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []


def _files(folder: Path) -> tuple[Path, ...]:
    try:
        return tuple(Path(entry.path) for entry in os.scandir(folder) if entry.is_file(follow_symlinks=False))
    except OSError:
        return ()


def _below(folder: Path) -> Iterator[Path]:
    if not folder.is_symlink():
        for place, _, names in os.walk(folder):
            yield from (Path(place, name) for name in names)
