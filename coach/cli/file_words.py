"""The words for what a command could not use: a file, memory, its working directory.

A module of its own, because the errors of run files cost an import that most commands end without.
"""

from __future__ import annotations

import errno
from pathlib import Path

from coach.model.errors import OUT_OF_MEMORY
from coach.runs import RunFileError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def words_of(error: Exception) -> str | None:
    """What could not be used, and why: a file, memory, the working directory. None if the error is about
    something else. A write to an open file, such as standard output, does not name it."""
    if isinstance(error, MemoryError):
        return OUT_OF_MEMORY
    if isinstance(error, FileNotFoundError) and error.filename is None and _is_nowhere():
        return "the working directory does not exist any more: cd to another one"
    if isinstance(error, OSError) and error.filename is None:
        return f"a write failed: {error.strerror}" if error.errno in _FULL else None
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}"
    return str(error) if isinstance(error, RunFileError) else None


def _is_nowhere() -> bool:
    try:
        Path.cwd()
    except OSError:
        return True
    return False
