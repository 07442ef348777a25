"""All that is known at one moment: the whole for screens, one target for rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
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
from coach.model.training.stacks import RankPlace, RankStack, StackBurst
from coach.model.training.telemetry import SensorGap


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """The state of a source. The age of the data on the screen is now minus `data_time_s`."""

    source: str
    data_time_s: float | None
    """When the last good answer arrived; None before the first one."""
    error: str | None
    error_time_s: float | None
    num_bad_rows: int
    duration_s: float | None


@dataclass(frozen=True, slots=True)
class TargetSnapshot:
    """One diagnosed run, job or log: all data except its series, which are in the History."""

    target: str
    now_s: float | None
    """The time in the data: the present for a live target, the end for a finished one; None for data without
    times."""
    job: Job | None = None
    run: Run | None = None
    exit: RunExit | None = None
    summary: JobSummary | None = None
    """Measurements by the site's jobstats of an ended job that coach did not launch."""
    log_hits: tuple[LogHit, ...] = ()
    log_tails: tuple[LogTail, ...] = ()
    log_files: tuple[LogFile, ...] = ()
    """Places that were searched for its logs; empty if no place is known."""
    flight: tuple[FlightRecord, ...] = ()
    """Dumps of torch's flight recorder, from all ranks."""
    num_dumps_left_out: int = 0
    """Older dumps that are not read, because there are too many."""
    stacks: tuple[RankStack, ...] = ()
    """Stacks of ranks that somebody took with py-spy, and kept beside the dumps."""
    places: tuple[RankPlace, ...] = ()
    """The places of ranks in the code, by all stacks that were taken while a training with dumps stood."""
    events: tuple[MetricEvent, ...] = ()
    checkpoints: tuple[Checkpoint, ...] = ()
    sensor_gaps: tuple[SensorGap, ...] = ()
    left_aside: str = ""
    """Metric files of its program that are not read, and why; "" if all are read."""
    taken_for: str = ""
    """What a pasted text was taken for; "" for everything else."""
    bursts: tuple[StackBurst, ...] = ()
    """The newest two bursts of stack samples of each rank, sorted by node and rank, older first."""
    node_reasons: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Node → the reason that Slurm has for it, of a job that ended with a failed node. Empty where the nodes
    are not watched."""
    across: Across | None = None
    """Comparison with earlier runs; None before they were read, which happens after the first judgement."""
    outcome: Outcome | None = None
    """None before the engine's judgement."""

    @property
    def state(self) -> str | None:
        """The state in the queue; without a row there, the state in exit.json, then that of the run
        directory.

        A final state in exit.json overrides a queue state that is not final, unless the job was requeued
        since: exit.json is removed only when the job starts again.
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

    @property
    def job_id(self) -> str | None:
        """The job's id in the queue, or else in the run directory."""
        return self.job.job_id if self.job is not None else self.run.job_id if self.run is not None else None

    @property
    def lines(self) -> Iterator[str]:
        """The kept lines of all logs, without prefixes."""
        return chain.from_iterable(tail.plain for tail in self.log_tails)

    @property
    def moments(self) -> tuple[float | None, float | None, float | None]:
        """When it was submitted, started and ended, in epoch seconds, each by the first that knows: Slurm,
        exit.json, the run's record. The start of a job that waits is Slurm's forecast."""
        job, run = self.job, self.run
        of_job = (None,) * 3 if job is None else (job.submit_time_s, job.start_time_s, job.end_time_s)
        of_run = (None,) * 3 if run is None else (run.submitted_time_s, run.started_time_s, run.ended_time_s)
        ended_s = of_job[2] or (self.exit.ended_time_s if self.exit is not None else None) or of_run[2]
        return of_job[0] or of_run[0], of_job[1] or of_run[1], ended_s


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that the screens show."""

    now_s: float
    nodes: tuple[Node, ...] = ()
    partitions: tuple[Partition, ...] = ()
    jobs: tuple[Job, ...] = ()
    is_queue_whole: bool = True
    """True if the jobs are all users'; False if only the user's own were asked for."""
    hidden: frozenset[str] = frozenset()
    """The lists that the site hides from the user: `jobs` (other users' jobs), `nodes`, `partitions`."""
    runs: tuple[Run, ...] = ()
    run_problems: tuple[str, ...] = ()
    targets: Mapping[str, TargetSnapshot] = field(default_factory=lambda: MappingProxyType({}))
    diagnoses: Mapping[str, Diagnosis] = field(default_factory=lambda: MappingProxyType({}))
    sources: Mapping[str, SourceStatus] = field(default_factory=lambda: MappingProxyType({}))
    spending: Spending | None = None
    """Load on Slurm; None on a machine without Slurm and in a replay."""


@dataclass(frozen=True, slots=True)
class Watch:
    """The set of things to follow. The poller starts and stops sources when it changes."""

    all_jobs: bool = True
    """True to read the jobs of all users; False: only the user's own."""
    targets: tuple[str, ...] = ()
    """Run ids, run directories or log paths to follow."""
