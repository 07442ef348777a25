"""How a person looks at the tables: filter, order and columns, kept from one start to the next.

They lie in the cache, one small file per user: nothing is lost with it but a habit. So whatever is wrong in
the file is told once, and is not worth stopping for.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from coach import runs
from coach.model.errors import UserError

FILE_NAME = "views.json"
_MAX_BYTES = 64 << 10
_MAX_TEXT = 1000


@dataclass(frozen=True, slots=True)
class View:
    """One table's, in the words of the filter language; empty: as coach has it."""

    filter: str = ""
    sort: str = ""
    columns: str = ""


class ViewStore:
    """The views of one user."""

    def __init__(self, cache_dir: Path) -> None:
        self._file = cache_dir / FILE_NAME

    def read(self) -> tuple[dict[str, View], str | None]:
        """By table, and what is wrong with the file, if anything."""
        try:
            said = _read(self._file)
            kept = json.loads(said) if said is not None else {}
        except (OSError, ValueError, RecursionError) as problem:
            words = problem.strerror if isinstance(problem, OSError) else "not what coach wrote"
            return {}, f"{self._file}: {words}; it does not count"
        tables = kept.get("tables") if isinstance(kept, dict) else None
        views = {
            name: View(**{field.name: _text(said.get(field.name)) for field in fields(View)})
            for name, said in (tables.items() if isinstance(tables, dict) else ())
            if isinstance(said, dict)
        }
        return views, None

    def keep(self, views: Mapping[str, View]) -> None:
        """Raises UserError when they cannot be written."""
        tables = {name: asdict(view) for name, view in views.items()}
        try:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            runs.write_json(self._file, {"schema": 1, "tables": tables})
        except OSError as error:
            raise UserError(f"{self._file}: cannot be written: {error.strerror or error}") from None


def _read(file: Path) -> bytes | None:
    """None: there is no such file. A pipe or a device in its place is not waited for."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with open(descriptor, "rb") as opened:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError
        return opened.read(_MAX_BYTES)


def _text(value: Any) -> str:
    return value if isinstance(value, str) and len(value) <= _MAX_TEXT and value.isprintable() else ""
