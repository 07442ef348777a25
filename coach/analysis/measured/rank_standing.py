"""Compare the ranks of a training: step, pace, wait for data, memory, and the outliers among them.

Ranks that train together wait for each other, so a delay of one rank costs all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from statistics import median

from coach.lookback.history import History
from coach.model.training.metrics import Step

RECENT_STEPS = 50


@dataclass(frozen=True, slots=True)
class Standing:
    """Recent values of one rank. None: not measured."""

    rank: int
    node: str | None
    step: int
    behind: int
    """Steps behind the rank with the most steps."""
    loss: float | None
    step_time_s: float | None
    data_time_s: float | None
    memory_mib: float | None

    @property
    def wait_pct(self) -> float | None:
        """The share of its step time that it waits for data, in percent."""
        if self.data_time_s is None or not self.step_time_s:
            return None
        return min(100.0, 100.0 * self.data_time_s / self.step_time_s)


@dataclass(frozen=True, slots=True)
class RankQuantity:
    """A value of each rank, on a scale that does not depend on the training."""

    name: str
    unit: str
    meaning: str
    outlier: float
    """Distance from the median that is marked, in `unit`."""
    top: float | None
    of: Callable[[Standing, Ranks], float | None]


@dataclass(frozen=True, slots=True)
class Ranks:
    """All ranks, and the values that they are compared with."""

    standings: tuple[Standing, ...]
    middle_step_time_s: float | None
    most_memory_mib: float | None

    def values(self, quantity: RankQuantity) -> list[tuple[Standing, float | None]]:
        return [(each, quantity.of(each, self)) for each in self.standings]

    def odd(self, quantity: RankQuantity) -> list[tuple[Standing, float]]:
        """Ranks far from the median, the farthest first, with their distance from it."""
        known = [(each, value) for each, value in self.values(quantity) if value is not None]
        if len(known) < 2:
            return []
        middle = median(value for _, value in known)
        far = [(each, value - middle) for each, value in known if abs(value - middle) >= quantity.outlier]
        return sorted(far, key=lambda item: -abs(item[1]))

    @property
    def oddest(self) -> tuple[Standing, RankQuantity, float] | None:
        """The rank farthest from its median, relative to the quantity's `outlier`."""
        found = [
            (abs(distance) / quantity.outlier, each, quantity, distance)
            for quantity in RANK_QUANTITIES
            for each, distance in self.odd(quantity)[:1]
        ]
        if not found:
            return None
        _, each, quantity, distance = max(found, key=lambda item: item[0])
        return each, quantity, distance


def _share(part: float | None, whole: float | None) -> float | None:
    return 100.0 * part / whole if part is not None and whole else None


BEHIND = RankQuantity(
    "step", "steps", "steps behind the furthest rank", 2, 100.0, lambda each, ranks: float(each.behind)
)
STEP_TIME = RankQuantity(
    "step time",
    "%",
    "step time in % of the median rank's",
    15,
    200.0,
    lambda each, ranks: _share(each.step_time_s, ranks.middle_step_time_s),
)
DATA_WAIT = RankQuantity(
    "data wait", "%", "% of its step in which it waits for data", 15, 100.0, lambda each, ranks: each.wait_pct
)
MEMORY = RankQuantity(
    "memory",
    "%",
    "memory in % of the rank that holds most",
    15,
    100.0,
    lambda each, ranks: _share(each.memory_mib, ranks.most_memory_mib),
)
RANK_QUANTITIES = (STEP_TIME, DATA_WAIT, MEMORY, BEHIND)


def ranks_of(history: History) -> Ranks:
    """All ranks, computed once per look."""
    return history.derived("rank standing", lambda: _ranks(history))


def _ranks(history: History) -> Ranks:
    node_of = _nodes(history)
    recent = {rank: list(islice(reversed(history.steps(rank)), RECENT_STEPS)) for rank in history.ranks}
    furthest = max((steps[0].step for steps in recent.values()), default=0)
    rows = tuple(_standing(rank, steps, node_of.get(rank), furthest) for rank, steps in recent.items())
    times = [each.step_time_s for each in rows if each.step_time_s is not None]
    memory = [each.memory_mib for each in rows if each.memory_mib is not None]
    return Ranks(rows, median(times) if times else None, max(memory, default=None))


def _standing(rank: int, newest_first: list[Step], node: str | None, furthest: int) -> Standing:
    newest = newest_first[0]
    return Standing(
        rank,
        node,
        newest.step,
        furthest - newest.step,
        newest.loss,
        _mean(step.step_time_s for step in newest_first),
        _mean(step.data_time_s for step in newest_first),
        newest.memory_allocated_mib,
    )


def _nodes(history: History) -> Mapping[int, str]:
    """Rank → node, for ranks whose process was seen."""
    return {
        each.rank: node for node in history.nodes for each in history.processes(node) if each.rank is not None
    }


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None and math.isfinite(value)]
    return sum(known) / len(known) if known else None
