"""A launch: the request, the plan that resolves it, and the submitted run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from coach.model.launching.environment import Environment
from coach.model.launching.ladder import Ladder

Scalar = str | int | float | bool
"""Type of a recipe parameter's value."""

GPU_REQUESTS = ("gpus-per-node", "gres")
"""How to ask Slurm for GPUs: `--gpus-per-node=[TYPE:]N`, or `--gres=gpu:[TYPE:]N` for sites that accept only
that."""


def _empty() -> Mapping[str, Any]:
    return MappingProxyType({})


OFFERS: Mapping[str, str] = MappingProxyType(
    {
        "torchrun": "starts a rank of a Python script for each GPU, by torchrun",
        "signal": "sends USR1 before the time limit, for a program that then writes a checkpoint",
        "flight-recorder": "keeps NCCL's last collectives, for reading when the ranks hang",
        "faulthandler": "prints where Python stands when a fault ends the program",
    }
)
"""Offer → what coach adds to a user's own program. An offer is applied only if the user names it."""

NOWHERE = "none"
"""Value of `share` in place of a directory: the run shares nothing, even if the config names a directory."""


@dataclass(frozen=True, slots=True)
class AppliedFix:
    """The fix that led to a child run: the rule that offered it, and the typed changes."""

    rule: str
    title: str
    changes: Mapping[str, Any]
    trial_steps: int | None = None
    """Number of steps of a trial; None: the fix is applied to the whole training."""


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """The position of a run in a group of runs that were launched together."""

    group_id: str
    parameter: str
    """A parameter of the recipe, or `world_size`; several names are joined by commas."""
    value: Scalar
    index: int
    size: int
    """Number of runs in the group."""


ARRAY_TASK = "array task"
"""The `parameter` of a group that comes from the job array of a batch file."""


class OwnKind(StrEnum):
    """Kinds of programs that can be launched without a recipe."""

    SCRIPT = "script"
    """A Python script, started by the interpreter of the training environment."""
    COMMAND = "command"
    """A command with its arguments, started unchanged."""
    BATCH = "batch"
    """A batch file with its own #SBATCH lines."""


@dataclass(frozen=True, slots=True)
class OwnProgram:
    """A user's own training, started unchanged in the directory of the launch."""

    kind: OwnKind
    words: tuple[str, ...]
    """The program and its arguments; a script's or a batch file's path comes first."""
    directory: str
    """Absolute path; the program's relative paths start here."""
    offers: tuple[str, ...] = ()
    """Keys of `OFFERS` that the user asked for."""
    name: str | None = None
    """The name of its runs; None: derived from the file."""
    parameters: Mapping[str, str] = field(default_factory=_empty)
    """Name of a parameter in rules and fixes → the program's own option for it, if the user declared one."""
    array_task: int | None = None
    """Index of the run in the job array of its batch file; None: no array, or the whole array."""


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """A launch as a user, a key or a fix asks for it. None: the default of the config or of the recipe
    applies."""

    recipe: str
    """A recipe's name, or the path of a recipe's TOML; for an own program, the name of its runs."""
    backend: str = "auto"
    num_nodes: int | None = None
    gpus_per_node: int | None = None
    nproc_per_node: int | None = None
    time_limit_s: int | None = None
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    reservation: str | None = None
    constraint: str | None = None
    mem: str | None = None
    """Memory per node, as Slurm writes it: 8G, 500M."""
    cpus_per_task: int | None = None
    gpu_type: str | None = None
    gpu_request: str | None = None
    """How to ask for GPUs: `gpus-per-node` or `gres`; see `GPU_REQUESTS`."""
    cpus_per_gpu: int | None = None
    exclude: str | None = None
    signal: str | None = None
    environment: str | None = None
    """The name of an environment in the config, or `KIND=VALUE` (see coach.launch.environment)."""
    python: str | None = None
    """Interpreter of the training; overrides that of the environment."""
    setup: tuple[str, ...] | None = None
    """Shell lines before srun."""
    env: Mapping[str, str] = field(default_factory=_empty)
    set: Mapping[str, str | Scalar] = field(default_factory=_empty)
    """Recipe parameters; strings are converted to the parameter's type."""
    sbatch: Mapping[str, str] = field(default_factory=_empty)
    """More options for sbatch, by long name without dashes."""
    defaulted: frozenset[str] = frozenset()
    """Names of the fields that the config filled in. Values given for this launch and values of the target
    replace them."""
    parent_run_id: str | None = None
    fix: AppliedFix | None = None
    resume_from: str | None = None
    """A checkpoint file of another run to start from."""
    has_local_nodes: bool | None = None
    """True: the local backend may run several nodes as agents on this machine. None: it may not."""
    sweep: Mapping[str, str] = field(default_factory=_empty)
    """Parameter → the values of a sweep, as the user typed them (see coach.launch.sweep_values)."""
    num_random: int | None = None
    """Number of runs that the sweep draws at random; None: one run for each combination."""
    at_once: int | None = None
    """Largest number of runs of the group that are active at once; None: see
    coach.workflows.launching.sweep."""
    brake: int | None = None
    """Stop rule of a group: after this many first runs that failed alike, no further run starts. None: all
    runs start."""
    sweep_point: SweepPoint | None = None
    """The position of this run in its group."""
    ladder: Ladder | None = None
    """The ladder whose rungs are launched as a group, or to which this run belongs."""
    group_before: tuple[str, ...] = ()
    """Ids of the earlier runs of its group."""
    until_done: int | None = None
    """Largest number of segments in which a training continues after its time limit; None: it ends there."""
    resume_with: str | None = None
    """How to pass the checkpoint to an own program that resumes: `--resume {path}`, or `none`."""
    max_restarts: int | None = None
    """How many times torchrun restarts all ranks after a failure; they resume from the newest checkpoint of
    the run."""
    has_gpm: bool | None = None
    """True: the sampler also reads GPM metrics of the multiprocessors, from counters that profilers use too.
    None: it does not."""
    share: str | None = None
    """Directory for a small summary of the run that everybody may read; `NOWHERE` or None: no summary."""
    own: OwnProgram | None = None
    """The user's own program that is launched; None: a recipe is launched."""
    is_mended: bool | None = None
    """True if a fix has changed the request: a drill then has no fault left to find. None: no fix has."""


