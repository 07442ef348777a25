"""A run: one launch of one recipe, as its directory describes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from coach.model.launching.ladder import Ladder
from coach.model.launching.launch import AppliedFix, SweepPoint
from coach.model.teaching.drill import Answer


class Submission(StrEnum):
    """State of the submission of a pending run that has no job id."""

    LAUNCHING = "launching"
    """The coach that submits it is still working, or may be."""
    NEVER = "never_submitted"
    """The launch was interrupted before Slurm received the job."""
    NOT_QUEUED = "not_queued"
    """The launch was interrupted, and its job is not in the queue."""
    UNKNOWN = "may_be_queued"
    """The launch was interrupted, and Slurm did not answer."""

    @property
    def words(self) -> str:
        """Text in place of the run's state."""
        return self.value.replace("_", " ")


@dataclass(frozen=True, slots=True)
class Segment:
    """One part of a training that is longer than its time limit. None: unknown."""

    start_time_s: float | None
    end_time_s: float | None
    """When its end was noted; None: it still runs, or it ended by itself."""
    nodes: str | None
    resumed_from: str | None
    """The checkpoint that it resumed from."""
    checkpoint: str | None
    """The newest checkpoint that it wrote."""
    lost_s: float | None
    """Seconds between that checkpoint and the segment's end: this work is repeated."""
    why: str | None
    """Why it ended."""
    refusal: str | None = None
    """Why no further segment followed it, although the time limit was near; None if that did not happen."""


@dataclass(frozen=True, slots=True)
class FullDisk:
    """Writes of coach's own that failed on a node because the run's file system was full, and did not succeed
    again. None: unknown."""

    node: str
    file: str
    """The file with this record."""
    is_quota: bool
    """True if the user's quota was used up; False if the file system was full."""
    first_time_s: float | None
    last_time_s: float | None
    free_bytes: int | None
    """Free space of the file system at the last failed write."""
    free_inodes: int | None
    exit_code: int | None = None
    """That of the node's command, if it had ended: exit.json could not be written."""


