"""Where a job that coach did not launch writes its output: asked of Slurm once, `scontrol show job`.

Since 24.05 squeue no longer expands the patterns in these paths; scontrol does on every version.
"""

from __future__ import annotations

import errno
import re
from pathlib import Path

from coach.sources.io import Io, Query

_PATH = re.compile(r"^ +(StdOut|StdErr)=(/.*)$", re.MULTILINE)
_RETRY_S = 30.0


def parse_output_paths(stdout: bytes) -> tuple[Path, ...]:
    """StdOut and StdErr, once each.

    The last of each counts: a job's name stands earlier in the text and may contain anything, line ends and fields included.
    """
    found = dict(_PATH.findall(stdout.decode("utf-8", "surrogateescape")))
    return tuple(dict.fromkeys(Path(found[key]) for key in ("StdOut", "StdErr") if key in found))


def job_files_query(job_id: str) -> Query:
    return Query(f"job-files {job_id}", ("scontrol", "show", "job", job_id))


class JobFiles:
    """The logs of one job, asked for until Slurm has told them."""

    def __init__(self, io: Io, job_id: str) -> None:
        self._io = io
        self._job_id = job_id
        self._paths: tuple[Path, ...] | None = None
        self._error = ""
        self._asked_s: float | None = None

    def __call__(self) -> tuple[Path, ...]:
        """Raises OSError with Slurm's words while they are not known."""
        if self._paths is None and (
            self._asked_s is None or not 0 <= self._io.now() - self._asked_s < _RETRY_S
        ):
            self._asked_s = self._io.now()
            result = self._io.run(job_files_query(self._job_id))
            if result.returncode == 0:
                self._paths = parse_output_paths(result.stdout)
            else:
                words = (result.error or result.stderr).strip().splitlines()
                self._error = words[0] if words else f"scontrol ended with status {result.returncode}"
        if self._paths is None:
            raise OSError(errno.EIO, self._error)
        return self._paths
