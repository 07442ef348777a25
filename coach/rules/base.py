"""Base class of the rules. A rule does no I/O and reads no clock: it judges a target's snapshot and
history."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import ClassVar, overload

from coach.lookback.history import History
from coach.model.judging.finding import SAMPLER, Hit, Severity
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import Signature
from coach.rules.advice.circumstances import fitting


class Need(StrEnum):
    """Data that a rule needs. Without them it cannot judge, and the report lists it as not measured."""

    LOG = "log"
    METRICS = "metrics"
    GPU_TELEMETRY = "gpu.utilization"
    GPU_LINKS = "gpu.links"
    GPU_HEALTH = "gpu.health"
    HOST_TELEMETRY = SAMPLER
    JOB_STATE = "job.state"
    GPU_SUMMARY = "job.gpu_utilization"
    """The mean over a whole job, from the site's jobstats. The next two are such means as well."""
    CPU_SUMMARY = "job.cpu_time"
    MEMORY_SUMMARY = "job.memory"
    STACKS = "stacks"
    DUMPS = "dumps"
    """Of torch's flight recorder."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """A number that a rule compares with. The config can change it, and the report prints the value used."""

    default: float
    unit: str
    reason: str
    at_least: float = 0.0
    """The rule cannot use a smaller number: it divides by it, or counts that many values."""
    name: str = field(default="", init=False)
    """The attribute of the rule that holds it. An instance of the rule has there the value used: the default,
    or the config's."""

    def __set_name__(self, rule: type[Rule], name: str) -> None:
        object.__setattr__(self, "name", name)

    @overload
    def __get__(self, rule: None, owner: type[Rule]) -> Threshold: ...
    @overload
    def __get__(self, rule: Rule, owner: type[Rule]) -> float: ...
    def __get__(self, rule: Rule | None, owner: type[Rule]) -> Threshold | float:
        return self if rule is None else rule.values[self.name]


class Rule(ABC):
    """One rule. Its docstring has five headings: What it sees, Why it matters, When it stays silent, What to
    do, Sources."""

    code: ClassVar[str]
    """Three letters and three digits. A code never changes and is never given to another rule."""
    name: ClassVar[str]
    cause: ClassVar[str]
    severity: ClassVar[Severity]
    needs: ClassVar[tuple[Need | frozenset[Need], ...]] = ()
    """Alternatives: the rule can judge when one need, or each need of one set, is met. If empty, it can
    always judge."""
    for_s: ClassVar[float] = 0.0
    """Seconds, by the data's time stamps, for which the condition must hold before the finding fires."""
    keep_s: ClassVar[float] = 0.0
    """Seconds, by the data's time stamps, for which a finding stays after its condition ended."""
    thresholds: ClassVar[tuple[Threshold, ...]] = ()
    """The attributes that are thresholds, in order."""
    signatures: ClassVar[tuple[Signature, ...]] = ()
    """Log patterns that are not rows of a wordings table: numbers, and lines of a fixed form."""

    def __init_subclass__(cls) -> None:
        cls.thresholds = tuple(each for each in vars(cls).values() if isinstance(each, Threshold))

    def __init__(self, values: Mapping[str, float] | None = None, wordings: Iterable[Signature] = ()) -> None:
        """`values` replaces threshold defaults by name. `wordings` are the rule's rows of the wordings
        tables."""
        self.wordings = tuple(wordings)
        self.values: Mapping[str, float] = {
            **{threshold.name: threshold.default for threshold in self.thresholds},
            **(values or {}),
        }

    def judge(self, snapshot: TargetSnapshot, history: History) -> list[Hit]:
        """The hits of `check`, with the fixes that fit this target."""
        hits = self.check(snapshot, history)
        return [replace(hit, fixes=fitting(hit.fixes, snapshot)) for hit in hits]

    @abstractmethod
    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        """Yield a hit for each condition that holds now. Pure."""
