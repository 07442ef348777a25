"""A run: one launch of one recipe, and what its directory says about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from coach.model.launching.launch import AppliedFix, SweepPoint
from coach.model.teaching.drill import Answer


class Submission(StrEnum):
    """How the submission of a run stands that waits and has no job id."""

    LAUNCHING = "launching"
    """The coach that submits it is still at work, or may be."""
    NEVER = "never_submitted"
    """The launch was interrupted before Slurm had the job."""
    NOT_QUEUED = "not_queued"
    """The launch was interrupted, and no job of it is in the queue."""
    UNKNOWN = "may_be_queued"
    """The launch was interrupted, and Slurm did not answer."""

    @property
    def words(self) -> str:
        """In place of the run's state."""
        return self.value.replace("_", " ")


@dataclass(frozen=True, slots=True)
class Segment:
    """One part of a training that is longer than its time limit. What is not known is None."""

    start_time_s: float | None
    end_time_s: float | None
    """When its end was noted; None: it goes on, or it ended by itself."""
    nodes: str | None
    resumed_from: str | None
    """The checkpoint that it went on from."""
    checkpoint: str | None
    """The newest checkpoint that it left."""
    lost_s: float | None
    """Seconds between that checkpoint and its end: their work is done again."""
    why: str | None
    """Why it ended."""


@dataclass(frozen=True, slots=True)
class Run:
    """run.json, read tolerantly: what is missing is None or empty. Times are epoch seconds."""

    run_id: str
    run_dir: str
    recipe: str
    backend: str
    job_id: str | None
    state: str | None
    """Slurm's word; None when nobody has recorded one yet."""
    parameters: Mapping[str, Any]
    resources: Mapping[str, Any]
    """The fields of model.launch.Resources."""
    launch: Mapping[str, Any]
    """The request that made the run (fields of model.launch.LaunchRequest that were set), for a relaunch."""
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
    """Parameter → `{"default": …, "usual": [low, high]}` from the recipe, for fixes that need to know what is
    ordinary."""
    expects: tuple[str, ...] = ()
    """Codes of findings that its recipe shows on purpose."""
    is_uneven_by_design: bool | None = None
    """True if its recipe declares that its ranks do unequal work; None: run.json does not say, and nothing is
    declared."""
    remedies: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Remedy → the changes by which its recipe carries it out; empty where run.json does not say."""
    sweep: SweepPoint | None = None
    """Its place in the group it was launched with."""
    user: str | None = None
    """Who launched it."""
    host: str | None = None
    """The machine that a local run was started on, as far as it is known."""
    is_visible: bool = True
    """False for a local run of another machine: its state is the last word known, of `last_word_time_s`."""
    last_word_time_s: float | None = None
    cluster: str | None = None
    """The Slurm cluster whose job it is; None for a local run, and where the cluster has not said its
    name."""
    submitted_time_s: float | None = None
    """When coach submitted it; None for a run that a job began by itself."""
    drill: str | None = None
    """The drill that it is of; None: no fault was planted in it."""
    drill_answer: Answer | None = None
    segments: tuple[Segment, ...] = ()
    """Of a training that goes on when its time limit is near: oldest first; empty for any other."""
    is_launching: bool = False
    """True while a coach submits it, as far as can be seen from here."""
    found_by: str | None = None
    """The field of Slurm's by which coach found the job after sbatch's answer was lost: `StdOut` or
    `SubmitLine`."""
    submission: Submission | None = None
    """What is known where there is no job id; None: not looked for, or not needed."""

    @property
    def is_open_drill(self) -> bool:
        """Whether what is wrong with it is still for the learner to find."""
        return self.drill is not None and (self.drill_answer is None or not self.drill_answer.is_settled)

    @property
    def tokens_per_sample(self) -> int | None:
        """How long each sample is, where samples are sequences of tokens and the trainer says so."""
        length = self.dataset.get("tokens_per_sample")
        return length if type(length) is int and length > 0 else None

    @property
    def num_gpus(self) -> int | None:
        """GPUs asked for in all; None when run.json does not say."""
        nodes, gpus = self.resources.get("num_nodes"), self.resources.get("gpus_per_node")
        return nodes * gpus if isinstance(nodes, int) and isinstance(gpus, int) else None


@dataclass(frozen=True, slots=True)
class RankExit:
    """How one rank ended. A bystander only lost its peer."""

    rank: int
    exit_code: int | None
    signal: int | None
    message: str | None
    is_bystander: bool


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the job was ended before the training began, or by the trainer's own checks: something that
    training cannot do without is missing."""

    cause: str
    """A finding's cause: `cuda_unavailable`, `disk_quota` …"""
    text: str
    node: str | None


@dataclass(frozen=True, slots=True)
class RunExit:
    """exit.json: how the run ended, as seen from inside the job. `state` is Slurm's word."""

    state: str | None
    exit_code: int | None
    ended_time_s: float | None
    ranks: tuple[RankExit, ...]
    refused: Refusal | None = None
    oom_kills: Mapping[str, int] = field(default_factory=dict)
    """Node → processes that the kernel killed there because the job's memory was used up."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint of a run: a file, or a directory where every rank wrote its share."""

    path: str
    step: int
    time_s: float
