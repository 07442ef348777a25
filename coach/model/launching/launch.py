"""What is asked for, what will be launched, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from coach.model.launching.environment import Environment

Scalar = str | int | float | bool
"""What a recipe parameter may be."""

GPU_REQUESTS = ("gpus-per-node", "gres")
"""Spellings of the request for GPUs: `--gpus-per-node=[TYPE:]N`, and `--gres=gpu:[TYPE:]N` for sites that
know only that."""


def _empty() -> Mapping[str, Any]:
    return MappingProxyType({})


OFFERS: Mapping[str, str] = MappingProxyType(
    {
        "torchrun": "starts a rank of a Python script for each GPU, by torchrun",
        "signal": "sends USR1 before the time limit, for a program that then writes a checkpoint",
        "flight-recorder": "keeps NCCL's last collectives, to be read when the ranks hang",
        "faulthandler": "prints where Python stands when a fault ends the program",
    }
)
"""Name of each offer to an own program → what it adds. Nothing is added unless it is asked for by name."""

NOWHERE = "none"
"""Said instead of a directory: a run shares nothing, whatever the config says."""


@dataclass(frozen=True, slots=True)
class AppliedFix:
    """The fix that made a child run: which rule offered it, and the typed changes."""

    rule: str
    title: str
    changes: Mapping[str, Any]
    trial_steps: int | None = None
    """It is only tried, for so many steps; None: applied to the whole."""


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """A run's place in a group that was launched together: one value of what the group goes over."""

    group_id: str
    parameter: str
    """A parameter of the recipe, or `world_size`; of several, their names with commas."""
    value: Scalar
    index: int
    size: int
    """How many runs the group has."""


ARRAY_TASK = "array task"
"""The parameter of a group that is a batch file's own job array."""


class OwnKind(StrEnum):
    """What a person launches that is no recipe."""

    SCRIPT = "script"
    """A Python script, started by the interpreter of the training environment."""
    COMMAND = "command"
    """A command with its arguments, started as it stands."""
    BATCH = "batch"
    """A batch file with its own #SBATCH lines."""


@dataclass(frozen=True, slots=True)
class OwnProgram:
    """A person's own training: started unchanged, in the directory from which it was launched."""

    kind: OwnKind
    words: tuple[str, ...]
    """The program and its arguments; a script's or a batch file's path comes first."""
    directory: str
    """Absolute; relative paths of the program count from here."""
    offers: tuple[str, ...] = ()
    """Names of what coach adds because it was asked to; see `OFFERS`."""
    name: str | None = None
    """What its runs are called; None: by its file."""
    parameters: Mapping[str, str] = field(default_factory=_empty)
    """What rules and fixes call a parameter → the program's own option for it, where a person said so."""
    array_task: int | None = None
    """Which task of its batch file's job array the run is; None: the file asks for no array, or for all."""


