"""Errors that the user reads.

All layers raise one exception type, so that each front end prints the same words: the file, the key, what is
wrong, and what would be right.
"""

from __future__ import annotations

OUT_OF_MEMORY = "out of memory: what was to be read is too large for this machine or its limit"


class UserError(Exception):
    """Bad input or a refused action.

    Front ends print it as one line, and `hint` as a second line; the command exits with `exit_status`. The
    command line also prints `diff`: the change that a person has to make to a file, or its further mistakes.
    `lines` are the lines of the message as they came.
    """

    def __init__(
        self, message: str, hint: str | None = None, exit_status: int = 2, diff: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message)
        self.message = message
        self.lines = tuple(message.splitlines()) or ("",)
        self.hint = hint
        self.exit_status = exit_status
        self.diff = diff


class UnknownTarget(UserError):
    """No run, job or file has the given name."""


OTHERS_JOBS = "other users' jobs"


def hidden_by_site(what: str) -> str:
    """Say `nodes are hidden by the site (PrivateData)`: the list is unknown, neither empty nor failed."""
    return f"{what} are hidden by the site (PrivateData)"
