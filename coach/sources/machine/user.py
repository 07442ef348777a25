"""Who runs coach: whose jobs are "own"."""

from __future__ import annotations

import os
import pwd


def user_name() -> str:
    """The login name as Slurm shows it; the number where no name is known (a container without that user)."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
