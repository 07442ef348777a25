"""The cache of the person who runs the tests. No test may write into it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from coach.runs import default_cache_dir


@dataclass(frozen=True, slots=True)
class OwnCache:
    """The files of a cache as they were at one time."""

    folder: Path
    files: Mapping[str, int]
    """Path below the folder → time of its last change, in nanoseconds."""

    @classmethod
    def of(cls, env: Mapping[str, str]) -> OwnCache:
        """The cache that coach uses with these variables, as it is now."""
        folder = default_cache_dir(env)
        return cls(folder, _files(folder))

    def changed(self) -> list[str]:
        """The files that are new or have changed since, as paths."""
        now = _files(self.folder)
        return sorted(str(self.folder / name) for name in now if now[name] != self.files.get(name))


def _files(folder: Path) -> dict[str, int]:
    found = {}
    for parent, _, names in os.walk(folder):
        for path in (Path(parent, name) for name in names):
            try:
                found[str(path.relative_to(folder))] = path.lstat().st_mtime_ns
            except OSError:
                continue
    return found
