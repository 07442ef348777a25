"""Where a job ran and what it was given there: what rules about nodes and their GPUs ask, and the fix that
leaves a node out."""

from __future__ import annotations

from collections.abc import Iterable

from coach.model.judging.finding import Fix
from coach.model.snapshot import TargetSnapshot
from coach.model.training.run import Run
from coach.rules.advice.remedies import without


def num_gpus_asked(snapshot: TargetSnapshot) -> int | None:
    """GPUs in all, as the launch or the queue says; None where neither does."""
    if snapshot.run is not None and snapshot.run.num_gpus is not None:
        return snapshot.run.num_gpus
    return snapshot.job.num_gpus if snapshot.job is not None else None


def has_uneven_ranks(run: Run | None) -> bool:
    """True if its recipe declares that its ranks do unequal work: the stages of a pipeline, DataParallel's
    first GPU."""
    return run is not None and run.is_uneven_by_design is True


def without_node(snapshot: TargetSnapshot, why: str) -> Iterable[Fix]:
    """Leave out the node that refused the job; nothing where none is named."""
    refusal = snapshot.exit.refused if snapshot.exit is not None else None
    return leave_out(snapshot.run, refusal.node if refusal is not None else None, why)


def leave_out(run: Run | None, node: str | None, why: str) -> Iterable[Fix]:
    """Leave out a node beside those that are left out already. Only Slurm has others to take."""
    if node and (changes := without(run, node)):
        yield Fix(f"Leave out {node}, {why}", changes)
