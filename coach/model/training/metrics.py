"""Training metrics: one record per optimizer step from every rank, and events between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

THINNED_EVENT = "thinned"
"""An event of coach's own: of the steps behind it, one of `every` is left."""
NAMES_EVENT = "names"
"""The event that tells what else a foreign training writes down: `fields["names"]`."""


@dataclass(frozen=True, slots=True)
class Step:
    """One optimizer step of one rank. Times in seconds (`time_s` since the epoch, at the end of the step),
    memory in MiB."""

    rank: int
    step: int
    time_s: float | None
    epoch: int | None = None
    loss: float | None = None
    """May be NaN or infinite: that is what was measured."""
    lr: float | None = None
    num_samples: int | None = None
    """Samples of this step on this rank."""
    num_samples_global: int | None = None
    """Samples of this step on all ranks."""
    data_time_s: float | None = None
    """Time the step waited for its batch."""
    step_time_s: float | None = None
    """The whole step, data time included."""
    grad_norm: float | None = None
    loss_scale: float | None = None
    memory_allocated_mib: float | None = None
    memory_reserved_mib: float | None = None
    accuracy: float | None = None
    comm_time_s: float | None = None
    """Time the step waited for the exchange of gradients, after its own backward pass; measured in some steps
    only."""
    samples_per_s: float | None = None
    """Samples per second of all ranks, where the program itself tells it and not the samples of a step."""


@dataclass(frozen=True, slots=True)
class MetricEvent:
    """An event record: start, resume, epoch_end, checkpoint, eval, target, compile, end."""

    rank: int
    event: str
    time_s: float | None
    step: int | None
    fields: Mapping[str, Any]
