"""Choose the records of runs to thin if all records together exceed a limit. Only their sizes are needed.

The least needed part of all runs is thinned first: rotated telemetry, then other telemetry, then metrics.
Within a part, the oldest run comes first. No part is removed: it is replaced by one coarser file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from coach.model.training.records import Part, RecordLimits, RunRecords, Volume

PACKED_BYTES = 2**20
"""Largest size of a thinned part: about 5,000 samples, more than a chart has columns."""
LOOSE_BYTES = PACKED_BYTES * 3 // 2
"""A part of one file up to this size is not thinned again. Thinning keeps all events, so its result may
exceed PACKED_BYTES."""
_SLACK = 0.9
"""Thinning continues down to this share of a limit. Otherwise the next run would exceed the limit again."""


@dataclass(frozen=True, slots=True)
class ThinStep:
    """Replace one part of one run by one file."""

    run_id: str
    part: Part
    before: Volume
    after: Volume
    """An estimate: the size depends on the number of events, which is not known."""


@dataclass(frozen=True, slots=True)
class ThinPlan:
    """The steps in their order, and the size of all records before and after them."""

    steps: tuple[ThinStep, ...]
    now: Volume
    after: Volume
    """An estimate."""
    limits: RecordLimits

    @property
    def is_over(self) -> bool:
        """True if the records exceed a limit now."""
        return not self.limits.is_met_by(self.now)

    @property
    def is_enough(self) -> bool:
        """True if the records meet both limits after the steps."""
        return self.limits.is_met_by(self.after)


def total_of(records: Iterable[RunRecords]) -> Volume:
    """The size of all records together."""
    total = Volume()
    for one in records:
        total = total + one.total
    return total


def plan_thinning(
    records: Iterable[RunRecords], untouchable: Collection[str], limits: RecordLimits
) -> ThinPlan:
    """Plan steps in the order of this module until the records are within 90 % of both limits, or no step is
    left.

    `untouchable` are the ids of runs that must not change. The plan has no steps if the limits are met, or if
    nothing can be thinned.
    """
    oldest_first = sorted(records, key=lambda one: one.run_id)
    now = total_of(oldest_first)
    if limits.is_met_by(now):
        return ThinPlan((), now, now, limits)
    goal = RecordLimits(int(limits.max_bytes * _SLACK), int(limits.max_files * _SLACK))
    after = now
    steps: list[ThinStep] = []
    left = {one.run_id: one for one in oldest_first if one.run_id not in untouchable}
    thinned_old: dict[str, Volume] = {}
    for part in Part:
        for run_id, one in left.items():
            if goal.is_met_by(after):
                return ThinPlan(tuple(steps), now, after, limits)
            before = _volume(one, part, thinned_old.get(run_id, one.old))
            packed = Volume(min(before.num_files, 1), min(before.size_bytes, PACKED_BYTES))
            if not _is_worth_it(before, after, goal):
                continue
            steps.append(ThinStep(run_id, part, before, packed))
            after = after - before + packed
            if part is Part.OLD:
                thinned_old[run_id] = packed
    return ThinPlan(tuple(steps), now, after, limits)


def _volume(one: RunRecords, part: Part, old: Volume) -> Volume:
    """The size of a step's input. The step for TELEMETRY also merges the file that the step for OLD made
    (`old`)."""
    if part is Part.OLD:
        return one.old
    return old + one.telemetry if part is Part.TELEMETRY else one.metrics


def _is_worth_it(before: Volume, total: Volume, goal: RecordLimits) -> bool:
    """True if a step saves bytes while there are too many bytes, or files while there are too many files."""
    saves_bytes = total.size_bytes > goal.max_bytes and before.size_bytes > LOOSE_BYTES
    return saves_bytes or (total.num_files > goal.max_files and before.num_files > 1)
