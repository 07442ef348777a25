"""How far a training is, and by how much it would exceed its time limit. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coach.lookback.history import CurvePoint
from coach.model.training.log import LogTail
from coach.model.training.metrics import Counter, MetricEvent

_MIN_STEPS = 20
_MIN_TIME_S = 30.0
"""A pace is computed from at least this many steps and this time. The first steps are slow: they compile,
warm up and fill caches."""
_BAR = re.compile(
    r"(?<![\w/.])(?P<done>\d{1,9})/(?P<total>\d{1,9}) \[(?P<used>[\d:]{4,11})<(?P<left>[\d:]{4,11}),"
)
"""The end of tqdm's line (tqdm/std.py, `format_meter`): `12/469 [00:31<19:40,  2.58s/it]`."""
_MAX_BAR_LINE = 1024


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

    def ends_late_by_s(self, limit_left_s: float | None) -> float | None:
        """Seconds by which the training would exceed its time limit; None if it would not, or if that is
        unknown."""
        if self.is_bar and self.step < _MIN_STEPS:
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
    pace = _pace(curve)
    left_s = max(0, total - step) / pace if total is not None and pace else None
    return Progress(step, total, left_s, counter=counter)


def progress_told(
    curve: Sequence[CurvePoint],
    parameters: Mapping[str, Any],
    events: Iterable[MetricEvent],
    tails: Sequence[LogTail],
) -> Progress | None:
    """The progress by the metrics, else by a progress bar in the log.

    If the metrics do not say how long the training is, a progress bar that shows the loss replaces them.
    """
    measured = progress_of(curve, parameters, events)
    if measured is None:
        return progress_in_log(tails)
    if measured.num_steps is not None:
        return measured
    return progress_in_log(tails, "loss") or measured


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
    rates = [p.samples_per_s for p in curve if p.samples_per_s is not None]
    newest = rates[-max(1, len(rates) // 10) :]
    return sum(newest) / len(newest) if newest else None


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


def _pace(curve: Sequence[CurvePoint]) -> float | None:
    """Steps per second over the newest tenth of the curve. The part is longer if it would have fewer than
    _MIN_STEPS or last less than _MIN_TIME_S."""
    newest = curve[-1]
    if newest.time_s is None:
        return None
    first = len(curve) - max(1, len(curve) // 10) - 1
    for point in reversed(curve[: max(1, first + 1)]):
        if point.time_s is None:
            continue
        num_steps, time_s = newest.step - point.step, newest.time_s - point.time_s
        if num_steps >= _MIN_STEPS and time_s >= _MIN_TIME_S:
            return num_steps / time_s
    return None


def _clock_s(text: str) -> float | None:
    """Seconds in a text `MM:SS` or `H:MM:SS`; None for any other text."""
    parts = text.split(":")
    if len(parts) not in (2, 3) or not all(part.isdecimal() for part in parts):
        return None
    value = 0.0
    for part in parts:
        value = value * 60 + int(part)
    return value
