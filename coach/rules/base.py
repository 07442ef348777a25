"""What a rule is. A rule never does I/O and never asks the time: it looks at a target's snapshot and its
history."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from coach.lookback.history import History
from coach.model.judging.finding import Hit, Severity
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import Signature


class Need(StrEnum):
    """What a rule must have to judge. Without it the rule is blind, and says so."""

    LOG = "log"
    METRICS = "metrics"
    GPU_TELEMETRY = "gpu.utilization"
    GPU_LINKS = "gpu.links"
    GPU_HEALTH = "gpu.health"
    HOST_TELEMETRY = "host"
    JOB_STATE = "job.state"
    GPU_SUMMARY = "job.gpu_utilization"
    """The mean of a whole job, as a site's jobstats tells it; so are the next two."""
    CPU_SUMMARY = "job.cpu_time"
    MEMORY_SUMMARY = "job.memory"
    STACKS = "stacks"


@dataclass(frozen=True, slots=True)
class Threshold:
    """A number a rule decides by: the config may change it, the report prints the value used."""

    name: str
    default: float
    unit: str
    reason: str


class Rule(ABC):
    """One rule. The docstring has five headings (What it sees, Why it matters, When it stays silent, What to
    do, Sources)."""

    code: ClassVar[str]
    """Stable, never reused: three letters and three digits."""
    name: ClassVar[str]
    cause: ClassVar[str]
    severity: ClassVar[Severity]
    needs: ClassVar[tuple[frozenset[Need], ...]] = ()
    """Alternatives: the rule can judge when all of one set are there. Empty: it can always judge."""
    for_s: ClassVar[float] = 0.0
    """How long the condition must hold, in the data's time, before the finding fires."""
    keep_s: ClassVar[float] = 0.0
    """How long a fired finding stays after the condition ended, in the data's time."""
    thresholds: ClassVar[tuple[Threshold, ...]] = ()
    signatures: ClassVar[tuple[Signature, ...]] = ()
    """What it reads in logs beside its wordings: numbers, and lines of a fixed form."""

    def __init__(self, values: Mapping[str, float] | None = None, wordings: Iterable[Signature] = ()) -> None:
        """`values` replaces defaults of thresholds by name; `wordings` are the rows of its tables."""
        self.wordings = tuple(wordings)
        self.values: Mapping[str, float] = {
            **{threshold.name: threshold.default for threshold in self.thresholds},
            **(values or {}),
        }

    @abstractmethod
    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        """Yield what holds now. Pure."""
