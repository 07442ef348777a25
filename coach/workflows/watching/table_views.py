"""Keep a person's table settings (filter, order, columns) from one start to the next, and the views saved
under names.

They lie in the cache, one small file per user: losing it costs only a habit. So an error in the file is
reported once, and does not stop coach.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from coach import runs
from coach.model.errors import UserError
from coach.model.toml_text import parse_toml
from coach.trusted import private_folder, read_trusted

FILE_NAME = "views.json"
SAVED_FILE_NAME = "views.toml"
MAX_NAME = 40
_HEAD = (
    "# The saved views of coach's first screen: a table each, with filter, sort, columns and all (true: "
    "everybody's jobs).\n# coach writes this file when you save or forget a view there.\n"
)
_MAX_BYTES = 64 << 10
_MAX_TEXT = 1000


@dataclass(frozen=True, slots=True)
class View:
    """One table's settings, in the filter language; empty: coach's defaults."""

    filter: str = ""
    sort: str = ""
    columns: str = ""
    """`none`: the table is hidden."""


NOT_SHOWN = View(columns="none")
"""For the detail beside the list."""


@dataclass(frozen=True, slots=True)
class SavedView:
    """A named way to look at the queue: whose jobs, which of them, and with which table settings."""

    name: str
    view: View = field(default_factory=View)
    is_all: bool = False
    """True: everybody's jobs; False: one's own."""
    is_failed_today: bool = False
    """One's own jobs that ended badly within a day, including those that the queue has forgotten."""


BUILT_IN = (
    SavedView("mine"),
    SavedView("everybody", is_all=True),
    SavedView("failed today", is_failed_today=True),
)


class ViewStore:
    """The views of one user."""

    def __init__(self, cache_dir: Path, config_dir: Path | None = None) -> None:
        """Saved views lie in a separate file in `config_dir`: a person may edit it and copy it to another
        machine."""
        self._file = cache_dir / FILE_NAME
        self._saved_file = (config_dir or cache_dir) / SAVED_FILE_NAME

    def read(self) -> tuple[dict[str, View], str | None]:
        """The views by table, and the error in the file, if any."""
        try:
            said = _read(self._file)
            kept = json.loads(said) if said is not None else {}
        except (OSError, ValueError, RecursionError) as problem:
            words = problem.strerror if isinstance(problem, OSError) else "not in the form that coach writes"
            return {}, f"{self._file}: {words}; it is ignored"
        tables = kept.get("tables") if isinstance(kept, dict) else None
        views = {
            name: View(**{field.name: _text(said.get(field.name)) for field in fields(View)})
            for name, said in (tables.items() if isinstance(tables, dict) else ())
            if isinstance(said, dict)
        }
        return views, None

    def keep(self, views: Mapping[str, View]) -> None:
        """Write the views. Raises UserError if they cannot be written."""
        tables = {name: asdict(view) for name, view in views.items()}
        try:
            private_folder(self._file.parent)
            runs.write_json(self._file, {"schema": 1, "tables": tables})
        except OSError as error:
            raise UserError(f"{self._file}: cannot be written: {error.strerror or error}") from None

    def read_saved(self) -> tuple[dict[str, SavedView], str | None]:
        """The saved views by name, and the error in the file, if any."""
        try:
            said = _read(self._saved_file)
            tables = parse_toml(said.decode("utf-8")) if said is not None else {}
        except (OSError, ValueError, RecursionError) as problem:
            words = problem.strerror if isinstance(problem, OSError) else str(problem) or "not TOML"
            return {}, f"{self._saved_file}: {words}; it is ignored"
        found = {
            name: SavedView(
                name,
                View(**{field.name: _text(told.get(field.name)) for field in fields(View)}),
                told.get("all") is True,
            )
            for name, told in tables.items()
            if isinstance(told, dict) and is_view_name(name)
        }
        return found, None

    def keep_saved(self, views: Mapping[str, SavedView]) -> None:
        """Write the saved views. Raises UserError if they cannot be written."""
        try:
            self._saved_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            runs.write_atomic(self._saved_file, saved_text(views.values()))
        except OSError as error:
            raise UserError(f"{self._saved_file}: cannot be written: {error.strerror or error}") from None


def is_view_name(name: str) -> bool:
    """True if a view may have this name."""
    return 0 < len(name.strip()) == len(name) <= MAX_NAME and name.isprintable()


def saved_text(views: Iterable[SavedView]) -> str:
    """The file's text for these views, as TOML."""
    parts = [_HEAD]
    for each in views:
        parts.append(f"\n[{_quoted(each.name)}]\n")
        told = {**asdict(each.view)}
        parts += [f"{key} = {_quoted(value)}\n" for key, value in told.items() if value]
        parts.append(f"all = {'true' if each.is_all else 'false'}\n")
    return "".join(parts)


def _quoted(text: str) -> str:
    # JSON's escapes are TOML's, except for DEL, which is not printable and so in no name and no view.
    return json.dumps(text, ensure_ascii=False)


def _read(file: Path) -> bytes | None:
    """The file's bytes; None if there is none."""
    try:
        return read_trusted(file, owner=os.geteuid(), follows_links=True, limit=_MAX_BYTES)
    except FileNotFoundError:
        return None


def _text(value: Any) -> str:
    return value if isinstance(value, str) and len(value) <= _MAX_TEXT and value.isprintable() else ""
