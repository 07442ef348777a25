"""The files of a run directory as types: what run.json, exit.json and the records of a training hold.

Many write them, some under another Python, so nothing is checked here: readers are tolerant, and the
published JSON Schemas are made of these.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypedDict

from coach.model.json_types import Number, Schema1
from coach.model.launching.launch import SweepPoint


class VersionsObject(TypedDict):
    """Versions of what trains; null until the trainer has said them."""

    coach: NotRequired[str | None]
    python: NotRequired[str | None]
    torch: NotRequired[str | None]


class TorchBuildObject(TypedDict):
    """How the torch of the program's Python was built, as its files say."""

    cuda: str | None
    has_gpu_support: bool | None
    """False: built for neither CUDA, nor ROCm, nor XPU."""


class DeviceObject(TypedDict):
    """What it trains on."""

    type: NotRequired[str | None]
    """`cpu` or `cuda`."""
    name: NotRequired[str | None]


class DatasetObject(TypedDict):
    """What it trains with."""

    name: NotRequired[str | None]
    path: NotRequired[str | None]
    is_synthetic: NotRequired[bool | None]


class FixJson(TypedDict):
    """The fix that made it of its parent."""

    rule: str
    title: str
    changes: dict[str, Any]
    trial_steps: NotRequired[int]
    """It is only tried, for so many steps."""


class RunJson(TypedDict):
    """run.json: what was launched, and how it stands. Changed by a locked merge only."""

    schema: Schema1
    run_id: str
    recipe: str | None
    trainer: NotRequired[str | None]
    parameters: NotRequired[dict[str, Any]]
    parameter_info: NotRequired[dict[str, Any]]
    """Parameter → its default and its usual range."""
    resources: NotRequired[dict[str, Any]]
    """What was asked of the scheduler."""
    launch: NotRequired[dict[str, Any]]
    """What the launch said, for a relaunch."""
    backend: str
    """`slurm` or `local`."""
    cluster: NotRequired[str | None]
    job_id: str | None
    user: NotRequired[str | None]
    created_time_s: float | None
    submitted_time_s: NotRequired[float | None]
    started_time_s: NotRequired[float | None]
    ended_time_s: NotRequired[float | None]
    state: str | None
    """Slurm's word; null when nobody has recorded one yet."""
    reason: NotRequired[str | None]
    environment: NotRequired[dict[str, Any]]
    requires: NotRequired[dict[str, Any]]
    command: NotRequired[list[str]]
    """Of `coach run` and of a batch file: its words, secrets struck out."""
    output: NotRequired[dict[str, Any]]
    """Of `coach run` and of a batch file: where its streams went."""
    configs: NotRequired[list[dict[str, Any]]]
    versions: NotRequired[VersionsObject]
    raw_job_id: NotRequired[str | None]
    """Slurm's own number of a task of an array."""
    torch_build: NotRequired[TorchBuildObject]
    """Of the Python that the job started; absent if it was not found."""
    device: NotRequired[DeviceObject]
    dataset: NotRequired[DatasetObject]
    git: NotRequired[dict[str, Any] | None]
    parent_run_id: NotRequired[str | None]
    fix: NotRequired[FixJson | None]
    resume_from: NotRequired[str | None]
    expects: NotRequired[list[str]]
    """Codes of findings that it shows on purpose."""
    uneven_by_design: NotRequired[bool]
    remedies: NotRequired[dict[str, dict[str, Any]]]
    drill: NotRequired[str]
    sweep: NotRequired[Annotated[dict[str, Any], SweepPoint]]
    segments: NotRequired[list[dict[str, Any]]]
    supervisor: NotRequired[dict[str, Any] | None]
    process: NotRequired[dict[str, Any] | None]
    launcher: NotRequired[dict[str, Any] | None]
    found_by: NotRequired[str | None]
    submission: NotRequired[str | None]
    num_parameters: NotRequired[int | None]


class RankEndObject(TypedDict):
    """How one rank ended."""

    rank: int
    exit_code: int | None
    signal: int | None
    message: str | None
    is_bystander: NotRequired[bool]
    """True for a rank that only lost its peer."""


class NodeEndObject(TypedDict):
    """How the training ended on one node."""

    exit_code: int | None
    signal: int | None
    ranks: list[RankEndObject]
    oom_kills: NotRequired[int]
    """Processes that the kernel killed because the job's memory there was used up."""


class RefusedObject(TypedDict):
    """Something that training needs is missing there."""

    cause: str
    text: str
    node: str


class ExitJson(TypedDict):
    """exit.json: how a run ended. Each part is there once somebody has written it."""

    schema: Schema1
    nodes: NotRequired[dict[str, NodeEndObject]]
    ranks: NotRequired[list[RankEndObject]]
    state: NotRequired[str]
    reason: NotRequired[str | None]
    exit_code: NotRequired[int | None]
    ended_time_s: NotRequired[float | None]
    refused: NotRequired[RefusedObject]


class StepRecord(TypedDict):
    """One optimizer step of one rank: a line of metrics/rank-<r>.jsonl."""

    step: int
    time_s: Number
    """Seconds since the epoch, at the end of the step."""
    epoch: NotRequired[Number]
    loss: NotRequired[Number]
    lr: NotRequired[Number]
    num_samples: NotRequired[Number]
    """Samples of this step on this rank."""
    num_samples_global: NotRequired[Number]
    """Samples of this step on all ranks."""
    data_time_s: NotRequired[Number]
    """Time that the step waited for its batch."""
    step_time_s: NotRequired[Number]
    """The whole step, data time included."""
    comm_time_s: NotRequired[Number]
    """Time that the step waited for the exchange of gradients; measured in some steps only."""
    grad_norm: NotRequired[Number]
    loss_scale: NotRequired[Number]
    memory_allocated_mib: NotRequired[Number]
    memory_reserved_mib: NotRequired[Number]
    accuracy: NotRequired[Number]


class EventRecord(TypedDict):
    """Something that happened between the steps: a line of metrics/rank-<r>.jsonl."""

    event: str
    """`start resume epoch_end eval checkpoint compile end`, or a program's own."""
    time_s: Number
    step: NotRequired[Number]


class StackSamplesRecord(TypedDict):
    """Some twenty stacks of one rank, reduced to counts: a line of stacks/samples-<node>.jsonl."""

    kind: Literal["stack_samples"]
    time_s: float
    node: str
    pid: int
    why: Literal["warm_up", "stalled"]
    has_steps: NotRequired[bool]
    """True if the training was seen to make steps before."""
    silent_s: NotRequired[float | None]
    """How long logs and metrics were silent then."""
    rank: NotRequired[int | None]
    num_samples: int
    categories: dict[str, int]
    """`collective data save optimizer backward forward other` → samples."""
    places: NotRequired[list[tuple[str, int]]]
    """The most frequent lines of the program's own code, and their samples."""
    cpu_pct: NotRequired[float | None]


class TelemetryKey(TypedDict):
    """What each telemetry record has."""

    time_s: float
    node: str


class DrillAnswerJson(TypedDict):
    """drill_answer.json: what the learner answered."""

    schema: Schema1
    answer: str | None
    """Null: given up."""
    is_right: bool
    time_s: float
    num_tries: int
