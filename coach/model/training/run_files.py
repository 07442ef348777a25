"""Types of the files in a run directory: run.json, exit.json, and the records of a training.

The published JSON Schemas are generated from these types. The types check nothing: many programs write the
files, some under another Python, and their readers are tolerant.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypedDict

from coach.model.json_types import Number, Schema1
from coach.model.launching.launch import SweepPoint


class VersionsObject(TypedDict):
    """Versions of the training's software; null until the trainer reports them."""

    coach: NotRequired[str | None]
    python: NotRequired[str | None]
    torch: NotRequired[str | None]


class TorchBuildObject(TypedDict):
    """The build of the torch that the program's Python imports, according to torch's files."""

    cuda: str | None
    has_gpu_support: bool | None
    """False: built for neither CUDA, nor ROCm, nor XPU."""


class DeviceObject(TypedDict):
    """The device of the training."""

    type: NotRequired[str | None]
    """`cpu` or `cuda`."""
    name: NotRequired[str | None]


class DatasetObject(TypedDict):
    """The data of the training."""

    name: NotRequired[str | None]
    path: NotRequired[str | None]
    is_synthetic: NotRequired[bool | None]


class FixJson(TypedDict):
    """The fix that was applied to the parent run."""

    rule: str
    title: str
    changes: dict[str, Any]
    trial_steps: NotRequired[int]
    """Number of steps of a trial; absent if the fix is applied to the whole training."""


class RunJson(TypedDict):
    """run.json: the launch and the present state of a run. Only a locked merge changes it."""

    schema: Schema1
    run_id: str
    recipe: str | None
    trainer: NotRequired[str | None]
    parameters: NotRequired[dict[str, Any]]
    parameter_info: NotRequired[dict[str, Any]]
    """Parameter → its default and its usual range."""
    resources: NotRequired[dict[str, Any]]
    """The resources requested from the scheduler."""
    mem_need_mib: NotRequired[int]
    """Memory per node that the recipe needs, with headroom."""
    launch: NotRequired[dict[str, Any]]
    """The launch request, for a relaunch."""
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
    """Slurm's state; null until one is recorded."""
    reason: NotRequired[str | None]
    environment: NotRequired[dict[str, Any]]
    requires: NotRequired[dict[str, Any]]
    command: NotRequired[list[str]]
    """The command of `coach run` or of a batch file, without its secrets."""
    output: NotRequired[dict[str, Any]]
    """Files of the output streams of `coach run` or of a batch file."""
    configs: NotRequired[list[dict[str, Any]]]
    versions: NotRequired[VersionsObject]
    raw_job_id: NotRequired[str | None]
    """Slurm's job number of an array task."""
    torch_build: NotRequired[TorchBuildObject]
    """The torch of the Python that the job started; absent if it was not found."""
    device: NotRequired[DeviceObject]
    dataset: NotRequired[DatasetObject]
    git: NotRequired[dict[str, Any] | None]
    parent_run_id: NotRequired[str | None]
    fix: NotRequired[FixJson | None]
    resume_from: NotRequired[str | None]
    expects: NotRequired[list[str]]
    """Codes of findings that the recipe causes on purpose."""
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
    """The end of one rank."""

    rank: int
    exit_code: int | None
    signal: int | None
    message: str | None
    is_bystander: NotRequired[bool]
    """True for a rank that only lost its peer."""


class NodeEndObject(TypedDict):
    """The end of the training on one node."""

    exit_code: int | None
    signal: int | None
    ranks: list[RankEndObject]
    oom_kills: NotRequired[int]
    """Processes that the kernel killed because the job's memory there was used up."""


class RefusedObject(TypedDict):
    """Why a node refused to start the training."""

    cause: str
    text: str
    node: str


class ExitJson(TypedDict):
    """exit.json: the end of a run. Each part is absent until it is written."""

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
    """An event between two steps: a line of metrics/rank-<r>.jsonl."""

    event: str
    """`start resume epoch_end eval target checkpoint compile end`, or a program's own."""
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
    """True if the training had made steps before."""
    silent_s: NotRequired[float | None]
    """Seconds for which logs and metrics had been silent."""
    rank: NotRequired[int | None]
    num_samples: int
    categories: dict[str, int]
    """`collective data save optimizer backward forward other` → samples."""
    places: NotRequired[list[tuple[str, int]]]
    """The most frequent lines of the program's own code, and their samples."""
    cpu_pct: NotRequired[float | None]


class TelemetryKey(TypedDict):
    """Fields of every telemetry record."""

    time_s: float
    node: str


class DrillAnswerJson(TypedDict):
    """drill_answer.json: the learner's answer."""

    schema: Schema1
    answer: str | None
    """Null if the learner gave up."""
    is_right: bool
    time_s: float
    num_tries: int
    """Answers that counted."""
    spoiled: str | None
    """How the run ended, if the planted fault did not end it: the answer does not count."""