@dataclass(frozen=True, slots=True)
class ConfigCopy:
    """A person's config file with values that the run changes. It lies in the run's directory."""

    source: str
    """The person's own file, absolute; it stays as it is."""
    name: str
    """The copy's name in the run's folder of copies."""
    text: str
    changes: Mapping[str, tuple[Scalar, Scalar]]
    """Key of the file, with dots → its value there, and in the copy."""


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """A launch as a user, a key or a fix asks for it; None means "not said: the config's or the recipe's
    default"."""

    recipe: str
    """A recipe's name, or the path of a TOML; of an own program the name of its runs."""
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
    """Memory per node in Slurm's spelling: 8G, 500M."""
    cpus_per_task: int | None = None
    gpu_type: str | None = None
    gpu_request: str | None = None
    """How GPUs are asked for: `gpus-per-node` or `gres`; see `GPU_REQUESTS`."""
    cpus_per_gpu: int | None = None
    exclude: str | None = None
    signal: str | None = None
    environment: str | None = None
    """A name from the config, or `KIND=VALUE` (see coach.launch.environment)."""
    python: str | None = None
    """Interpreter of the training environment; wins over the environment's own."""
    setup: tuple[str, ...] | None = None
    """Shell lines put before srun."""
    env: Mapping[str, str] = field(default_factory=_empty)
    set: Mapping[str, str | Scalar] = field(default_factory=_empty)
    """Recipe parameters; strings are converted to the parameter's type."""
    sbatch: Mapping[str, str] = field(default_factory=_empty)
    """More options for sbatch, by long name without dashes."""
    defaulted: frozenset[str] = frozenset()
    """Names of the fields above that the config filled in. They yield to what was said for this launch, and
    to what the target has."""
    parent_run_id: str | None = None
    fix: AppliedFix | None = None
    resume_from: str | None = None
    """A checkpoint file of another run to start from."""
    has_local_nodes: bool | None = None
    """Whether the local backend may play several nodes, each an agent on this machine; None: no."""
    sweep: Mapping[str, str] = field(default_factory=_empty)
    """Parameter → the values that a group of runs goes over, as they were typed (see
    coach.launch.sweep_values)."""
    num_random: int | None = None
    """How many runs the sweep draws at random; None: it makes a run for each combination."""
    at_once: int | None = None
    """How many runs of a group may be alive at the same time; None: see coach.workflows.launching.sweep."""
    brake: int | None = None
    """A run of a group does not begin when the first so many have failed alike; None: each begins."""
    sweep_point: SweepPoint | None = None
    """Which run of a group it is."""
    group_before: tuple[str, ...] = ()
    """The ids of the runs of its group before it."""
    until_done: int | None = None
    """The training goes on in so many segments at most when its time limit is near; None: it ends there."""
    resume_with: str | None = None
    """How an own program is told the checkpoint to go on from: `--resume {path}`, or `none`."""
    max_restarts: int | None = None
    """How often torchrun starts all ranks anew after one has failed; they go on from the run's newest
    checkpoint."""
    has_gpm: bool | None = None
    """Whether the sampler also reads what the multiprocessors do, from counters that profilers use too; None:
    no."""
    share: str | None = None
    """Directory for a small summary of the run that everybody may read; `NOWHERE` and None: none."""
    own: OwnProgram | None = None
    """What is launched in the place of a recipe; None: a recipe is."""
    is_mended: bool | None = None
    """Whether a fix has changed it before: of a drill there is nothing left to find then. None: no."""


@dataclass(frozen=True, slots=True)
class Resources:
    """What is asked of the scheduler, resolved. GPUs and ranks are per node; memory and time are None where
    the site decides."""

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
    """Asked for instead of `cpus_per_task`, which then is what they come to on each node."""
    exclude: str | None = None
    signal: str | None = None

    @property
    def world_size(self) -> int:
        return self.num_nodes * self.nproc_per_node


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything a launch will do, before it does it. Shown whole; submitted unchanged."""

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
    """Exactly what will be submitted."""
    notes: tuple[str, ...] = ()
    """What was decided and why, one line each: ranks over gloo, generated data …"""
    warnings: tuple[str, ...] = ()
    """Unusual but allowed: a parameter outside its usual range."""
    run_json: Mapping[str, Any] = field(default_factory=_empty)
    """run.json as the launch writes it; the script carries the same."""
    environment: Environment = field(default_factory=Environment)
    """Where the training's Python and torch come from."""
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=_empty)
    """Field of the request → what the target has to choose from: partitions, types of GPU."""
    locked: Mapping[str, str] = field(default_factory=_empty)
    """Field of the request → why nobody but the site may set it, and where the site says so."""
    meanings: Mapping[str, str] = field(default_factory=_empty)
    """Field of the request, or name of a parameter → one sentence about it, with its unit and limits."""
    code_dir: str = ""
    """Where the snapshot of trainers and node code lies, that the script starts."""
    own_trainers: str | None = None
    """The folder of a user's recipe that holds its trainer; None: the trainer is one of coach's."""
    command: tuple[str, ...] = ()
    """An own program and its arguments, with the parameters' values; empty for a recipe."""
    copies: tuple[ConfigCopy, ...] = ()
    """The changed config files that the command names."""
    others: tuple[Plan, ...] = ()
    """The other runs of its group, in the order in which they start after this one."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """What `coach launch` prints."""

    run_id: str
    run_dir: str
    job_id: str
    state: str
    notes: tuple[str, ...] = ()
    """What was done beside it, or could not be, one line each."""
