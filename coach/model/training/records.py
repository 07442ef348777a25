"""Disk space of a run's records: the numbers that coach keeps, without logs and checkpoints."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Part(StrEnum):
    """A part of the records that can be thinned; parts are thinned in this order."""

    OLD = "telemetry/old"
    TELEMETRY = "telemetry"
    METRICS = "metrics"


@dataclass(frozen=True, slots=True)
class Volume:
    """A number of files and their size."""

    num_files: int = 0
    size_bytes: int = 0

    def __add__(self, other: Volume) -> Volume:
        return Volume(self.num_files + other.num_files, self.size_bytes + other.size_bytes)

    def __sub__(self, other: Volume) -> Volume:
        return Volume(self.num_files - other.num_files, self.size_bytes - other.size_bytes)


@dataclass(frozen=True, slots=True)
class RunRecords:
    """The records of one run. `old` holds the rotated parts of the telemetry, `telemetry` the rest."""

    run_id: str
    old: Volume = field(default_factory=Volume)
    telemetry: Volume = field(default_factory=Volume)
    metrics: Volume = field(default_factory=Volume)
    other: Volume = field(default_factory=Volume)
    """run.json, exit.json, job.sh, verdicts and stacks: never thinned."""

    @property
    def total(self) -> Volume:
        return self.old + self.telemetry + self.metrics + self.other


@dataclass(frozen=True, slots=True)
class RecordLimits:
    """Limits for the records of all runs together."""

    max_bytes: int
    max_files: int

    def is_met_by(self, volume: Volume) -> bool:
        """True if the volume is within both limits."""
        return volume.size_bytes <= self.max_bytes and volume.num_files <= self.max_files
