"""The user's own command for a notice of a job: a mail, a chat message, a sound."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Mapping

from coach.analysis.jobs.notices import Notice
from coach.model.errors import UserError
from coach.sources.commands import run_command

TIMEOUT_S = 20.0
_MAX_SAID = 200


def run_notice_command(command: str | None, notice: Notice, env: Mapping[str, str]) -> None:
    """Run it without a shell. It gets the notice in its environment: COACH_JOB (a job or run id, empty for
    several), COACH_NOTICE (the words) and COACH_NOTICE_IS_BAD (1 or 0).

    Raises UserError when it cannot be run, fails, or takes longer than 20 s.
    """
    if command is None:
        return
    given = {
        "COACH_JOB": notice.name or "",
        "COACH_NOTICE": notice.words,
        "COACH_NOTICE_IS_BAD": "1" if notice.is_bad else "0",
    }
    try:
        done = run_command(shlex.split(command), {**env, **given}, TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise UserError(f"notify.command was ended after {TIMEOUT_S:.0f} s") from None
    except OSError as error:
        raise UserError(f"notify.command cannot be run: {error.strerror or error}") from None
    if done.returncode:
        said = " ".join(done.stderr.decode("utf-8", "replace").split())[:_MAX_SAID]
        raise UserError(f"notify.command: exit status {done.returncode}{f': {said}' if said else ''}")
