"""Readings: what a source emits. A failure is a Reading with an error, shown with its age."""

from __future__ import annotations

from dataclasses import dataclass

from coach.model.slurm.accounting import JobSummary
from coach.model.slurm.cluster import Job, Node, Partition
from coach.model.training.flight import FlightRecord
from coach.model.training.log import LogFile, LogHit, LogTail
from coach.model.training.metrics import MetricEvent, Step
from coach.model.training.run import Checkpoint, Run, RunExit
from coach.model.training.stacks import StackBurst
from coach.model.training.telemetry import Rung, TelemetrySample


@dataclass(frozen=True, slots=True)
class JobList:
    """The queue. `is_all` tells everybody's jobs from the caller's own; ended jobs may be among them."""

    jobs: tuple[Job, ...]
    is_all: bool
    has_outputs: bool = False
    """True if the caller's own rows say where each job writes to: everybody's are asked for without."""
    are_others_hidden: bool = False
    """True if the site hides other users' jobs: these are then the caller's own, whatever was asked."""


@dataclass(frozen=True, slots=True)
class JobRow:
    """What Slurm says of one followed job; None where it knows no such job."""

    target: str
    job: Job | None
    summary: JobSummary | None = None
    """What the site's jobstats measured of it, once it has ended; None where there is none, or not yet."""


@dataclass(frozen=True, slots=True)
class NodeList:
    nodes: tuple[Node, ...]
    is_hidden: bool = False
    """True if the site hides its nodes from the caller: how many there are is not known."""


@dataclass(frozen=True, slots=True)
class PartitionList:
    partitions: tuple[Partition, ...]
    is_hidden: bool = False
    """True if the site hides its partitions from the caller."""


@dataclass(frozen=True, slots=True)
class RunList:
    """All run directories that can be read; `problems` has a line for each that cannot."""

    runs: tuple[Run, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MetricsChunk:
    """New metric records of one run, all ranks."""

    target: str
    steps: tuple[Step, ...]
    events: tuple[MetricEvent, ...]
    is_restart: bool = False
    """True when they are of another attempt: what was read before no longer holds."""
    left_aside: str = ""
    """Which files of the program are not read, and why; empty where none was left aside."""


@dataclass(frozen=True, slots=True)
class TelemetryChunk:
    """New sampler records of one run or job, all nodes."""

    target: str
    samples: tuple[TelemetrySample, ...]
    rung: Rung = Rung.SAMPLER


@dataclass(frozen=True, slots=True)
class LogChunk:
    """New hits in one log file, and its tail as it stands."""

    target: str
    hits: tuple[LogHit, ...]
    tail: LogTail
    is_restart: bool = False
    """True when the file was cut or replaced: what was hit in it before no longer holds."""


@dataclass(frozen=True, slots=True)
class LogFiles:
    """All places where a target's logs were looked for: ends each look at them."""

    target: str
    files: tuple[LogFile, ...]


@dataclass(frozen=True, slots=True)
class FlightRecords:
    """All that the flight recorder's dumps of a target tell, as they stand."""

    target: str
    records: tuple[FlightRecord, ...]


@dataclass(frozen=True, slots=True)
class StackChunk:
    """New bursts of stack samples of one run, all nodes."""

    target: str
    bursts: tuple[StackBurst, ...]


@dataclass(frozen=True, slots=True)
class RunFacts:
    """run.json, exit.json and the checkpoints of one watched run, as they stand."""

    target: str
    run: Run
    exit: RunExit | None
    checkpoints: tuple[Checkpoint, ...]


Payload = (
    JobList
    | JobRow
    | NodeList
    | PartitionList
    | RunList
    | MetricsChunk
    | TelemetryChunk
    | LogChunk
    | LogFiles
    | FlightRecords
    | StackChunk
    | RunFacts
)


@dataclass(frozen=True, slots=True)
class Reading:
    """One answer of one source: a payload, or an error. With neither, all is well and there is nothing to
    tell: the config's files."""

    source: str
    """Stable name of the source: `jobs`, `nodes`, `partitions`, `runs`, `metrics`, `telemetry`, `log`, `run`,
    `config`."""
    time_s: float
    """When the answer was complete, epoch seconds."""
    duration_s: float
    payload: Payload | None
    error: str | None = None
    target: str | None = None
    """The run or job that was read, for sources that follow one."""
    num_bad_rows: int = 0
    """Rows that could not be parsed: counted and shown, never dropped silently."""
    is_caught_up: bool = True
    """False while a file still has unread bytes (the reader takes bounded bites)."""
    is_part: bool = False
    """True when the same look brings more readings: only after the last of them has the source answered."""
