"""Map the names of any framework's metrics to steps and evaluations.

Each framework has its own names for the loss, the step and the rest. This module knows them, independent of
the file format.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from coach.model.training.metrics import NAMES_EVENT, Counter, MetricEvent, Step
from coach.sources.values import finite, number, whole

_EVALUATION = frozenset({"eval", "evaluation", "val", "valid", "validation", "test", "dev"})
_TRAINING = frozenset({"train", "training", "perf", "performance", "throughput", "speed"})
"""Groups of metrics that belong to the training itself."""
_ADDED = frozenset({"train", "training", "step", "epoch", "batch", "iter", "avg", "mean"})
_FIELDS = {
    ("loss",): "loss",
    ("lm", "loss"): "loss",
    ("total", "loss"): "loss",
    ("loss", "total"): "loss",
    ("reduced", "loss"): "loss",  # NeMo
    ("avr", "loss"): "loss",  # kohya
    ("logloss",): "loss",  # XGBoost
    ("mlogloss",): "loss",
    ("accuracy",): "accuracy",
    ("acc",): "accuracy",
    ("token", "accuracy"): "accuracy",  # TRL
    ("token", "acc"): "accuracy",  # ms-swift
    ("lr",): "lr",
    ("learning", "rate"): "lr",
    ("optim0", "lr0"): "lr",  # ESPnet
    ("grad", "norm"): "grad_norm",
    ("gradient", "norm"): "grad_norm",
    ("gnorm",): "grad_norm",  # fairseq
    ("grad", "2", "0", "norm", "total"): "grad_norm",
    ("loss", "scale"): "loss_scale",
    ("grad", "scale"): "loss_scale",
}
_STEPS = (
    "step",
    "global_step",
    "iter",
    "iteration",
    "iterations",
    "train_step",
    "train_global_step",
    "current_steps",  # LLaMA-Factory
    "_step",
)
_RATES = ("samples_per_s", "samples_per_sec", "samples_per_second", "samples/s", "images_per_s", "throughput")
SPEEDS = frozenset({"data_time_s", "step_time_s", "samples_per_s"})
"""A record with one of them is a step, also without a loss."""
_TIMES = ("time_s", "wall_time", "timestamp", "_timestamp", "time")
_EARLIEST_S = 1e9
"""A smaller value is a duration, or the time since the start."""
_LEAST_S = 5.0
"""Times in a log are often whole seconds: a shorter span is not exact."""
_MAX_NAMES = 64
LINE_KEY = "num_losses_before"
"""Key of a record without a step or an epoch of its own: its number among the losses that were printed."""
_SEPARATORS = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class Quantity:
    """The meaning of a name: a field of a step or of an evaluation."""

    field: str
    is_evaluation: bool


@lru_cache(maxsize=1024)
def quantity_of(name: str) -> Quantity | None:
    """The quantity of a name such as `train/loss`, `train_loss_step`, `Loss/val`, `lr-Adam`; None if
    unknown."""
    words = [word for word in _SEPARATORS.split(name.casefold()) if word]
    bare = tuple(word for word in words if word not in _EVALUATION and word not in _ADDED)
    field = _FIELDS.get(bare)
    if field is None and bare[:1] == ("lr",) and len(bare) <= 3:
        field = "lr"
    return Quantity(field, not _EVALUATION.isdisjoint(words)) if field is not None else None


def is_known(name: str) -> bool:
    """True if the name is that of a known quantity, a time or a step."""
    return quantity_of(name) is not None or name in _STEPS or bare_name(name) in _RATES


def bare_name(name: str) -> str:
    """`samples_per_s` for `train/samples_per_s` and `train.samples_per_s`; for an evaluation the whole
    name."""
    folder, slash, bare = name.replace(".", "/").rpartition("/")
    return bare if slash and folder in _TRAINING else name


class Course:
    """The records of one training in order. If it has several training losses, the first one is followed."""

    def __init__(self) -> None:
        self.has_loss = False
        self._known: dict[str, Quantity] = {}
        self._strange: set[str] = set()
        self._rates: list[str] = []
        """Names of the training's rates that belong to a group."""
        self._followed: dict[str, str] = {}
        self._num_records = 0
        self._last: tuple[int, float | None] = (0, None)
        """Step and time of the last record."""

    def take(self, record: Mapping[str, Any]) -> tuple[list[Step], list[MetricEvent]]:
        """The content of one record: a step, an evaluation, both or nothing."""
        new_names = self._learn(record)
        values: dict[str, float] = {}
        evaluated: dict[str, float] = {}
        for name, said in record.items():
            quantity, value = self._known.get(name), number(said)
            if quantity is None or value is None:
                continue
            if quantity.is_evaluation:
                evaluated.setdefault(quantity.field, value)
            elif self._followed.setdefault(quantity.field, name) == name:
                values[quantity.field] = value
        self._num_records += 1
        (step, counter), time_s = self._step_of(record), _time_of(record)
        epoch = finite(record.get("epoch"))
        self.has_loss = self.has_loss or "loss" in values
        steps, events = [], []
        if values or (not evaluated and not SPEEDS.isdisjoint(record)):
            get, rate = values.get, _rate_of(record, self._rates)
            steps.append(
                Step(
                    0,
                    step,
                    time_s,
                    int(epoch) if epoch is not None else None,
                    loss=get("loss"),
                    lr=get("lr"),
                    grad_norm=get("grad_norm"),
                    loss_scale=get("loss_scale"),
                    accuracy=get("accuracy"),
                    data_time_s=finite(record.get("data_time_s")),
                    step_time_s=self._step_time(record, step, counter, time_s),
                    num_samples_global=_samples_of(record, rate),
                    samples_per_s=rate,
                    tokens_per_s=finite(record.get("tokens_per_s")),
                    mfu=finite(record.get("mfu")),
                    counter=counter,
                )
            )
        if evaluated:
            events.append(MetricEvent(0, "eval", time_s, step, evaluated, counter))
        if new_names:
            events.insert(0, MetricEvent(0, NAMES_EVENT, time_s, step, {"names": tuple(new_names)}))
        return steps, events

    def _step_time(
        self, record: Mapping[str, Any], step: int, counter: Counter, time_s: float | None
    ) -> float | None:
        """The seconds of a step: as printed, else of an epoch that is counted by itself, else by the times of
        this line and of the one before."""
        (last, last_s), self._last = self._last, (step, time_s)
        printed_s = finite(record.get("step_time_s"))
        if counter is Counter.EPOCH and printed_s is None:
            printed_s = finite(record.get("epoch_time_s"))
        if printed_s is not None or counter is Counter.LINE or time_s is None or last_s is None:
            return printed_s
        passed_s = time_s - last_s
        return passed_s / (step - last) if step > last and passed_s >= _LEAST_S else None

    def _learn(self, record: Mapping[str, Any]) -> list[str]:
        """The names that occur for the first time. Unknown names have their own limit, so they never displace
        known ones."""
        new_names = []
        for name in record:
            if name in self._known or name in self._strange:
                continue
            quantity = quantity_of(name)
            if quantity is not None and len(self._known) < _MAX_NAMES:
                self._known[name] = quantity
            elif quantity is None and len(self._strange) < _MAX_NAMES:
                self._strange.add(name)
                self._rates += [name] if bare_name(name) in _RATES else []
            else:
                continue
            new_names.append(name)
        return new_names

    def _step_of(self, record: Mapping[str, Any]) -> tuple[int, Counter]:
        """The step number; without one the epoch; without either the number of the record. `record["line"]`
        is a number of that last kind."""
        told = next((step for name in _STEPS if (step := whole(record.get(name))) is not None), None)
        epoch = whole(record.get("epoch"))
        line = whole(record.get(LINE_KEY))
        if told is not None and told >= 0:
            return told, Counter.STEP
        if line is not None:
            return line, Counter.LINE
        if epoch is not None and epoch >= 0:
            return epoch, Counter.EPOCH
        return self._num_records, Counter.LINE


def _rate_of(record: Mapping[str, Any], more_names: Sequence[str]) -> float | None:
    names = (*_RATES, *more_names)
    return next((rate for name in names if (rate := finite(record.get(name))) is not None), None)


def _samples_of(record: Mapping[str, Any], rate: float | None) -> int | None:
    """Samples of the step on all ranks, computed from the rate and the step time."""
    time_s = finite(record.get("step_time_s"))
    samples = finite(rate * time_s) if rate is not None and time_s is not None else None
    return round(samples) or None if samples is not None else None


def _time_of(record: Mapping[str, Any]) -> float | None:
    times = (finite(record.get(name)) for name in _TIMES)
    return next((time_s for time_s in times if time_s is not None and time_s > _EARLIEST_S), None)
