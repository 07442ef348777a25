"""Where coach's own files lie, and how coach is started again: the same for an installed package and for
`coach.pyz`, which is all of coach in one file.

The one file brings its own importer (single/one_file.py). Its files are paths that only their own methods can
read, `read_bytes` and `open` among them: no other program sees them. So whoever passes a file of coach on to
another program makes a code snapshot first.
"""

from __future__ import annotations

import sys
from importlib.resources import files
from pathlib import Path

import coach


def package() -> Path:
    """The folder of coach's own modules."""
    found = files(coach)
    return found.resolve() if isinstance(found, Path) else Path(str(found))


def one_file() -> Path | None:
    """The file that this coach was started from; None where coach is installed as a package."""
    above = Path(str(coach.__file__)).parents[1]
    return above if above.is_file() else None


def start_words(module: str = "coach") -> list[str]:
    """The command that starts a module of this coach, to be followed by its arguments."""
    file = one_file()
    place = [str(file)] if file is not None else []
    return [sys.executable, *place, "-m", module]
