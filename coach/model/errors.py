"""What is told to the user in one line.

One exception type crosses every layer, so that each front end prints the same words: file, key, what is
wrong, what would be right.
"""

from __future__ import annotations


class UserError(Exception):
    """Bad input or a refused action. Printed as one line, and `hint` as a second; the command exits with
    `exit_status`. A command line also prints `diff`: that of a file that a person would have to change.
    """

    def __init__(
        self, message: str, hint: str | None = None, exit_status: int = 2, diff: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_status = exit_status
        self.diff = diff


OTHERS_JOBS = "other users' jobs"


def hidden_by_site(what: str) -> str:
    """`nodes` as `nodes are hidden by the site (PrivateData)`: neither an empty list nor a failure."""
    return f"{what} are hidden by the site (PrivateData)"
