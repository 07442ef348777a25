"""Measure the files that coach keeps in addition to the records of runs: copies of its code, profiles, its
cache.

They are never thinned. Jobs start from the code, a profile was requested and is useless in part, and the
cache is small and can be rebuilt. They are counted to show where files and space go.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from coach import runs
from coach.model.training.records import Volume

MAX_FILES = 20_000
"""Largest number of files that are counted: a profile may have thousands."""
_OWN_FOLDERS = ("answers", "resubmit", "stacks", "verdicts")
"""Folders of the cache directory to count; it also holds data and the caches of libraries."""


@dataclass(frozen=True, slots=True)
class Kept:
    """One kind of these files."""

    what: str
    volume: Volume
    is_whole: bool = True
    """False if there are more files than were counted."""


def look_beside(runs_root: Path, cache_dir: Path) -> tuple[Kept, ...]:
    """The sizes of code, profiles and cache. A folder that is missing or unreadable counts as empty."""
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
            continue  # it was removed meanwhile
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
