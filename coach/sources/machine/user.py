"""Who runs coach: whose jobs are "own"."""

from __future__ import annotations

import grp
import os
import pwd


def group_names() -> frozenset[str] | None:
    """The groups of this process, by name; None where one of them has no name."""
    try:
        return frozenset(grp.getgrgid(number).gr_name for number in {os.getgid(), *os.getgroups()})
    except KeyError:
        return None


def user_name() -> str:
    """The login name as Slurm shows it; the number where no name is known (a container without that user)."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
