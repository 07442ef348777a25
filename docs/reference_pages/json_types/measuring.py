"""Documents of stacks and attach."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypedDict

from coach.model.json_types import Schema1, Together
from coach.model.training.stacks import RankStack
from coach.model.training.telemetry import (
    GpuEvent,
    GpuHealth,
    GpuLink,
    GpuSample,
    HostSample,
    MountSample,
    PortSample,
    ProcessSample,
    SensorGap,
)
from coach.model.training.trace import TraceReport


class StacksDocument(TypedDict):
    """The position of each rank."""

    schema: Schema1
    ranks: list[Annotated[dict[str, Any], RankStack]]
    summary: str
    odd_ranks: list[int | None]
    """Ranks at another position than most."""
    absent_ranks: list[int]
    num_silent_nodes: int
    """Nodes that did not answer."""
    because: str | None
    folder: str | None
    """The folder with the complete stacks."""


class _AttachAlso(TypedDict):
    schema: Schema1
    source: Literal["sampler", "step", "sstat", "ssh"]
    age_s: float | None
    kind: str


SAMPLES = (
    GpuSample,
    GpuLink,
    GpuHealth,
    GpuEvent,
    HostSample,
    ProcessSample,
    PortSample,
    MountSample,
    SensorGap,
)


class _TraceAlso(TypedDict):
    schema: Schema1
    trace: str
    """The file that was read."""


TRACE = Together("TraceDocument", (_TraceAlso, TraceReport))
ATTACH_LINES = tuple(Together(f"{sample.__name__}Line", (_AttachAlso, sample)) for sample in SAMPLES)
"""Each line that `coach attach` prints has one of these types; `kind` names the class."""
