"""Plan which records to thin when all of them together are too large, from sizes alone.

The least needed part goes first: the rotated telemetry of all runs, then their other telemetry, then their
metrics, each from the oldest run to the newest. No part is removed: it becomes one coarser file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from coach.model.training.records import Part, RecordLimits, RunRecords, Volume

PACKED_BYTES = 2**20
"""Bytes of a thinned part: some 5,000 samples, more than a chart has columns."""
LOOSE_BYTES = PACKED_BYTES * 3 // 2
"""A single file up to this size is left unchanged. Events are kept, so a thinned part may exceed
PACKED_BYTES."""
_SLACK = 0.9
"""Thinning continues to this share of a limit, so that the next run does not start it again."""


@dataclass(frozen=True, slots=True)
class ThinStep:
    """Replace one part of one run by one file."""

    run_id: str
    part: Part
    before: Volume
    after: Volume
    """An estimate: the real size depends on the number of events."""


@dataclass(frozen=True, slots=True)
class ThinPlan:
    """The steps, in their order."""

    steps: tuple[ThinStep, ...]
    now: Volume
    after: Volume
    """Estimated size of all records after every step."""
    limits: RecordLimits

    @property
    def is_over(self) -> bool:
        """True if the records hold more than allowed now."""
        return not self.limits.is_met_by(self.now)

    @property
    def is_enough(self) -> bool:
        """True if thinning brings the records below both limits."""
        return self.limits.is_met_by(self.after)


def total_of(records: Iterable[RunRecords]) -> Volume:
    """All records together."""
    total = Volume()
    for one in records:
        total = total + one.total
    return total


def plan_thinning(
    records: Iterable[RunRecords], untouchable: Collection[str], limits: RecordLimits
) -> ThinPlan:
    """The fewest steps that bring the records below 90 % of both limits, or as near as they come.

    `untouchable` are ids of runs that stay as they are. An empty plan means that the limits are met.
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
    """Size of the input of a step: the TELEMETRY step also packs the result of the OLD step."""
    if part is Part.OLD:
        return one.old
    return old + one.telemetry if part is Part.TELEMETRY else one.metrics


def _is_worth_it(before: Volume, total: Volume, goal: RecordLimits) -> bool:
    """True if a step helps with the limit that is not met."""
    saves_bytes = total.size_bytes > goal.max_bytes and before.size_bytes > LOOSE_BYTES
    return saves_bytes or (total.num_files > goal.max_files and before.num_files > 1)
