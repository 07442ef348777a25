"""Where a job ran and which GPUs it was given, for the rules about nodes; and the fix that excludes a
node."""

from __future__ import annotations

from collections.abc import Iterable

from coach.model.judging.finding import Fix
from coach.model.snapshot import TargetSnapshot
from coach.model.training.run import Run
from coach.rules.advice.remedies import without


def num_gpus_asked(snapshot: TargetSnapshot) -> int | None:
    """Total number of GPUs by the launch or the queue; None if neither has it."""
    if snapshot.run is not None and snapshot.run.num_gpus is not None:
        return snapshot.run.num_gpus
    return snapshot.job.num_gpus if snapshot.job is not None else None


def has_uneven_ranks(run: Run | None) -> bool:
    """True if the recipe declares that its ranks do unequal work, as pipeline stages or DataParallel's first
    GPU do."""
    return run is not None and run.is_uneven_by_design is True


def without_node(snapshot: TargetSnapshot, why: str) -> Iterable[Fix]:
    """The fix that excludes the node that refused the job; empty if no node is named."""
    refusal = snapshot.exit.refused if snapshot.exit is not None else None
    return leave_out(snapshot.run, refusal.node if refusal is not None else None, why)


def leave_out(run: Run | None, node: str | None, why: str) -> Iterable[Fix]:
    """The fix that adds a node to the excluded ones; empty outside of Slurm, which alone can choose another
    node."""
    if node and (changes := without(run, node)):
        yield Fix(f"Leave out {node}, {why}", changes)
