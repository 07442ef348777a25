"""Reads a file that the user named: a recipe, a script, a list of names. It may be anybody's, and a link may
lead to it; it is a regular file of a limited length."""

from __future__ import annotations

from pathlib import Path

from coach.model.errors import UserError
from coach.trusted import MAX_BYTES, read_text


def read_named(
    path: Path,
    hint: str | None = None,
    *,
    limit: int = MAX_BYTES,
    encoding: str = "utf-8",
    errors: str = "strict",
) -> str:
    """The file's text. Raises UserError with the file and the reason, and `hint`."""
    try:
        return read_text(path, owner=None, limit=limit, follows_links=True, encoding=encoding, errors=errors)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}", hint) from None
