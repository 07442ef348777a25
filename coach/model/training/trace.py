"""A trace of torch.profiler, as far as coach looks at it, and what was made of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Work(Enum):
    """What an event of a trace is."""

    OPERATOR = "operator"
    """An operator on the host; on a machine without a GPU it is the work itself."""
    ANNOTATION = "annotation"
    """A named part of the host's time: the loader, the optimizer's step, a step of the profiler."""
    RUNTIME = "runtime"
    """A call of the host to the device's runtime, for example a launch."""
    KERNEL = "kernel"
    COPY = "copy"
    """A copy, or a fill, on the device."""
    COMMUNICATION = "communication"
    """A collective as a kernel of the device."""
    HOST_COMMUNICATION = "host communication"
    """A collective of gloo or MPI, on a thread of the host."""


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """Something that lasted. Times are microseconds."""

    work: Work
    name: str
    begin_us: float
    end_us: float
    thread: tuple[str, str]
    """Process and thread of the host, or device and stream."""
    num_bytes: int | None = None
    """Of a copy."""


@dataclass(frozen=True, slots=True)
class Trace:
    """One file."""

    events: tuple[TraceEvent, ...]
    rank: int | None
    world_size: int | None
    device: str | None
    """The name of the GPU; None: the trace tells none."""


@dataclass(frozen=True, slots=True)
class Share:
    """One line of a table: a name, its time, how often, and its part of a whole."""

    name: str
    time_s: float
    num_calls: int
    share: float


@dataclass(frozen=True, slots=True)
class CopyKind:
    """All copies of one direction. `bytes_per_s` is None where the trace does not tell the bytes."""

    name: str
    time_s: float
    num_calls: int
    num_bytes: int | None
    bytes_per_s: float | None


@dataclass(frozen=True, slots=True)
class Communication:
    """All collectives together. `hidden_share` is the part of their time in which something was computed
    too."""

    time_s: float
    num_calls: int
    hidden_share: float
    exposed_share: float
    """The part of the window in which the device did nothing but communicate."""


@dataclass(frozen=True, slots=True)
class TraceReport:
    """What a trace says. Shares are of the window, from the first step that was profiled to the end of the
    last one's work."""

    is_gpu: bool
    rank: int | None
    world_size: int | None
    device: str | None
    num_steps: int | None
    """None: the program told the profiler of no steps."""
    window_s: float
    compute_share: float
    idle_share: float
    num_kernels: int | None
    """None: there is no GPU in the trace."""
    median_kernel_s: float | None
    longest_gap_s: float
    top: tuple[Share, ...]
    """Kernels, or the operators of a CPU by their own time; shares of all of them."""
    gaps: tuple[Share, ...]
    """What the host did while the device was idle; shares of the idle time."""
    waits: Share | None
    """The host waiting for the device; a share of the window. None: it never did."""
    communication: Communication | None
    copies: tuple[CopyKind, ...]
    remarks: tuple[str, ...] = ()
    """What stands out, and what to try, the largest first."""
