"""Tells the time limit of a job from a cancel: Slurm ends both by the same signal."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Mapping, Optional

from coach.trusted import read_tail

_CLOCK_SKEW_S = 5
"""Slurm ends a job at or after its end time. A node's clock may be this far behind the controller's."""
_TAIL_BYTES = 4096


def state_by_signal(time_s: float, stderr_log: Optional[Path], env: Mapping[str, str]) -> str:
    """Slurm's word for an end after a signal that came at `time_s`, in epoch seconds.

    Slurm from 23.02 tells the job its end time. Every version writes a line into the file that `stderr_log`
    is, if it is the job's own. Without both, the state is CANCELLED.
    """
    end_time = env.get("SLURM_JOB_END_TIME", "")
    is_at_limit = end_time.isdecimal() and time_s >= int(end_time) - _CLOCK_SKEW_S
    return "TIMEOUT" if is_at_limit or _is_told(stderr_log, env.get("SLURM_JOB_ID")) else "CANCELLED"


def _is_told(log: Optional[Path], job_id: Optional[str]) -> bool:
    if log is None or not job_id:
        return False
    try:
        tail = read_tail(log, _TAIL_BYTES, owner=None, follows_links=True)
    except OSError:
        return False
    of_job = rf"\*\*\* (?:JOB|STEP) {re.escape(job_id)}[. ][^\n]* DUE TO TIME LIMIT"
    return re.search(of_job.encode(), tail) is not None
