"""Run a command that the user's config names, for one event: no shell, a time limit, and a message if it
fails."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence

from coach.sources.commands import run_command

_MAX_SAID = 200


def run_user_command(
    words: Sequence[str], facts: Mapping[str, str], env: Mapping[str, str], timeout_s: float
) -> str | None:
    """Run the program in the user's home, with `facts` in its environment. Returns why it failed; None if it
    succeeded."""
    program, *rest = words
    argv = [os.path.expanduser(program), *rest]  # noqa: PTH111 (Path raises for an unknown ~user)
    try:
        done = run_command(argv, {**env, **facts}, timeout_s, os.path.expanduser("~"))  # noqa: PTH111
    except subprocess.TimeoutExpired:
        return f"ended after {timeout_s:.0f} s"
    except (OSError, ValueError) as error:
        return f"{program}: {getattr(error, 'strerror', None) or error}"
    if done.returncode == 0:
        return None
    said = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2][:_MAX_SAID]
    return f"exit status {done.returncode}" + (f": {said}" if said else "")
