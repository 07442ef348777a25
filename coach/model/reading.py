"""Readings: the answers of sources. A failure is a Reading with an error; it is shown with its age."""

from __future__ import annotations

from dataclasses import dataclass

from coach.model.slurm.accounting import JobSummary
from coach.model.slurm.cluster import Job, Node, Partition
from coach.model.training.flight import FlightRecord
from coach.model.training.log import LogFile, LogHit, LogTail
from coach.model.training.metrics import MetricEvent, Step
from coach.model.training.run import Checkpoint, Run, RunExit
from coach.model.training.stacks import RankStack, StackBurst
from coach.model.training.telemetry import Rung, TelemetrySample


@dataclass(frozen=True, slots=True)
class JobList:
    """The queue. `is_all` is True for all users' jobs, False for the caller's own; ended jobs may be in
    it."""

    jobs: tuple[Job, ...]
    is_all: bool
    has_outputs: bool = False
    """True if the caller's own jobs have their output paths; a query for all users does not ask for them."""
    are_others_hidden: bool = False
    """True if the site hides other users' jobs: the list then holds only the caller's own."""


@dataclass(frozen=True, slots=True)
class JobRow:
    """Slurm's answer about one followed job; `job` is None if Slurm has no such job."""

    target: str
    job: Job | None
    summary: JobSummary | None = None
    """Measurements of an ended job by the site's jobstats; None if there are none (yet)."""


@dataclass(frozen=True, slots=True)
class NodeList:
    nodes: tuple[Node, ...]
    is_hidden: bool = False
    """True if the site hides its nodes from the caller: their number is then unknown."""


@dataclass(frozen=True, slots=True)
class PartitionList:
    partitions: tuple[Partition, ...]
    is_hidden: bool = False
    """True if the site hides its partitions from the caller."""


@dataclass(frozen=True, slots=True)
class RunList:
    """All readable run directories; `problems` has one line for each unreadable one."""

    runs: tuple[Run, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MetricsChunk:
    """New metric records of one run, all ranks."""

    target: str
    steps: tuple[Step, ...]
    events: tuple[MetricEvent, ...]
    is_restart: bool = False
    """True if the records are of a new attempt: earlier records of this run are then void."""
    left_aside: str = ""
    """Metric files of the program that are not read, and why; "" if all are read."""


@dataclass(frozen=True, slots=True)
class TelemetryChunk:
    """New sampler records of one run or job, all nodes."""

    target: str
    samples: tuple[TelemetrySample, ...]
    rung: Rung = Rung.SAMPLER


@dataclass(frozen=True, slots=True)
class LogChunk:
    """New hits in one log file, and the current end of the log."""

    target: str
    hits: tuple[LogHit, ...]
    tail: LogTail
    is_restart: bool = False
    """True if the file was truncated or replaced: earlier hits in it are then void."""


@dataclass(frozen=True, slots=True)
class LogFiles:
    """All places that were searched for a target's logs. Each look at the logs ends with this reading."""

    target: str
    files: tuple[LogFile, ...]


@dataclass(frozen=True, slots=True)
class FlightRecords:
    """All current dumps of the flight recorder for one target."""

    target: str
    records: tuple[FlightRecord, ...]
    num_left_out: int = 0
    """Older dumps that are not read, because there are too many."""
    stacks: tuple[RankStack, ...] = ()
    """Stacks of ranks that somebody took with py-spy, and kept beside the dumps."""


@dataclass(frozen=True, slots=True)
class StackChunk:
    """New bursts of stack samples of one run, from all nodes."""

    target: str
    bursts: tuple[StackBurst, ...]


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Current run.json, exit.json and checkpoints of one watched run."""

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
    """One answer of one source: a payload, or an error. A source that only watches for trouble, such as
    `config`, sends neither if all is well."""

    source: str
    """Stable name of the source, such as `jobs`, `nodes`, `runs`, `metrics`, `telemetry`, `log`, `run`."""
    time_s: float
    """When the answer was complete, in epoch seconds."""
    duration_s: float
    payload: Payload | None
    error: str | None = None
    target: str | None = None
    """The run or job that was read; None for a source that follows no target."""
    num_bad_rows: int = 0
    """Number of rows that could not be parsed. It is shown: rows are never dropped silently."""
    is_caught_up: bool = True
    """False while a file has unread bytes (a reader takes a bounded amount per look)."""
    is_part: bool = False
    """True if more readings of the same look follow. The source has answered with the last of them."""
