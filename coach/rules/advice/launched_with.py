"""Read the parameters and resources of a run's launch, tolerantly, for the changes that rules propose.

A job that coach did not launch has no parameters; a rule's fix is then only advice in words.
"""

from __future__ import annotations

from typing import Any

from coach.model.snapshot import TargetSnapshot
from coach.model.training.run import Run


def is_own_program(run: Run) -> bool:
    """True for a run of a person's own program: no recipe describes what it can do. For a run under `coach
    run`, run.json has the program's name as its recipe, but no request of a launch."""
    is_launched = bool(run.launch.get("recipe") or run.parameters or run.resources)
    return not run.recipe or bool(run.launch.get("own")) or not is_launched


def saves_in_run_dir(run: Run) -> bool:
    """True if the run writes its checkpoints into its run directory, as coach's trainers do. An own program
    may write them anywhere, also if it has an option of the same name."""
    return "checkpoint_every" in run.parameters and not is_own_program(run)


def int_parameter(run: Run | None, name: str) -> int | None:
    """A whole-number parameter of the launch; None when the run has no such parameter."""
    value = run.parameters.get(name) if run is not None else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def float_parameter(run: Run | None, name: str) -> float | None:
    value = run.parameters.get(name) if run is not None else None
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def parameter_default(run: Run, name: str) -> Any:
    """The recipe's default for a parameter; None if run.json has none."""
    info = run.parameter_info.get(name)
    return info.get("default") if isinstance(info, dict) else None


def usual_range(run: Run, name: str) -> tuple[float, float] | None:
    """The recipe's usual range of a parameter; None if run.json has none."""
    info = run.parameter_info.get(name)
    usual = info.get("usual") if isinstance(info, dict) else None
    if (
        isinstance(usual, (list, tuple))
        and len(usual) == 2
        and all(isinstance(v, (int, float)) for v in usual)
    ):
        return float(usual[0]), float(usual[1])
    return None


def int_resource(run: Run | None, name: str) -> int | None:
    """A whole-number field of the requested resources; None without one."""
    value = run.resources.get(name) if run is not None else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def cpus_per_rank(run: Run | None, num_cpus_on_node: int | None) -> int | None:
    """CPUs per rank: the CPUs requested per node (or else allocated), divided by the ranks of a node."""
    ranks = int_resource(run, "nproc_per_node") or 1
    cpus = int_resource(run, "cpus_per_task") or num_cpus_on_node
    return max(1, cpus // ranks) if cpus else None


def num_gpus_asked(snapshot: TargetSnapshot) -> int | None:
    """Total number of GPUs by the launch or the queue; None if neither has it."""
    if snapshot.run is not None and snapshot.run.num_gpus is not None:
        return snapshot.run.num_gpus
    return snapshot.job.num_gpus if snapshot.job is not None else None


def has_uneven_ranks(run: Run | None) -> bool:
    """True if the recipe declares that its ranks do unequal work, as pipeline stages or DataParallel's first
    GPU do."""
    return run is not None and run.is_uneven_by_design is True
