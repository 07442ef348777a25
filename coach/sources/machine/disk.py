"""Whether a directory can be written, and how much room its file system has.

Asked on the login node before anything is launched: a full scratch or a home that is read-only should cost a
second here, not an hour in the queue. Nothing is written to find out, so that every command may ask.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Space:
    """What a file system has left for this user. Inodes are None where it does not count them in advance."""

    free_bytes: int
    total_bytes: int
    free_inodes: int | None
    total_inodes: int | None


@dataclass(frozen=True, slots=True)
class RootChoice:
    """The directory that was taken out of several, and in one line why."""

    path: Path
    text: str
    is_writable: bool


def why_not_writable(path: Path) -> str | None:
    """Why no file can be made in this directory; None when it can. A directory that is not there yet is
    judged by its nearest parent."""
    try:
        existing = _nearest_existing(path)
        if not existing.is_dir():
            return f"{existing} is not a directory"
    except (OSError, ValueError) as error:
        return getattr(error, "strerror", None) or str(error)
    if os.access(existing, os.W_OK | os.X_OK, effective_ids=True):
        return None
    problem = "is on a read-only file system" if _is_read_only(existing) else "cannot be written by you"
    return f"{existing} {problem}" + ("" if existing == path else f", so {path.name} cannot be made in it")


def choose_root(
    candidates: Sequence[tuple[Path, str]], why_not: Callable[[Path], str | None] = why_not_writable
) -> RootChoice:
    """The first candidate that can be written; without any the last, so that the error names a place the user
    knows.

    Each candidate comes with its origin: FILE:LINE, `$SCRATCH`, `home`.
    """
    passed_over: list[str] = []
    for path, origin in candidates:
        problem = why_not(path)
        if problem is None:
            because = f"; passed over: {'; '.join(passed_over)}" if passed_over else ""
            return RootChoice(path, f"{path} ({origin}){because}", is_writable=True)
        passed_over.append(f"{path} ({origin}): {problem}")
    path, origin = candidates[-1]
    return RootChoice(path, f"{path} ({origin}), but none can be written: {'; '.join(passed_over)}", False)


def read_space(path: Path) -> Space | None:
    """The room for files below a directory, made or not; None when nobody can say."""
    try:
        found = os.statvfs(_nearest_existing(path))
    except (OSError, ValueError):
        return None
    if not found.f_blocks:
        return None  # a pseudo file system
    has_inodes = (
        found.f_files > 0
    )  # btrfs and some network file systems make them as they are needed, and say 0
    return Space(
        free_bytes=found.f_bavail * found.f_frsize,
        total_bytes=found.f_blocks * found.f_frsize,
        free_inodes=found.f_favail if has_inodes else None,
        total_inodes=found.f_files if has_inodes else None,
    )


def _nearest_existing(path: Path) -> Path:
    for place in (path, *path.parents):
        try:
            place.stat()
        except FileNotFoundError:
            if place.is_symlink():
                raise FileNotFoundError(2, f"{place} is a link to nowhere") from None
            continue
        except NotADirectoryError:
            continue
        return place
    return Path("/")


def _is_read_only(path: Path) -> bool:
    try:
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except OSError:
        return False
