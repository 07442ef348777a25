"""What bursts of stack samples say of the ranks: who waits for the others, and where each stands."""

from __future__ import annotations

from collections.abc import Sequence

from coach.model.judging.finding import Evidence
from coach.model.snapshot import TargetSnapshot
from coach.model.training.stacks import StackBurst

_SAME_MOMENT_S = 60.0
"""Nodes take their bursts by their own clocks and looks."""
_WAITING_CPU_PCT = 30.0
"""DDP waits for its peers inside of backward, in C++: the rank then uses less of its CPU than this. Spinning
waits (NCCL) are not told from work by it."""
_MIN_SAMPLES = 10


def newest_bursts(snapshot: TargetSnapshot, *, is_stall: bool) -> list[StackBurst]:
    """Of each rank the newest burst of this kind, if all are of one moment; the ranks in their order."""
    newest: dict[tuple[str, int], StackBurst] = {}
    for burst in snapshot.bursts:
        if burst.is_stall == is_stall and burst.num_samples >= _MIN_SAMPLES:
            newest[(burst.node, burst.pid if burst.rank is None else burst.rank)] = burst
    last_s = max((burst.time_s for burst in newest.values()), default=0.0)
    of_one_moment = (burst for burst in newest.values() if last_s - burst.time_s <= _SAME_MOMENT_S)
    return sorted(
        of_one_moment, key=lambda burst: (burst.rank is None, burst.rank or 0, burst.node, burst.pid)
    )


def waiting_share(burst: StackBurst) -> float:
    """The part of the samples in which the rank waits for the others, 0 to 1."""
    is_idle = burst.cpu_pct is not None and burst.cpu_pct < _WAITING_CPU_PCT
    return burst.share("collective", *(("backward",) if is_idle else ()))


def stands_in_one_place(burst: StackBurst, share: float) -> bool:
    """True if so many of the samples, 0 to 1, are of one line."""
    return bool(burst.places) and burst.places[0][1] >= share * burst.num_samples


def burst_evidence(bursts: Sequence[StackBurst], most: int = 4) -> tuple[Evidence, ...]:
    """A line for each of the first ranks: what its stacks are busy with, and where."""
    return tuple(Evidence(f"{burst.label}: {burst.words}") for burst in bursts[:most])
