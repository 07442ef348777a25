"""Record for which jobs the command for idle GPUs was run, and when, so that no other coach, and no later
one, runs it again for the same time.

The record is one empty file in the cache for each run of the command. A coach creates the next file before it
runs the command, and only one of several coaches, even on several login nodes, can create it.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from coach.model.slurm.cluster import Job
from coach.trusted import private_folder

_KEEP_S = 30 * 86400.0
_ODD = re.compile(r"[^A-Za-z0-9_+-]")


class IdleClaims:
    """The records of one user on one cluster."""

    def __init__(self, cache_dir: Path, cluster: str) -> None:
        self._folder = cache_dir / "idle-gpus"
        self._cluster = cluster

    def last_s(self, job: Job) -> float | None:
        """When the command was last run for this job, in epoch seconds; None: never. Raises OSError."""
        return max((path.stat().st_mtime for path in self._of(job)), default=None)

    def claim(self, job: Job, last_s: float | None) -> bool:
        """Claim the run after that of `last_s`. Returns False if another coach has it. Raises OSError."""
        private_folder(self._folder)
        self._forget_old()
        taken = self._of(job)
        if max((path.stat().st_mtime for path in taken), default=None) != last_s:
            return False
        try:
            (self._folder / f"{self._name(job)}.{len(taken)}").touch(0o600, exist_ok=False)
        except FileExistsError:
            return False
        return True

    def _of(self, job: Job) -> list[Path]:
        return list(self._folder.glob(f"{self._name(job)}.*")) if self._folder.is_dir() else []

    def _name(self, job: Job) -> str:
        """The file name without its counter. Job ids may be reused, so it contains the submission time."""
        words = (self._cluster, job.job_id, f"{job.submit_time_s or 0:.0f}")
        return "-".join(_ODD.sub("_", word) for word in words)

    def _forget_old(self) -> None:
        files = list(self._folder.iterdir())
        times = [path.stat().st_mtime for path in files]
        newest_s = max(times, default=0.0)
        for path, time_s in zip(files, times, strict=True):
            if newest_s - time_s > _KEEP_S:
                with contextlib.suppress(OSError):
                    path.unlink()
