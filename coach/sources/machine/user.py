"""The user who runs coach: jobs of this user are "own"."""

from __future__ import annotations

import grp
import os
import pwd
from pathlib import Path


def group_names() -> frozenset[str] | None:
    """Names of the groups of this process; None if one of them has no name."""
    try:
        return frozenset(grp.getgrgid(number).gr_name for number in {os.getgid(), *os.getgroups()})
    except KeyError:
        return None


def user_name() -> str:
    """The login name as Slurm shows it; the uid if it has no name (in a container without that user)."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def with_home(text: str) -> Path:
    """The path with the home directory for `~` and `~NAME`; as written if there is no user of that name.

    `Path.expanduser` raises RuntimeError for an unknown user: a misspelt path is a file that does not exist.
    """
    return Path(os.path.expanduser(text))  # noqa: PTH111
