"""What is known at one moment: for the screens the whole, for the rules one target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from coach.model.judging.finding import Diagnosis
from coach.model.judging.outcome import Outcome
from coach.model.judging.verdict import Across
from coach.model.politeness import Spending
from coach.model.slurm.accounting import JobSummary
from coach.model.slurm.cluster import Job, Node, Partition, is_final
from coach.model.training.flight import FlightRecord
from coach.model.training.log import LogFile, LogHit, LogTail
from coach.model.training.metrics import MetricEvent
from coach.model.training.run import Checkpoint, Run, RunExit
from coach.model.training.stacks import StackBurst
from coach.model.training.telemetry import SensorGap


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """How a source is doing: the age of the data shown is now minus `data_time_s`."""

    source: str
    data_time_s: float | None
    """When the last good answer arrived; None before the first."""
    error: str | None
    error_time_s: float | None
    num_bad_rows: int
    duration_s: float | None


@dataclass(frozen=True, slots=True)
class TargetSnapshot:
    """One diagnosed run, job or log: what is known beside its series, which are in the History."""

    target: str
    now_s: float | None
    """Time in the data: for a live target the present, for a finished one its end; None when the data has no
    times."""
    job: Job | None = None
    run: Run | None = None
    exit: RunExit | None = None
    summary: JobSummary | None = None
    """What the site's jobstats measured of a job that coach did not launch, once it has ended."""
    log_hits: tuple[LogHit, ...] = ()
    log_tails: tuple[LogTail, ...] = ()
    log_files: tuple[LogFile, ...] = ()
    """Where its logs were looked for; empty where nobody knows a place."""
    flight: tuple[FlightRecord, ...] = ()
    """What torch's flight recorder left behind, of all ranks."""
    events: tuple[MetricEvent, ...] = ()
    checkpoints: tuple[Checkpoint, ...] = ()
    sensor_gaps: tuple[SensorGap, ...] = ()
    left_aside: str = ""
    """Which metric files of its program are not read, and why; empty where none was left aside."""
    bursts: tuple[StackBurst, ...] = ()
    """Of each rank the newest two bursts of stack samples, by node and rank, the older first."""
    across: Across | None = None
    """What earlier runs say of it; None where nobody has looked yet: they are looked at after it was judged
    by itself."""
    outcome: Outcome | None = None
    """None before the engine has judged it."""

    @property
    def state(self) -> str | None:
        """The queue's word, as long as it knows the job; then how the job ended, then what the run directory
        says.

        A final word in exit.json beats a queue's that is not, unless the job was requeued since: exit.json is
        removed when it starts.
        """
        job, exit_ = self.job, self.exit
        if job is not None and is_final(job.state):
            return job.state
        has_ended = exit_ is not None and is_final(exit_.state)
        if exit_ is not None and has_ended and not (job and job.was_requeued_after(exit_.ended_time_s)):
            return exit_.state
        if job is not None:
            return job.state
        return self.run.state if self.run is not None else None

    @property
    def has_ended(self) -> bool:
        return is_final(self.state)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that the screens show."""

    now_s: float
    nodes: tuple[Node, ...] = ()
    partitions: tuple[Partition, ...] = ()
    jobs: tuple[Job, ...] = ()
    is_queue_whole: bool = True
    """Whether the jobs are everybody's; else only the user's own have been asked for."""
    hidden: frozenset[str] = frozenset()
    """Of `jobs` (other users'), `nodes` and `partitions`: what the site hides from the user."""
    runs: tuple[Run, ...] = ()
    run_problems: tuple[str, ...] = ()
    targets: Mapping[str, TargetSnapshot] = field(default_factory=lambda: MappingProxyType({}))
    diagnoses: Mapping[str, Diagnosis] = field(default_factory=lambda: MappingProxyType({}))
    sources: Mapping[str, SourceStatus] = field(default_factory=lambda: MappingProxyType({}))
    spending: Spending | None = None
    """What is asked of Slurm; None where it is not asked: on this machine alone, and in a recording."""


@dataclass(frozen=True, slots=True)
class Watch:
    """What to follow: a value, by which the poller starts and stops sources."""

    is_cluster_watched: bool = True
    """Jobs, nodes, partitions and the list of runs."""
    all_jobs: bool = True
    targets: tuple[str, ...] = ()
    """Run ids, run directories or log paths whose files are followed."""