@dataclass(frozen=True, slots=True)
class Run:
    """Content of run.json, read tolerantly: missing values are None or empty. Times are epoch seconds."""

    run_id: str
    run_dir: str
    recipe: str
    backend: str
    job_id: str | None
    state: str | None
    """Slurm's state; None if no state has been recorded."""
    parameters: Mapping[str, Any]
    resources: Mapping[str, Any]
    """The fields of model.launch.Resources."""
    launch: Mapping[str, Any]
    """The request that made the run, for a relaunch: the fields of model.launch.LaunchRequest that were
    set."""
    created_time_s: float | None
    started_time_s: float | None
    ended_time_s: float | None
    parent_run_id: str | None
    fix: AppliedFix | None
    device: Mapping[str, Any]
    """`type` (`cpu` or `cuda`) and `name`, as the trainer reported them."""
    dataset: Mapping[str, Any]
    versions: Mapping[str, Any]
    parameter_info: Mapping[str, Any] = field(default_factory=dict)
    """Parameter → `{"default": …, "usual": [low, high]}` from the recipe, for fixes that need usual
    values."""
    expects: tuple[str, ...] = ()
    """Codes of findings that the recipe causes on purpose."""
    is_uneven_by_design: bool | None = None
    """True if the recipe declares that its ranks do unequal work; None if run.json does not say."""
    remedies: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Remedy → the launch changes with which the recipe applies it; empty if run.json does not say."""
    mem_need_mib: float | None = None
    """Memory per node that its recipe needs, with headroom; None: unknown."""
    sweep: SweepPoint | None = None
    """Position in the group that it was launched with."""
    ladder: Ladder | None = None
    """The ladder that the group was launched as."""
    user: str | None = None
    """The user who launched it."""
    host: str | None = None
    """The machine on which a local run was started, if known."""
    is_visible: bool = True
    """False for a local run on another machine: its state is the last known one, from `last_word_time_s`."""
    last_word_time_s: float | None = None
    cluster: str | None = None
    """The Slurm cluster of its job; None for a local run and for a cluster without a name."""
    submitted_time_s: float | None = None
    """When coach submitted it; None for a run that was started inside a job."""
    drill: str | None = None
    """Name of its drill; None: it has no planted fault."""
    drill_answer: Answer | None = None
    segments: tuple[Segment, ...] = ()
    """The segments of a training that resumes after its time limit, oldest first; empty for any other."""
    attempts: tuple[Mapping[str, Any], ...] = ()
    """The attempts before the present one, oldest first, if the run was resumed: `job_id`, `state`,
    `started_time_s`, `ended_time_s`, and the `checkpoint` from which the next attempt went on."""
    is_launching: bool = False
    """True while a coach is submitting it, as far as can be seen from this machine."""
    found_by: str | None = None
    """The Slurm field by which coach found the job after sbatch's answer was lost: `StdOut` or
    `SubmitLine`."""
    raw_job_id: str | None = None
    """Slurm's own number of a job that took itself for a task of an array: `23` for `17_1`."""
    has_torch_gpu_support: bool | None = None
    """False if the torch of its Python was built without CUDA, ROCm and XPU; None if unknown."""
    full_disks: tuple[FullDisk, ...] = ()
    """Nodes that could not write to the run directory until the end; filled for a run that is followed."""
    submission: Submission | None = None
    """State of the submission if there is no job id; None: not checked, or not needed."""
    why_not_mine: str | None = "not read from a run directory"
    """Why somebody else may have written its record, in words; None: only this user can have. Only then does
    coach start, change or signal anything of it."""

    @property
    def is_mine(self) -> bool:
        return self.why_not_mine is None

    @property
    def earlier_job_ids(self) -> tuple[str, ...]:
        """The ids of the jobs of its earlier attempts; a local run keeps its own."""
        said = (attempt.get("job_id") for attempt in self.attempts)
        return tuple(job_id for job_id in said if isinstance(job_id, str) and job_id != self.job_id)

    @property
    def job_ids(self) -> tuple[str, ...]:
        """The ids of its job and of the jobs of its earlier attempts; empty if no id is known."""
        return (*((self.job_id,) if self.job_id else ()), *self.earlier_job_ids)

    @property
    def is_open_drill(self) -> bool:
        """True while the learner has still to find the planted fault."""
        answer = self.drill_answer
        return self.drill is not None and (answer is None or not (answer.is_settled or answer.spoiled))

    @property
    def tokens_per_sample(self) -> int | None:
        """How long each sample is, where samples are sequences of tokens and the trainer says so."""
        length = self.dataset.get("tokens_per_sample")
        return length if type(length) is int and length > 0 else None

    @property
    def num_gpus(self) -> int | None:
        """GPUs requested over all nodes; None if run.json does not say."""
        nodes, gpus = self.resources.get("num_nodes"), self.resources.get("gpus_per_node")
        return nodes * gpus if isinstance(nodes, int) and isinstance(gpus, int) else None


@dataclass(frozen=True, slots=True)
class RankExit:
    """How one rank ended. A bystander ended only because it lost a peer."""

    rank: int
    exit_code: int | None
    signal: int | None
    message: str | None
    is_bystander: bool


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the job was ended before the training began, or by the trainer's own checks: a requirement is
    missing."""

    cause: str
    """The cause of a finding: `cuda_unavailable`, `disk_quota` …"""
    text: str
    node: str | None


@dataclass(frozen=True, slots=True)
class RunExit:
    """Content of exit.json: how the run ended, seen from inside the job. `state` is Slurm's state."""

    state: str | None
    exit_code: int | None
    ended_time_s: float | None
    ranks: tuple[RankExit, ...]
    refused: Refusal | None = None
    oom_kills: Mapping[str, int] = field(default_factory=dict)
    """Node → number of processes that the kernel killed because the job's memory was used up."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint of a run: a file, or a directory to which every rank wrote its shard."""

    path: str
    step: int
    time_s: float
