"""The parts of a run in which it trains, and its steady steps.

Start-up, compilation, evaluation and checkpoints leave a GPU idle for good reasons. What is judged as
training is decided here, once.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from operator import lt

from coach.lookback.history import History
from coach.lookback.series import Series
from coach.model.snapshot import TargetSnapshot
from coach.model.training.metrics import Step
from coach.model.training.telemetry import GpuSample
from coach.rules.advice.launched_with import int_parameter

_PAUSES = frozenset({"eval", "checkpoint", "compile"})
_MARGIN_S = 1.5
"""A sample covers the interval before it, so the edges of a pause spoil the sample that follows."""


@dataclass(frozen=True, slots=True)
class Phases:
    """When a run trained: from its first step to its last, without the pauses between. Times None: not
    known."""

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
        """Whether the whole of a stretch is training: then none of its samples needs a look of its own."""
        if self.first_step_s is not None and start_s <= self.first_step_s + _MARGIN_S:
            return False
        if self.last_step_s is not None and end_s > self.last_step_s:
            return False
        return all(end < start_s or start > end_s for start, end in self.pauses)


def phases(snapshot: TargetSnapshot, history: History) -> Phases:
    """Read the phases off the metrics. While a run lives, the time after its last step may be a step that is
    not done yet."""
    # The curve reaches back to the first step, however many steps of a rank are kept.
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
    """Where the samples with a utilization stand that fall into training, of the newest `window_s` seconds
    (None: all) after place `begin`."""
    end = len(series.times)
    if window_s is not None:
        newest = next(
            (at for at in range(end - 1, begin - 1, -1) if _counts(series.samples[at], found)), begin
        )
        begin = bisect_right(series.times, series.times[newest] - window_s, begin) if begin < end else end
    return places_in_training(series, found, range(begin, end))


def places_in_training(series: Series[GpuSample], found: Phases, among: range) -> Sequence[int]:
    """Those of these places whose samples have a utilization and fall into training."""
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
    """The newest `count` steps, oldest first: of a long series only its end is touched."""
    return list(islice(reversed(steps), count))[::-1]


def steady_steps(steps: Sequence[Step], resumed_at: Sequence[int], num_skipped: int) -> list[Step]:
    """The steps with both times, without the first `num_skipped` of the run, of each epoch, and after a
    resume."""
    restarts = set(resumed_at)
    numbers, epochs = [step.step for step in steps], [step.epoch for step in steps]
    starts: list[int] = []
    # Mostly a window lies within one epoch of one attempt, which shows sooner than where the next begins.
    is_ascending = all(map(lt, numbers, islice(numbers, 1, None)))
    is_one_epoch = epochs.count(epochs[0]) == len(epochs) if epochs else True
    if not (is_ascending and is_one_epoch and restarts.isdisjoint(numbers)):
        starts = [
            place
            for place, (before, step) in enumerate(pairwise(steps), 1)
            if step.epoch != before.epoch or step.step <= before.step or before.step in restarts
        ]
    return [
        step
        for start, end in pairwise((0, *starts, len(steps)))
        for step in steps[start + num_skipped : end]
        if step.data_time_s is not None and step.step_time_s
    ]


@dataclass(frozen=True, slots=True)
class SteadySteps:
    """The newest steady steps of one rank, and how long they took together."""

    rank: int
    steps: Sequence[Step]
    data_s: float
    total_s: float

    @property
    def data_share(self) -> float:
        return self.data_s / self.total_s


def newest_steady_steps(
    snapshot: TargetSnapshot, history: History, rank: int, count: int, num_skipped: int
) -> SteadySteps:
    """The newest `count`, or fewer where more than a fifth of the newest are not steady: worked out once for
    all rules."""
    resumed = resumed_steps(snapshot)

    def make() -> SteadySteps:
        newest = newest_steps(history.steps(rank), count + count // 4 + num_skipped)
        steps = steady_steps(newest, resumed, num_skipped)[-count:]
        data_s = sum([step.data_time_s or 0.0 for step in steps])
        return SteadySteps(rank, steps, data_s, sum([step.step_time_s or 0.0 for step in steps]))

    return history.derived(("steady", rank, count, num_skipped, *resumed), make)


def resumed_steps(snapshot: TargetSnapshot) -> list[int]:
    """Steps at which the run went on from a checkpoint."""
    return [event.step for event in snapshot.events if event.event == "resume" and event.step is not None]


def is_first_of_epochs(snapshot: TargetSnapshot, history: History) -> bool:
    """Whether the data are gone through for the first time, and will be again."""
    newest = max((history.steps(rank)[-1].epoch or 0 for rank in history.ranks), default=None)
    num_epochs = None if int_parameter(snapshot.run, "max_steps") else int_parameter(snapshot.run, "epochs")
    return newest == 0 and num_epochs is not None and num_epochs > 1


# Into how many parts the ranks share out the samples, as they say themselves. It tells ranks that do the same
# work on samples of their own from the stages and slices of one model, whatever the program is called.


def num_parts(history: History) -> int | None:
    """How many ranks have samples of their own, by what is said of the newest step; None where nothing is."""
    newest = history.steps(history.ranks[0])[-1] if history.ranks else None
    if newest is None or not newest.num_samples or not newest.num_samples_global:
        return None
    return round(newest.num_samples_global / newest.num_samples)


def share_samples(history: History) -> bool:
    """Whether ranks say that several of them work on the same samples: then their work may differ by
    design."""
    parts = num_parts(history)
    return parts is not None and parts < len(history.ranks)
