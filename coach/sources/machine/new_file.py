"""Create a new file that only its owner can read, and never replace an existing one.

What coach saves for a person is written here: a link with the file's name is not followed, and a file that
could not be written to its end does not stay.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from coach.model.errors import UserError


def refuse_if_there(file: Path) -> None:
    """Check before anything is asked or shown. Raises UserError if the name is taken."""
    if os.path.lexists(file):
        raise _exists(file)


def create(file: Path, mode: int = 0o600) -> BinaryIO:
    """The new file, open for writing. The umask still applies to `mode`. Raises OSError."""
    return open(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, mode), "wb")


@contextlib.contextmanager
def new_file(file: Path, mode: int = 0o600) -> Iterator[BinaryIO]:
    """The new file, open for writing. It is removed if the block fails, also by Ctrl-C. Raises UserError,
    also if the file exists."""
    try:
        out = create(file, mode)
        try:
            with out:
                yield out
        except BaseException:
            file.unlink(missing_ok=True)
            raise
    except FileExistsError:
        raise _exists(file) from None
    except (OSError, ValueError) as error:
        raise UserError(f"{file}: cannot be written: {getattr(error, 'strerror', '') or error}") from None


def save_new(file: Path, data: str | bytes, mode: int = 0o600) -> None:
    """Write a file at once. Raises UserError, also if the file exists."""
    with new_file(file, mode) as out:
        out.write(data if isinstance(data, bytes) else data.encode("utf-8", "replace"))


def _exists(file: Path) -> UserError:
    return UserError(f"{file}: exists already", "choose another name, or remove it first")
