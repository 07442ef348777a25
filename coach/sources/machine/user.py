"""The user who runs coach: jobs of this user are "own"."""

from __future__ import annotations

import grp
import os
import pwd


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
