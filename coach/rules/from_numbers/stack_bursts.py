"""Read bursts of stack samples: which ranks wait for the others, and in which line each stands."""

from __future__ import annotations

from collections.abc import Sequence

from coach.model.judging.finding import Evidence
from coach.model.snapshot import TargetSnapshot
from coach.model.training.stacks import StackBurst

_SAME_MOMENT_S = 60.0
"""Bursts within these seconds count as simultaneous: each node samples by its own clock."""
_WAITING_CPU_PCT = 30.0
"""A rank in backward that uses less CPU than this waits for its peers inside DDP's C++ code. Waits that spin
(NCCL) look like work."""
_MIN_SAMPLES = 10


def newest_bursts(snapshot: TargetSnapshot, *, is_stall: bool) -> list[StackBurst]:
    """The newest burst of this kind of each rank, sorted by rank. Empty if they are not simultaneous."""
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
    """The share of samples in which the rank waits for other ranks, 0 to 1."""
    is_idle = burst.cpu_pct is not None and burst.cpu_pct < _WAITING_CPU_PCT
    return burst.share("collective", *(("backward",) if is_idle else ()))


def stands_in_one_place(burst: StackBurst, share: float) -> bool:
    """True if at least `share` (0 to 1) of the samples are in one line."""
    return bool(burst.places) and burst.places[0][1] >= share * burst.num_samples


def burst_evidence(bursts: Sequence[StackBurst]) -> tuple[Evidence, ...]:
    """One line of evidence for each of the first four ranks: its activity and its source line."""
    return tuple(Evidence(f"{burst.label}: {burst.words}") for burst in bursts[:4])
