"""How far a training is, how fast it goes and where its loss goes, and by how much it would exceed its time
limit. Pure.

The same for a run of coach and for a foreign job, of which the printed lines are all that is known.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from coach.lookback.history import (
    MIN_EPOCHS,
    MIN_STEPS,
    CurvePoint,
    is_early,
    noise_of,
    since_restart,
)
from coach.model.training.log import LogTail
from coach.model.training.metrics import Counter, MetricEvent

_MIN_TIME_S = 30.0
"""A pace is computed from MIN_STEPS and at least this time. The first steps are slow: they compile, warm up
and fill caches."""
_BAR = re.compile(
    r"(?<![\w/.])(?P<done>\d{1,9})/(?P<total>\d{1,9}) \[(?P<used>[\d:]{4,11})<(?P<left>[\d:]{4,11}),"
)
"""The end of tqdm's line (tqdm/std.py, `format_meter`): `12/469 [00:31<19:40,  2.58s/it]`."""
_MAX_BAR_LINE = 1024
_COUNT = re.compile(
    r"(?:\b(?:(?P<epoch>ep(?:och)?s?)|(?P<batch>batch)|(?:global_|train_)?(?:steps?|iter(?:ation)?s?))"
    r"['\"]?[\s:=#\[(]{1,12}"
    r"|^\s{0,9}(?=\d{1,9}/\d{1,9}\s{1,3}[a-zA-Z]))(?P<n>\d{1,9})\s?/\s{0,9}(?P<total>\d{1,9})(?![\d/.%])",
    re.IGNORECASE,
)
"""`step 120/5000`, `iteration      100/  500000`, `Epoch [3/80]`, `Batch 100/1000`, `10/400 loss 2.1`."""
_MAX_COUNT_LINE = 1024
_MAX_COUNT_LINES = 64
_NUM_BLOCKS = 16
_MIN_BLOCKS = 4
"""A course of fewer values has no trend: three of them give one estimate of its noise."""
_ERRORS = 4
"""Standard errors by which two blocks must differ. 18 of 1,000 courses of noise alone have a trend then."""
_FLAT_SHARE = 0.25
"""Share of the course since its last turn. A loss that stood still for less time may fall on."""
_LEAST_CHANGE = 0.005
"""Share of the loss. Less is the rounding of a printed number."""
_MIN_RATES = 8


@dataclass(frozen=True, slots=True)
class Pace:
    """The measured speed of a training, in what its progress counts."""

    steps_per_s: float
    num_steps: int
    """The number of newest steps by which it was measured."""
    is_since_start: bool = False
    """True if the lines have no times, so that the job's whole time was taken: its start-up is in it."""


