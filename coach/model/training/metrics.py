"""Training metrics: one record per optimizer step from every rank, and events between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

NAMES_EVENT = "names"
"""Event that lists the other quantities of a foreign training: `fields["names"]`."""
WORDS_OF_TOTAL_LOSS = frozenset(
    [
        "train",
        "training",
        "total",
        "lm",
        "sum",
        "avg",
        "average",
        "mean",
        "running",
        "current",
        "smoothed",
        "step",
        "iter",
        "iteration",
        "batch",
        "epoch",
        "nan",
        "inf",
        "s",
        "ms",
        "the",
    ]
)
"""Words beside `loss` that do not make it another loss. Some may end the value before it: `12 ms, loss`."""


class Counter(StrEnum):
    """What the number of a step counts."""

    STEP = "step"
    EPOCH = "epoch"
    """The loss is a mean over the epoch, or its last one: many updates lie before it."""
    LINE = "line"
    """Nothing that the program numbers: coach counts the losses. Many updates may lie before each."""

    @property
    def word(self) -> str:
        """The word before the number."""
        return "epoch" if self is Counter.EPOCH else "step"


@dataclass(frozen=True, slots=True)
class Step:
    """One optimizer step of one rank. Times are in seconds (`time_s`: epoch seconds at the end of the step),
    memory is in MiB."""

    rank: int
    step: int
    time_s: float | None
    epoch: int | None = None
    loss: float | None = None
    """May be NaN or infinite, if the training measured that."""
    lr: float | None = None
    num_samples: int | None = None
    """Samples of this step on this rank."""
    num_samples_global: int | None = None
    """Samples of this step on all ranks."""
    data_time_s: float | None = None
    """Seconds that the step waited for its batch."""
    step_time_s: float | None = None
    """Seconds of the whole step, including data time."""
    grad_norm: float | None = None
    loss_scale: float | None = None
    memory_allocated_mib: float | None = None
    memory_reserved_mib: float | None = None
    accuracy: float | None = None
    comm_time_s: float | None = None
    """Seconds that the step waited for the gradient exchange after its own backward pass; measured only in
    some steps."""
    samples_per_s: float | None = None
    """Samples per second of all ranks, if the program reports a rate instead of samples per step."""
    tokens_per_s: float | None = None
    """Tokens per second as the program reports them: of all ranks, or of one."""
    mfu: float | None = None
    """Share of the GPU's peak of floating point operations, 0 to 1, as the program reports it."""
    counter: Counter = Counter.STEP
    """What `step` counts."""

    @property
    def place(self) -> str:
        """`step 3` or `epoch 3`."""
        return f"{self.counter.word} {self.step}"


@dataclass(frozen=True, slots=True)
class MetricEvent:
    """An event record: start, resume, epoch_end, checkpoint, eval, target, compile, end."""

    rank: int
    event: str
    time_s: float | None
    step: int | None
    fields: Mapping[str, Any]
    counter: Counter = Counter.STEP
    """What `step` counts."""
