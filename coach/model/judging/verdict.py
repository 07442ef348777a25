"""What is kept of a run or a job once it was judged: enough to see what happens again and again, and far less
than its log."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

_EMPTY: Mapping[str, Any] = MappingProxyType({})
_NUMBER = re.compile(r"\d+")
_TOLD_BY_WORDS = frozenset({"code_error", "unknown_failure"})

LENGTH_PARAMETERS = frozenset({"seed", "max_steps", "epochs"})
"""Parameters that change how long a training is, and neither how fast a step is nor why it fails."""


@dataclass(frozen=True, slots=True)
class PastRun:
    """One attempt at something. Times are epoch seconds; what nobody knows is None or empty."""

    target: str
    """The run id, or the job's number."""
    work: str
    """What was tried: the recipe, or the batch script. The same for every attempt at it."""
    state: str | None
    submitted_s: float | None = None
    started_s: float | None = None
    ended_s: float | None = None
    nodes: tuple[str, ...] = ()
    rule: str | None = None
    """The root cause that was found, when it is worth a warning."""
    cause: str | None = None
    summary: str | None = None
    node: str | None = None
    """The node that the finding names."""
    parameters: Mapping[str, Any] = field(default_factory=lambda: _EMPTY)
    resources: Mapping[str, Any] = field(default_factory=lambda: _EMPTY)
    versions: Mapping[str, Any] = field(default_factory=lambda: _EMPTY)
    device: str | None = None
    world_size: int | None = None
    memory_asked_mib: float | None = None
    """Per node."""
    memory_used_mib: float | None = None
    """The most that was used on any node."""
    samples_per_s: float | None = None
    samples_per_s_noise: float | None = None
    """Half the width of the 95 % interval within the run."""
    others_cpu_pct: float | None = None
    """The share of a node's CPUs that others used meanwhile, at least; of several nodes the most."""
    is_judged: bool = True
    """False: only the queue or the accounting knows it, and nobody has read its files."""
    has_gone_well: bool = False
    """True if it was judged, and seen to train or to end well."""

    @property
    def failure(self) -> str | None:
        """What it ended with.

        An error of the program, or one that is not recognised, is the same one only when it says the same,
        whatever its numbers are.
        """
        if self.state == "COMPLETED" or self.cause is None:
            return None
        words = _NUMBER.sub("#", self.summary or "") if self.cause in _TOLD_BY_WORDS else ""
        return f"{self.cause} {words}".strip()

    def changes_since(self, before: PastRun) -> list[str]:
        """What was changed between that attempt and this one, as `lr: 0.1 → 0.01`."""
        found = []
        for old, new in ((before.parameters, self.parameters), (before.resources, self.resources)):
            found += [
                f"{name}: {_shown(old.get(name))} → {_shown(new.get(name))}"
                for name in sorted({*old, *new})
                if name not in LENGTH_PARAMETERS and old.get(name) != new.get(name)
            ]
        return found


def _shown(value: object) -> str:
    return "–" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """How often a node failed under one's jobs, beside all others. `low` and `high` are the bounds of its own
    rate."""

    node: str
    num_failed: int
    num_runs: int
    low: float
    high: float
    num_failed_peers: int
    num_runs_peers: int
    failed: tuple[PastRun, ...]

    @property
    def rate_of_peers(self) -> float:
        return self.num_failed_peers / self.num_runs_peers if self.num_runs_peers else 0.0


@dataclass(frozen=True, slots=True)
class Pace:
    """The throughput beside that of earlier runs of the same: the median ratio, and where the next run's
    ratio was to be expected."""

    samples_per_s: float
    before: tuple[PastRun, ...]
    ratio: float
    """To the median of the earlier runs."""
    low: float
    high: float
    """The 95 % interval of the ratio, by how the earlier runs differ among themselves and by the noise of
    this one."""


@dataclass(frozen=True, slots=True)
class Across:
    """One attempt among those before it."""

    this: PastRun
    attempts: tuple[PastRun, ...] = ()
    """Earlier attempts at the same, oldest first; none that ran beside a later one."""
    nodes: tuple[NodeRecord, ...] = ()
    """Of its own nodes, those that have ever failed."""
    pace: Pace | None = None