@dataclass(frozen=True, slots=True)
class Trend:
    """The direction of the loss, and the point from which it holds."""

    word: str
    """`falls`, `rises` or `is flat`."""
    since: CurvePoint


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a training is."""

    step: int
    num_steps: int | None
    """Number of steps planned for the whole training; None if unknown."""
    left_s: float | None
    """Seconds to the last step, at the pace of the newest tenth of the steps; None if unknown."""
    is_bar: bool = False
    """True if the values come from a progress bar in the log. A bar may count the steps of one epoch only."""
    counter: Counter = Counter.STEP
    """What `step` counts."""
    pace: Pace | None = None
    """None if unknown, or if the values come from a progress bar."""

    def ends_late_by_s(self, limit_left_s: float | None) -> float | None:
        """Seconds by which the training would exceed its time limit; None if it would not, or if that is
        unknown."""
        if (self.is_bar and self.step < MIN_STEPS) or (self.pace is not None and self.pace.is_since_start):
            return None
        if self.left_s is None or limit_left_s is None or self.left_s <= limit_left_s:
            return None
        return self.left_s - limit_left_s


def progress_of(
    curve: Sequence[CurvePoint], parameters: Mapping[str, Any], events: Iterable[MetricEvent]
) -> Progress | None:
    """The progress by the metrics; None before the first step."""
    if not curve:
        return None
    step, counter = curve[-1].step, curve[-1].counter
    total = _planned_steps(parameters, events) if counter is Counter.STEP else None
    if counter is Counter.EPOCH and isinstance(epochs := parameters.get("epochs"), int):
        total = epochs if epochs >= step else None
    return _at_pace(Progress(step, total, None, counter=counter), _pace(curve))


def progress_told(
    curve: Sequence[CurvePoint],
    parameters: Mapping[str, Any],
    events: Iterable[MetricEvent],
    tails: Sequence[LogTail],
    used_s: float | None = None,
) -> Progress | None:
    """The progress by the metrics, else by a progress bar in the log. `used_s`: seconds since the job began.

    If the metrics do not say how long the training is, a progress bar that shows the loss replaces them, or
    the newest lines of the log tell it.
    """
    measured = progress_of(curve, parameters, events)
    if measured is None:
        return progress_in_log(tails)
    if measured.num_steps is None:
        if bar := progress_in_log(tails, "loss"):
            return bar
        measured = replace(measured, num_steps=_printed_total(curve, tails))
    return _at_pace(measured, measured.pace or _pace_since_start(curve, used_s))


def _at_pace(progress: Progress, pace: Pace | None) -> Progress:
    if pace is None or progress.counter is Counter.LINE:
        return progress  # many steps may lie between two lines
    total = progress.num_steps
    left_s = max(0, total - progress.step) / pace.steps_per_s if total is not None else None
    return replace(progress, left_s=left_s, pace=pace)


def _printed_total(curve: Sequence[CurvePoint], tails: Iterable[LogTail]) -> int | None:
    """The steps or epochs of the whole training by the newest lines of its log; None if unknown."""
    counts, newest = list(_counts(tails)), curve[-1]
    epochs = next((int(count["total"]) for count in counts if count["epoch"]), None)
    if newest.counter is Counter.STEP:
        steps = [count for count in counts if not count["epoch"]]
        whole = _planned_by_counts(curve, steps, epochs) if steps else None
    else:
        whole = epochs if newest.counter is Counter.EPOCH else None
    return whole if whole is not None and whole >= newest.step else None


def _planned_by_counts(
    curve: Sequence[CurvePoint], steps: Sequence[re.Match[str]], epochs: int | None
) -> int | None:
    """The steps of the whole training. A count of steps within an epoch begins again in the next: it is the
    whole only times the number of epochs."""
    first, newest = curve[0], curve[-1]
    # In a later epoch a count that has not begun again is that of the whole training.
    may_begin_again = epochs is not None if newest.epoch is None else newest.epoch == first.epoch
    if not may_begin_again:
        tenth = curve[len(curve) * 9 // 10].step
        for count in steps:
            total = int(count["total"])
            if int(count["n"]) >= tenth and total >= newest.step and not count["batch"]:
                return total
    if epochs is None:
        return None
    num_before = max(0, (first.epoch or 0) - 1)  # before it was resumed
    return int(steps[0]["total"]) * (epochs - num_before)


def _counts(tails: Iterable[LogTail]) -> Iterable[re.Match[str]]:
    """The counts in the newest lines of the logs, the newest line first."""
    for tail in tails:
        for text in reversed(tail.lines[-_MAX_COUNT_LINES:]):
            found = _COUNT.finditer(text[:_MAX_COUNT_LINE])
            yield from (count for count in found if int(count["n"]) <= int(count["total"]))


def progress_in_log(tails: Iterable[LogTail], word: str = "") -> Progress | None:
    """The last progress bar in the end of a log, if its line holds `word`; None if there is no such bar."""
    for tail in tails:
        for text in reversed(tail.lines):
            # A bar overwrites the one before it, so a line holds several. The last one is the newest.
            found = [*_BAR.finditer(text[-_MAX_BAR_LINE:])]
            if found and word in text[-_MAX_BAR_LINE:]:
                bar = found[-1]
                return Progress(int(bar["done"]), int(bar["total"]), _clock_s(bar["left"]), is_bar=True)
    return None


def recent_rate(curve: Sequence[CurvePoint]) -> float | None:
    """Mean throughput of all ranks, over the newest tenth of the curve."""
    return recent_mean(point.samples_per_s for point in curve)


def recent_mean(values: Iterable[float | None]) -> float | None:
    """The mean of the newest tenth of the known values; None if there are none."""
    known = [value for value in values if value is not None]
    newest = known[-max(1, len(known) // 10) :]
    return sum(newest) / len(newest) if newest else None


def speed_ratio(rates: Iterable[float | None]) -> float | None:
    """The median rate of the newest quarter over that of the first one behind the start, which is slow; None
    for few points."""
    known = [rate for rate in rates if rate]
    known = known[len(known) // 10 :]
    quarter = len(known) // 4
    return median(known[-quarter:]) / median(known[:quarter]) if len(known) >= _MIN_RATES else None


def loss_trend(curve: Sequence[CurvePoint]) -> Trend | None:
    """The direction of the loss since it last turned; None while it is too early.

    The medians of up to 16 blocks are followed from turn to turn. A turn counts if it is larger than the
    noise of a block explains.
    """
    curve = since_restart(curve)
    points = [(p, p.loss) for p in curve if p.loss is not None and math.isfinite(p.loss)]
    size = -(-len(points) // _NUM_BLOCKS) or 1
    starts = range(len(points) % size, len(points), size)
    if is_early(curve) or len(starts) < _MIN_BLOCKS:
        return None
    levels = [median(loss for _, loss in points[at : at + size]) for at in starts]
    noise = noise_of([loss for _, loss in points])
    error = max(_ERRORS * noise * math.sqrt(2 / size), _LEAST_CHANGE * abs(levels[-1]))
    word, since = _last_turn(levels, error)
    flat = _flat_from(levels, since, error)
    if flat is not None:
        word, since = "is flat", flat
    return Trend(word, points[starts[since] if since else 0][0])


def _flat_from(levels: Sequence[float], since: int, error: float) -> int | None:
    """The place from which the loss stands still, if its change since the last turn, at an even pace, would
    have shown there."""
    flat = max(
        (place + 1 for place, level in enumerate(levels) if abs(level - levels[-1]) > error), default=0
    )
    share = (len(levels) - flat) / (len(levels) - since)
    has_shown = share > _FLAT_SHARE and abs(levels[since] - levels[-1]) * share >= 2 * error
    return flat if has_shown or not flat else None


def _last_turn(levels: Sequence[float], error: float) -> tuple[str, int]:
    """The direction behind the last turn that is larger than the error, and the place of the turn."""
    word, since, low, high = "is flat", 0, 0, 0
    for place, level in enumerate(levels):
        if word != "falls" and level < levels[high] - error:
            word, since, low = "falls", high, place
        elif word != "rises" and level > levels[low] + error:
            word, since, high = "rises", low, place
        low = place if level <= levels[low] else low
        high = place if level >= levels[high] else high
    return word, since


def _planned_steps(parameters: Mapping[str, Any], events: Iterable[MetricEvent]) -> int | None:
    """`max_steps`, else the number of epochs times the mean number of steps in the epochs that ended."""
    max_steps, epochs = parameters.get("max_steps"), parameters.get("epochs")
    if isinstance(max_steps, int) and max_steps > 0:
        return max_steps
    if not isinstance(epochs, int) or epochs < 1:
        return None
    for each in reversed([*events]):
        epoch = each.fields.get("epoch") if each.event == "epoch_end" else None
        if isinstance(epoch, int) and epoch >= 0 and each.step is not None:
            return math.ceil(each.step * epochs / (epoch + 1))
    return None


def _pace(curve: Sequence[CurvePoint]) -> Pace | None:
    """The pace over the newest tenth of the curve, by the times of the steps, else by their step times. The
    part is longer if it would have fewer than MIN_STEPS or last less than _MIN_TIME_S."""
    newest, step_time_s = curve[-1], recent_mean(point.step_time_s for point in curve)
    least = MIN_EPOCHS if newest.counter is Counter.EPOCH else MIN_STEPS
    first = len(curve) - max(1, len(curve) // 10) - 1
    for point in reversed(curve[: max(1, first + 1)]):
        num_steps = newest.step - point.step
        time_s = num_steps * (step_time_s or 0.0)
        if newest.time_s is not None:
            time_s = newest.time_s - point.time_s if point.time_s is not None else 0.0
        if num_steps >= least and time_s >= _MIN_TIME_S:
            return Pace(num_steps / time_s, num_steps)
    return None


def _pace_since_start(curve: Sequence[CurvePoint], used_s: float | None) -> Pace | None:
    """The pace since the job began, for steps without any time."""
    num_steps = curve[-1].step - curve[0].step
    if used_s is None or used_s < _MIN_TIME_S or is_early(curve) or num_steps < 1:
        return None
    return Pace(num_steps / used_s, num_steps, is_since_start=True)


def _clock_s(text: str) -> float | None:
    """Seconds in a text `MM:SS` or `H:MM:SS`; None for any other text."""
    parts = text.split(":")
    if len(parts) not in (2, 3) or not all(part.isdecimal() for part in parts):
        return None
    value = 0.0
    for part in parts:
        value = value * 60 + int(part)
    return value
