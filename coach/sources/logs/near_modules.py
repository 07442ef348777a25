"""Compares a missing Python module with the files beside its program: `import modle` beside model.py.

A rule reads no folder, so the log source adds the near name to the hit. Each folder is listed once, and only
after a log has named it in a traceback about a missing module.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path, PurePosixPath

from coach.model.training.log import LogHit
from coach.sources.io import Io

_MISSING = "module"
"""The field of a hit that names the missing module."""
_MAX_FOLDERS = 4
_MAX_FOLDER_BYTES = 1 << 20
"""A folder of this size has tens of thousands of names, and is no folder of a program."""
_MAX_NAME = 80
_LIKENESS = 0.75
_OF_A_LIBRARY = ("site-packages", "dist-packages", "/lib/python")


class NearModules:
    """Adds the fields `near` (a file's or folder's name) and `near_in` (its folder) to hits."""

    def __init__(self, io: Io) -> None:
        self._io = io
        self._names: dict[Path, list[str]] = {}

    def added_to(self, hit: LogHit) -> LogHit:
        """The hit, with the near name if there is one."""
        module = hit.fields.get(_MISSING)
        if module is None or hit.block is None:
            return hit
        *parents, name = module[:_MAX_NAME].split(".")
        own = [frame.file for frame in hit.block.frames if _is_own(frame.file)]
        # Python searches the folder of the program, whose frame comes first.
        for file in dict.fromkeys([*own[:1], *own[-1:]]):
            folder = Path(file).parent.joinpath(*parents)
            near = near_name(name, self._listed(folder))
            if near is not None:
                return replace(hit, fields={**hit.fields, "near": near, "near_in": str(folder)})
        return hit

    def _listed(self, folder: Path) -> list[str]:
        """The names in a folder; none if it cannot be listed, or is too large for a folder of a program."""
        if folder not in self._names and len(self._names) < _MAX_FOLDERS:
            is_small, names = True, []
            with contextlib.suppress(OSError):  # a recording knows a folder's names only
                is_small = self._io.size(folder) <= _MAX_FOLDER_BYTES
            with contextlib.suppress(OSError):
                names = self._io.list_dir(folder) if is_small else []
            self._names[folder] = names
        return self._names.get(folder, [])


def near_name(module: str, names: Sequence[str]) -> str | None:
    """The file or folder that could be imported by a name near to this one. None if there is none, or if the
    name itself is there."""
    importable = {name.removesuffix(".py"): name for name in reversed(names)}
    by_lower = {name.lower(): name for name in importable if name.isidentifier()}
    if module in importable:
        return None
    near = get_close_matches(module.lower(), by_lower, 1, _LIKENESS)
    return importable[by_lower[near[0]]] if near else None


def _is_own(file: str) -> bool:
    return PurePosixPath(file).is_absolute() and not any(part in file for part in _OF_A_LIBRARY)
