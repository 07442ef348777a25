"""What a site says about its cluster beyond the values of keys: limits, advice, locks.

Launches are checked against them, screens and commands show them; neither needs to know how a config is read.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """The [limits] table of the site's file: the most that one launch, or one user, may take. None: no limit
    of coach's own."""

    max_gpus: int | None = None
    """GPUs of one launch, all nodes together."""
    max_time_s: int | None = None
    """Time limit of one launch. Key `max_time`, in Slurm's spelling."""
    max_running: int | None = None
    """Runs of one user that may be pending or running at once."""


@dataclass(frozen=True, slots=True)
class Advice:
    """What a site says beside a rule's finding."""

    text: str
    url: str | None = None


@dataclass(frozen=True, slots=True)
class Lock:
    """A key that only the site's file may set."""

    reason: str
    origin: str
    """FILE:LINE of the lock."""

    @property
    def words(self) -> str:
        """For a refusal: who says so, where, and why."""
        return f"locked by the site ({self.origin}): {self.reason}"