@dataclass(frozen=True, slots=True)
class Resources:
    """The resolved request to the scheduler. GPUs and ranks are per node; memory and time are None where the
    site decides."""

    num_nodes: int
    gpus_per_node: int
    nproc_per_node: int
    cpus_per_task: int
    time_limit_s: int | None
    mem: str | None = None
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    reservation: str | None = None
    constraint: str | None = None
    gpu_type: str | None = None
    gpu_request: str = "gpus-per-node"
    cpus_per_gpu: int | None = None
    """CPUs per GPU, requested instead of `cpus_per_task`; `cpus_per_task` then holds the resulting number."""
    exclude: str | None = None
    signal: str | None = None

    @property
    def world_size(self) -> int:
        return self.num_nodes * self.nproc_per_node

    def num_threads(self, parameters: Mapping[str, Any]) -> int:
        """OpenMP threads per rank. With GPUs the data workers get the CPUs. Without GPUs the ranks compute on
        the CPUs, and the workers have little to do."""
        threads = self.cpus_per_task // self.nproc_per_node
        num_workers = parameters.get("num_workers")
        if self.gpus_per_node and isinstance(num_workers, int):
            threads -= num_workers
        return max(1, threads)


@dataclass(frozen=True, slots=True)
class Plan:
    """A launch, completely decided. It is shown whole and submitted unchanged."""

    request: LaunchRequest
    run_id: str
    run_dir: str
    backend: str
    """`slurm` or `local`."""
    recipe: str
    title: str
    parameters: Mapping[str, Any]
    resources: Resources
    script: str
    """The exact text that will be submitted."""
    notes: tuple[str, ...] = ()
    """Decisions with their reasons, one line each: ranks over gloo, generated data …"""
    warnings: tuple[str, ...] = ()
    """Unusual but allowed values: a parameter outside its usual range."""
    run_json: Mapping[str, Any] = field(default_factory=_empty)
    """Content of run.json as the launch writes it; the script carries the same."""
    environment: Environment = field(default_factory=Environment)
    """The source of the training's Python and torch."""
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=_empty)
    """Field of the request → the values that the target offers: partitions, GPU types."""
    locked: Mapping[str, str] = field(default_factory=_empty)
    """Field of the request → why only the site may set it, and where the site says so."""
    meanings: Mapping[str, str] = field(default_factory=_empty)
    """Field of the request or parameter → one sentence about it, with its unit and limits."""
    code_dir: str = ""
    """Folder of the code snapshot (trainers and node code) that the script starts."""
    own_trainers: str | None = None
    """Folder of a user's recipe that contains its trainer; None: the trainer belongs to coach."""
    command: tuple[str, ...] = ()
    """A user's own program and its arguments, with the values of the parameters; empty for a recipe."""
    mem_need_mib: int | None = None
    """Memory per node that the recipe needs, with headroom; None: unknown."""
    others: tuple[Plan, ...] = ()
    """The other runs of the group, in starting order after this one."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """The result of a launch, as `coach launch` prints it."""

    run_id: str
    run_dir: str
    job_id: str
    state: str
    notes: tuple[str, ...] = ()
    """Things that were done in addition, or that could not be done, one line each."""
