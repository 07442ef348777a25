"""Find the file system of a path in the kernel's own list, because the file system itself may hang."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

from coach.trusted import read_small

_MOUNTS = Path("/proc/self/mountinfo")
_OCTAL = re.compile(r"\\([0-7]{3})")


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
