"""Read a user's quota: with `quota` for local and NFS file systems, with `lfs quota` for Lustre.

A file system with petabytes of free space may still refuse this user's next byte, and statvfs does not report
that. Both tools may hang on a slow file server, so they get two seconds. If they are missing, or do not know
the file system, the quota is unknown.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from coach.sources.io import Io, Query

TIMEOUT_S = 2.0

_MOUNTS = Path("/proc/self/mounts")
_MAX_MOUNTS_BYTES = 4 << 20
_KIB = 1024
_MAX_DIGITS = 20
"""Lustre prints 18446744073709551615 (20 digits) for no limit."""
_ESCAPED = re.compile(r"\\([0-7]{3})")
_COUNT = r"\[?(?<!\d)(\d{1,20}+)\]?+\*?+"
_LUSTRE = re.compile(
    rf"{_COUNT}\s++(\d{{1,20}}+)\s++(\d{{1,20}}+)\s++\S++\s++"
    rf"{_COUNT}\s++(\d{{1,20}}+)\s++(\d{{1,20}}+)(?:\s|$)"
)


@dataclass(frozen=True, slots=True)
class Quota:
    """Use and limits of one user on one file system. None: no limit. The hard limit is used if there is one,
    else the soft limit."""

    used_bytes: int
    limit_bytes: int | None
    used_files: int
    limit_files: int | None

    @property
    def left_bytes(self) -> int | None:
        return None if self.limit_bytes is None else max(0, self.limit_bytes - self.used_bytes)

    @property
    def left_files(self) -> int | None:
        return None if self.limit_files is None else max(0, self.limit_files - self.used_files)


@dataclass(frozen=True, slots=True)
class Mount:
    """The mount of a path."""

    device: str
    point: str
    kind: str


def parse_quota(text: str) -> Mapping[str, Quota]:
    """Parse the answer of `quota -w -p` into device → quota. Eight columns follow the device; a star marks a
    value over its limit."""
    found: dict[str, Quota] = {}
    for line in text.splitlines():
        device, *columns = line.split()[-9:] or [""]
        numbers = [column.rstrip("*") for column in columns]
        if len(numbers) == 8 and all(map(_is_number, (*numbers[:3], *numbers[4:7]))):
            found[device] = _quota(*(int(numbers[index]) for index in (0, 1, 2, 4, 5, 6)))
    return found


def _is_number(word: str) -> bool:
    return word.isdecimal() and len(word) <= _MAX_DIGITS


def parse_lustre_quota(text: str) -> Quota | None:
    """Parse the answer of `lfs quota -q`: one row, whose path may be on a line of its own; brackets mark
    values that some servers did not report."""
    row = _LUSTRE.search(text)
    return _quota(*map(int, row.groups())) if row else None


def _quota(kib: int, soft_kib: int, hard_kib: int, files: int, soft_files: int, hard_files: int) -> Quota:
    limit_kib = hard_kib or soft_kib  # 0: no limit
    return Quota(kib * _KIB, limit_kib * _KIB if limit_kib else None, files, hard_files or soft_files or None)


def find_mount(path: str, mounts: str) -> Mount | None:
    """The mount of a path, from the text of /proc/self/mounts. Of two mounts at one place the later one hides
    the earlier one."""
    best: Mount | None = None
    for line in mounts.splitlines():
        fields = [_ESCAPED.sub(lambda found: chr(int(found[1], 8)), field) for field in line.split(" ")]
        if len(fields) < 3:
            continue
        device, point, kind = fields[:3]
        is_inside = path == point or path.startswith(point.rstrip("/") + "/")
        if is_inside and (best is None or len(point) >= len(best.point)):
            best = Mount(device, point, kind)
    return best


def read_mount(io: Io, path: Path) -> Mount | None:
    """The mount of a path, which need not exist; None if the system has no list of mounts."""
    try:
        mounts = io.read(_MOUNTS, 0, _MAX_MOUNTS_BYTES).decode("utf-8", "surrogateescape")
        return find_mount(os.path.realpath(path), mounts)
    except OSError:
        return None


def read_quota(io: Io, mount: Mount, user: str) -> Quota | None:
    """Ask once; None if the quota is unknown. A file system that is neither on a disk nor on a file server
    has no quota, and is not asked."""
    if mount.kind == "lustre":
        result = io.run(Query("quota", ("lfs", "quota", "-q", "-u", user, mount.point)), TIMEOUT_S)
        return parse_lustre_quota(result.text)
    if not (mount.device.startswith("/") or ":" in mount.device):
        return None
    # -p prints the grace time as a number, so that every row has all columns. The exit status is 1 if the
    # user is over a quota.
    result = io.run(Query("quota", ("quota", "-w", "-p")), TIMEOUT_S)
    return parse_quota(result.text).get(mount.device)
