"""The words for a file that a command could not use.

A module of its own, because the errors of run files cost an import that most commands end without.
"""

from __future__ import annotations

import errno

from coach.runs import RunFileError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def words_of(error: Exception) -> str | None:
    """The file, and why it could not be used; None if the error is about something else. A write to an open
    file, such as standard output, does not name it."""
    if isinstance(error, OSError) and error.filename is None:
        return f"a write failed: {error.strerror}" if error.errno in _FULL else None
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}"
    return str(error) if isinstance(error, RunFileError) else None
