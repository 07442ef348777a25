"""Check if a directory can be written, and how much space its file system has.

The check is made on the login node before a launch: a full scratch or a read-only home should cost a second
here, not an hour in the queue. It writes nothing, so that every command may run it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from coach.trusted import read_small, why_not_private

_MOUNTS = Path("/proc/self/mountinfo")
_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Space:
    """Free space of a file system for this user. Inodes are None if it does not count them in advance."""

    free_bytes: int
    total_bytes: int
    free_inodes: int | None
    total_inodes: int | None


@dataclass(frozen=True, slots=True)
class RootChoice:
    """The chosen directory, and the reason in one line."""

    path: Path
    text: str
    is_writable: bool


def why_not_writable(path: Path) -> str | None:
    """Why no file can be created in this directory; None if one can. For a directory that does not exist yet,
    its nearest existing parent is checked."""
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


def why_not_kept(path: Path) -> str | None:
    """Why coach keeps nothing in this directory: it cannot be written, or others could change what is in it.
    None if it can be used."""
    problem = why_not_writable(path)
    if problem is not None:
        return problem
    try:
        problem = why_not_private(path)
    except OSError as error:
        problem = error.strerror
    return f"{path}: {problem}" if problem is not None else None


def choose_root(
    candidates: Sequence[tuple[Path, str]], why_not: Callable[[Path], str | None] = why_not_writable
) -> RootChoice:
    """The first writable candidate. If there is none, the last one, so that the error names a place that the
    user knows.

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
    """The space for files below a directory, which need not exist; None if unknown."""
    try:
        found = os.statvfs(_nearest_existing(path))
    except (OSError, ValueError):
        return None
    if not found.f_blocks:
        return None  # a pseudo file system
    has_inodes = (
        found.f_files > 0
    )  # btrfs and some network file systems create inodes on demand, and report 0
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


def mount_point(path: Path, mounts: str) -> PurePosixPath | None:
    """The nearest mount point above an absolute path, from the text of /proc/self/mountinfo. Does not follow
    links."""
    points = [
        PurePosixPath(_plain(words[4])) for line in mounts.splitlines() if len(words := line.split()) > 4
    ]
    above = [point for point in points if path.is_relative_to(point)]
    return max(above, key=lambda point: len(point.parts), default=None)


def words_of_hang(path: Path) -> str:
    """The message that the file system of a path does not answer."""
    point = mount_point(path, read_small(_MOUNTS))
    named = path if point is None or point == PurePosixPath("/") else point
    return f"no answer from the file system {named}"


def _plain(word: str) -> str:
    """Decode a path in mountinfo, where blanks and line ends are octal escapes."""
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), word)
