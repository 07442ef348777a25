"""Find the parts of a run in which it trains, and its steady steps.

A GPU is rightly idle in start-up, compilation, evaluation and checkpoints. Only this module decides which
time counts as training.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from operator import lt
from statistics import median

from coach.lookback.history import History
from coach.lookback.series import Series
from coach.model.snapshot import TargetSnapshot
from coach.model.training.metrics import Counter, Step
from coach.model.training.telemetry import GpuSample
from coach.rules.advice.launched_with import int_parameter

_PAUSES = frozenset({"eval", "checkpoint", "compile"})
LOW_MFU = 0.05
"""Trainings of Transformers reach 0.3 to 0.5 (PaLM: 0.46): below this share something else takes the time, or
the program computes it for another GPU."""
MIN_LINES = 5
"""Fewer lines that stand for many steps each may all lie in a cold start."""
_MFU_STEPS = 40
_MARGIN_S = 1.5
"""A sample covers the interval before it, so a pause also affects the first sample after it."""


@dataclass(frozen=True, slots=True)
class Phases:
    """The time in which a run trained: from its first step to its last, without pauses. A time is None if
    unknown."""

    first_step_s: float | None
    last_step_s: float | None
    pauses: tuple[tuple[float, float], ...]

    def is_training(self, time_s: float) -> bool:
        if self.first_step_s is not None and time_s <= self.first_step_s + _MARGIN_S:
            return False
        if self.last_step_s is not None and time_s > self.last_step_s:
            return False
        return not any(start <= time_s <= end for start, end in self.pauses)

    def is_all_training(self, start_s: float, end_s: float) -> bool:
        """True if the whole span is training, so that its samples need no separate check."""
        if self.first_step_s is not None and start_s <= self.first_step_s + _MARGIN_S:
            return False
        if self.last_step_s is not None and end_s > self.last_step_s:
            return False
        return all(end < start_s or start > end_s for start, end in self.pauses)


def phases(snapshot: TargetSnapshot, history: History) -> Phases:
    """The phases by the metrics. While a run lives, time after its last step counts: the next step may be
    under way."""
    # The curve reaches back to the first step; the kept steps of a rank may not.
    start = history.curve[0].time_s if history.curve else None
    last_steps = [history.steps(rank)[-1] for rank in history.ranks]
    ends = [step.time_s for step in last_steps if step.time_s is not None]
    pauses = []
    for event in snapshot.events:
        seconds = event.fields.get("seconds")
        if event.event in _PAUSES and event.time_s is not None and isinstance(seconds, (int, float)):
            pauses.append((event.time_s - seconds - _MARGIN_S, event.time_s + _MARGIN_S))
    return Phases(start, max(ends, default=None) if snapshot.has_ended else None, tuple(pauses))


def training_places(
    series: Series[GpuSample], found: Phases, window_s: float | None, begin: int = 0
) -> Sequence[int]:
    """Indices from `begin` on of training samples with a utilization, in the newest `window_s` seconds (None:
    all)."""
    end = len(series.times)
    if window_s is not None:
        newest = next(
            (at for at in range(end - 1, begin - 1, -1) if _counts(series.samples[at], found)), begin
        )
        begin = bisect_right(series.times, series.times[newest] - window_s, begin) if begin < end else end
    return places_in_training(series, found, range(begin, end))


def places_in_training(series: Series[GpuSample], found: Phases, among: range) -> Sequence[int]:
    """The indices in `among` whose samples have a utilization and fall into training."""
    if (
        among
        and found.is_all_training(series.times[among[0]], series.times[among[-1]])
        and (
            series.is_complete("utilization_pct")
            or not math.isnan(sum(series.column("utilization_pct", among)))
        )
    ):
        return among
    return [at for at in among if _counts(series.samples[at], found)]


def _counts(sample: GpuSample, found: Phases) -> bool:
    return sample.utilization_pct is not None and found.is_training(sample.time_s)


def newest_steps(steps: Sequence[Step], count: int) -> list[Step]:
    """The newest `count` steps, oldest first. Only the end of a long series is read."""
    return list(islice(reversed(steps), count))[::-1]


def newest_times(history: History, rank: int) -> list[float]:
    """The step times in seconds of a rank's newest hundred steps."""
    return [step.step_time_s for step in newest_steps(history.steps(rank), 100) if step.step_time_s]


def newest_end(history: History) -> float | None:
    """The time at which the newest step of any rank ended."""
    ends = [history.steps(rank)[-1].time_s for rank in history.ranks if history.steps(rank)]
    return max((end for end in ends if end is not None), default=None)


def last_sign(snapshot: TargetSnapshot, history: History) -> float:
    """The time of the newest step or the newest write to a log."""
    signs = [newest_end(history), *(tail.written_s for tail in snapshot.log_tails)]
    return max((time_s for time_s in signs if time_s is not None), default=0.0)


