"""The words for a file that a command could not use.

A module of its own, because the errors of run files cost an import that most commands end without.
"""

from __future__ import annotations

from coach.runs import RunFileError


def words_of(error: Exception) -> str | None:
    """The file, and why it could not be used; None if the error is about something else."""
    if isinstance(error, OSError):
        return None if error.filename is None else f"{error.filename}: {error.strerror}"
    return str(error) if isinstance(error, RunFileError) else None
