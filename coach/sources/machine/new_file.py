"""Create a new file that only its owner can read, and never replace an existing one."""

from __future__ import annotations

import os
from pathlib import Path

from coach.model.errors import UserError


def refuse_if_there(file: Path) -> None:
    """Check before anything is asked or shown. Raises UserError if the name is taken."""
    if os.path.lexists(file):
        raise _exists(file)


def save_new(file: Path, text: str) -> None:
    """Write a file that only its owner can read. Raises UserError, also if the file exists."""
    try:
        descriptor = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with open(descriptor, "w", encoding="utf-8", errors="replace") as out:
            out.write(text)
    except FileExistsError:
        raise _exists(file) from None
    except (OSError, ValueError) as error:
        raise UserError(f"{file}: cannot be written: {getattr(error, 'strerror', '') or error}") from None


def _exists(file: Path) -> UserError:
    return UserError(f"{file}: exists already", "choose another name, or remove it first")
