"""Hostile text for job names, reasons, paths, log lines and all other text of other people."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from coach.analysis.spelling.printable import display_width

CONTROLS = "\x1b[31mred\x1b]0;pwn\x07\x9b1m\r\b"
MARKUP = "[@click=app.quit]x[/][bold red]y[/red] [/] [link=http://h]z"
LINES = "two\nlines\u2028three\x85four\x0bfive"
BIDI = "\u202egnp.exe\u2066\u200b\ufeff"
WIDE = "日本語 👩\u200d👩\u200d👧 👍🏽 🇩🇪 ❤\ufe0f"
MARKS = "\u0301e\u0301" + "a" + "\u0300" * 40 + " हिन्दी"
BYTES = "caf\udce9 \udcff\udcfe"
TERMINAL = "\x1bP1$r\x1b\\\x1b[2J\x1b[?1049l\x9d52;c;aGk=\x9c"
LONG = "x" * 10_000

HOSTILE = (CONTROLS, MARKUP, LINES, BIDI, WIDE, MARKS, BYTES, TERMINAL, LONG)
"""NUL is not among them: no file name, argument or name in Slurm can hold it; log lines have it besides."""

_IDENTITIES = frozenset(
    {
        *("run_id", "job_id", "raw_job_id", "target", "parent_run_id", "group_id", "source", "rule", "verb"),
        *("backend", "severity", "kind", "key", "id", "run_dir", "trainer", "devices", "type"),
    }
)
"""What is looked up, and what decides what is shown: with other words there would be nothing to see."""


def poisoned(value: Any, text: str, *, is_filled: bool = False) -> Any:
    """The same value with `text` in front of every string in it; with `is_filled` also in every missing
    string."""

    def again(inner: Any) -> Any:
        return poisoned(inner, text, is_filled=is_filled)

    if isinstance(value, Enum) or value is None:
        return value
    if isinstance(value, str):
        return text + value
    if isinstance(value, Path):
        return Path(str(value) + text.replace("\0", ""))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changes = {}
        for field in dataclasses.fields(value):
            if field.init and field.name not in _IDENTITIES:
                known = getattr(value, field.name)
                is_open = is_filled and known is None and field.type == "str | None"
                changes[field.name] = text if is_open else again(known)
        return dataclasses.replace(value, **changes)
    if isinstance(value, Mapping):
        return {key: item if key in _IDENTITIES else again(item) for key, item in value.items()}
    if isinstance(value, tuple | list | frozenset):
        return type(value)(again(item) for item in value)
    return value


def assert_harmless(text: str, where: str) -> None:
    """Check that `text` holds only printable characters and coach's own line ends."""
    bad = sorted({f"U+{ord(char):04X}" for char in text if char != "\n" and not char.isprintable()})
    assert not bad, (
        f"{where}: {', '.join(bad)} in "
        f"{next(row for row in text.splitlines() if not row.isprintable())!r:.300}"
    )


def assert_fills(rows: list[str], width: int, where: str) -> None:
    """Every row of a screen is as wide as the terminal: no character took more or less than was thought."""
    wrong = [row for row in rows if display_width(row) != width]
    assert not wrong, f"{where}: {display_width(wrong[0])} cells instead of {width}: {wrong[0]!r:.300}"
