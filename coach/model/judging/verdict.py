"""The short record that is kept of a judged run or job: enough to see failures that repeat, and much smaller
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
"""Parameters that change the length of a training. They affect neither its speed nor why it fails."""


@dataclass(frozen=True, slots=True)
class PastRun:
    """One attempt at a piece of work. Times are epoch seconds; an unknown value is None or empty."""

    target: str
    """The run id, or the job id."""
    work: str
    """The recipe or the batch script: the same for every attempt at it."""
    state: str | None
    submitted_s: float | None = None
    started_s: float | None = None
    ended_s: float | None = None
    nodes: tuple[str, ...] = ()
    rule: str | None = None
    """Code of the primary finding, if it is at least a warning."""
    cause: str | None = None
    summary: str | None = None
    severity: str | None = None
    """Severity of that finding, as its word; None if it was kept by an older version."""
    confidence: float | None = None
    """Confidence of that finding, 0 to 1; None if it was kept by an older version."""
    name: str | None = None
    """Name of its rule."""
    node: str | None = None
    """The node that the finding is about."""
    parameters: Mapping[str, Any] = field(default_factory=lambda: _EMPTY)
    resources: Mapping[str, Any] = field(default_factory=lambda: _EMPTY)
    versions: Mapping[str, Any] = field(default_factory=lambda: _EMPTY)
    device: str | None = None
    world_size: int | None = None
    memory_asked_mib: float | None = None
    """MiB per node."""
    memory_used_mib: float | None = None
    """Peak in MiB on the node that used the most."""
    samples_per_s: float | None = None
    samples_per_s_noise: float | None = None
    """Half the width of the 95 % interval of `samples_per_s` within the run."""
    others_cpu_pct: float | None = None
    """Lower bound of the share of a node's CPUs that others used during the run, in percent; the maximum over
    the nodes."""
    is_judged: bool = True
    """False if only the queue or the accounting has the job, and its files were never read."""
    has_gone_well: bool = False
    """True if it was judged, and made training steps or ended well."""

    @property
    def failure(self) -> str | None:
        """Key of the failure: equal for two attempts that failed in the same way.

        It is the cause. For a program error or an unknown failure it is the cause and the summary, with all
        numbers replaced. None if the attempt did not fail or has no cause.
        """
        if self.state == "COMPLETED" or self.cause is None:
            return None
        words = _NUMBER.sub("#", self.summary or "") if self.cause in _TOLD_BY_WORDS else ""
        return f"{self.cause} {words}".strip()

    def changes_since(self, before: PastRun) -> list[str]:
        """The parameters and resources that differ from those of `before`, each as `lr: 0.1 → 0.01`."""
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
    """How often a node failed under the user's jobs, compared with all other nodes. `low` and `high` bound
    the failure rate of this node."""

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
    """Throughput compared with earlier runs of the same work: the ratio to their median, and the interval in
    which the ratio was expected."""

    samples_per_s: float
    before: tuple[PastRun, ...]
    ratio: float
    """Throughput divided by the median of the earlier runs."""
    low: float
    high: float
    """The 95 % interval of the ratio, from the spread of the earlier runs and the noise of this run."""


PAST_FAMILY = "HIS"
"""Prefix of the codes of the rules about earlier runs."""


@dataclass(frozen=True, slots=True)
class Across:
    """One attempt, compared with the attempts before it."""

    this: PastRun
    attempts: tuple[PastRun, ...] = ()
    """Earlier attempts at the same work, oldest first, without those that overlapped a later one."""
    nodes: tuple[NodeRecord, ...] = ()
    """The nodes of this attempt that have ever failed."""
    pace: Pace | None = None