def steady_steps(
    steps: Sequence[Step], resumed_at: Sequence[int], num_skipped: int, first_step: int = 0
) -> list[Step]:
    """The steps with both times, except the first `num_skipped` of the run, of each epoch and after each
    resume. `first_step` is the first step of the run that is known.

    Of lines that are many steps apart, that is the first line of each epoch. The only line of an epoch is
    left out if the run's first line is one of its first steps: then each of these lines is.
    """
    return [
        step
        for start, end in pairwise((0, *_starts(steps, set(resumed_at)), len(steps)))
        for step in steps[start:end]
        if step.step >= steps[start].step + num_skipped
        or step.counter is Counter.EPOCH
        or (end - start == 1 and first_step > num_skipped)
        if step.data_time_s is not None and step.step_time_s
    ]


def _starts(steps: Sequence[Step], restarts: set[int]) -> list[int]:
    """The places at which an epoch begins, the numbers begin again, or the run was resumed."""
    numbers, epochs = [step.step for step in steps], [step.epoch for step in steps]
    # Fast path: most windows lie within one epoch of one attempt.
    is_ascending = all(map(lt, numbers, islice(numbers, 1, None)))
    is_one_epoch = epochs.count(epochs[0]) == len(epochs) if epochs else True
    if is_ascending and is_one_epoch and restarts.isdisjoint(numbers):
        return []
    return [
        place
        for place, (before, step) in enumerate(pairwise(steps), 1)
        if step.epoch != before.epoch or step.step <= before.step or before.step in restarts
    ]


@dataclass(frozen=True, slots=True)
class SteadySteps:
    """The newest steady steps of one rank, and the total time of those that are known."""

    rank: int
    steps: Sequence[Step]
    data_s: float
    total_s: float

    @property
    def data_share(self) -> float:
        return self.data_s / self.total_s

    def is_long(self, min_steps: float, min_s: float, min_lines: float) -> bool:
        """True if they stand for that many steps, which took that long. A program that prints each tenth step
        made ten of them between two lines; a line of an epoch stands for all its steps."""
        num_lines = len(self.steps)
        if num_lines < max(1, min(min_lines, min_steps)):
            return False
        if self.steps[-1].counter is Counter.EPOCH:
            return True
        num_steps = max(num_lines, self.steps[-1].step - self.steps[0].step)
        return num_steps >= min_steps and self.total_s * num_steps / num_lines >= min_s


def newest_steady_steps(
    snapshot: TargetSnapshot, history: History, rank: int, count: int, num_skipped: int
) -> SteadySteps:
    """The newest `count` steady steps; fewer if over a fifth of the newest steps are not steady. Computed
    once for all rules."""
    resumed = resumed_steps(snapshot)

    def make() -> SteadySteps:
        known = history.steps(rank)
        newest = newest_steps(known, count + count // 4 + num_skipped)
        steps = steady_steps(newest, resumed, num_skipped, known[0].step)[-count:]
        data_s = sum([step.data_time_s or 0.0 for step in steps])
        return SteadySteps(rank, steps, data_s, sum([step.step_time_s or 0.0 for step in steps]))

    return history.derived(("steady", rank, count, num_skipped, *resumed), make)


def data_shares(snapshot: TargetSnapshot, history: History, min_steps: float) -> dict[int, float]:
    """Rank → the share of step time that waited for data, over the newest steady steps of each rank that has
    enough of them."""
    found = [newest_steady_steps(snapshot, history, rank, 200, 3) for rank in history.ranks]
    return {each.rank: each.data_share for each in found if len(each.steps) >= max(1, min_steps)}


def printed_mfu(history: History) -> float | None:
    """The median share of the GPU's peak (MFU) that the program reports in its newest steps; None if it
    reports none, or too few."""
    steps = newest_steps(history.steps(history.ranks[0]), _MFU_STEPS) if history.ranks else []
    shares = [step.mfu for step in steps if step.mfu is not None and step.mfu <= 1]
    return median(shares) if len(shares) >= _MFU_STEPS // 2 else None


def resumed_steps(snapshot: TargetSnapshot) -> list[int]:
    """Steps at which the run resumed from a checkpoint."""
    return [event.step for event in snapshot.events if event.event == "resume" and event.step is not None]


def is_first_of_epochs(snapshot: TargetSnapshot, history: History) -> bool:
    """True during the first of several epochs."""
    newest = max((history.steps(rank)[-1].epoch or 0 for rank in history.ranks), default=None)
    num_epochs = None if int_parameter(snapshot.run, "max_steps") else int_parameter(snapshot.run, "epochs")
    return newest == 0 and num_epochs is not None and num_epochs > 1


# The number of parts into which the ranks split the samples, as they report it. It separates ranks with their
# own samples (data parallelism) from stages and slices of one model, without knowing the program.


def num_parts(history: History) -> int | None:
    """The number of ranks with their own samples, by the newest step; None if it was not reported."""
    newest = history.steps(history.ranks[0])[-1] if history.ranks else None
    if newest is None or not newest.num_samples or not newest.num_samples_global:
        return None
    return round(newest.num_samples_global / newest.num_samples)


def share_samples(history: History) -> bool:
    """True if ranks report that several of them work on the same samples: their work may then differ by
    design."""
    parts = num_parts(history)
    return parts is not None and parts < len(history.ranks)
