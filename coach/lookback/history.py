"""The bounded past of one target, for rules and curves.

It is the only value that grows: the monitor adds to it in time order, everybody else only reads. Its bounds
keep a week-long run of eight ranks within tens of megabytes, and a run of 512 GPUs within a few hundred.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any, Protocol, TypeVar, cast

from coach.lookback.series import Series, SeriesByDevice
from coach.model.training.metrics import Counter, Step
from coach.model.training.telemetry import (
    GpuEvent,
    GpuHealth,
    GpuLink,
    GpuSample,
    HostSample,
    MountSample,
    Origin,
    PortSample,
    ProcessSample,
    Rung,
    SensorGap,
    TelemetrySample,
)

_Key = TypeVar("_Key")
_Look = TypeVar("_Look")
_Derived = TypeVar("_Derived")

MAX_STEPS = 262_144  # of all ranks
MIN_STEPS_PER_RANK = 512
MAX_STEPS_PER_RANK = 4096
MAX_SAMPLES = 131_072  # of all devices of one kind
MIN_SAMPLES_PER_DEVICE = 256  # the newer half is whole: two minutes at the sampler's default interval of 1 s
MAX_SAMPLES_PER_DEVICE = 3600
GPU_COLUMNS = ("utilization_pct", "power_w", "memory_used_mib")
MAX_CURVE_POINTS = 512
MAX_EVENTS = 256
MIN_STEPS, MIN_EPOCHS = 20, 2
"""Fewer steps show neither a course of the loss nor a speed. An epoch holds many steps."""
_MIN_POINTS = 3
_SIGMA = 1.4826 / math.sqrt(2)
"""Factor from the median absolute difference of neighbours to the standard deviation of one value."""
MAX_NAMES = 4096  # ports and mounts of all nodes of a large job; a file may claim more


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """Means over consecutive steps of the lowest rank. If one loss is NaN or infinite, the mean loss is
    too."""

    step: int
    """The last step in it."""
    num_steps: int
    time_s: float | None
    loss: float | None
    samples_per_s: float | None
    """Samples per second of all ranks together."""
    data_time_s: float | None
    step_time_s: float | None
    counter: Counter = Counter.STEP
    """What `step` counts."""
    epoch: int | None = None
    """The epoch of the last step in it."""
    lr: float | None = None
    """The learning rate of the last step in it, as the program gave it."""
    tokens_per_s: float | None = None

    @property
    def wait_pct(self) -> float | None:
        """The share of a step that waits for data, in %; None if either time is unknown."""
        if self.data_time_s is None or not self.step_time_s:
            return None
        return min(100.0, 100.0 * self.data_time_s / self.step_time_s)


def throughput(curve: Sequence[CurvePoint]) -> tuple[str, list[float | None]]:
    """The unit in which the speed of a training is known, and the speed at each point: samples/s, else
    tokens/s, else steps/s."""
    samples = [point.samples_per_s for point in curve]
    if any(samples):
        return "samples/s", samples
    tokens = [point.tokens_per_s for point in curve]
    if any(tokens):
        return "tokens/s", tokens
    unit = "epochs/s" if curve and curve[-1].counter is Counter.EPOCH else "steps/s"
    return unit, [1 / point.step_time_s if point.step_time_s else None for point in curve]


class Numbered(Protocol):
    """One or more steps of a training, as the program counts them."""

    @property
    def step(self) -> int | None:
        """The last step in it, or the last epoch; None if the program counts none."""

    @property
    def counter(self) -> Counter: ...
    @property
    def epoch(self) -> float | None: ...
    @property
    def num_steps(self) -> int: ...


_Numbered = TypeVar("_Numbered", bound=Numbered)


def since_restart(points: Sequence[_Numbered]) -> Sequence[_Numbered]:
    """The points since the steps last went back: each run, fold or phase in a log has its own course."""
    start = 0
    for place, (before, after) in enumerate(pairwise(points), 1):
        if before.step is not None and after.step is not None and after.step < before.step:
            start = place
    return points[start:]


def is_early(points: Sequence[Numbered]) -> bool:
    """True while the steps are too few to judge the loss or the speed."""
    if not points:
        return True
    if sum(point.num_steps for point in points) >= MIN_STEPS:
        return False
    first, last = points[0], points[-1]
    num_epochs = (last.epoch or 0) - (first.epoch or 0)
    num_steps = (last.step or 0) - (first.step or 0)
    if last.counter is Counter.EPOCH:
        num_epochs, num_steps = num_steps, 0
    return len(points) < _MIN_POINTS or (num_steps < MIN_STEPS and num_epochs < MIN_EPOCHS)


def noise_of(values: Sequence[float]) -> float:
    """The standard deviation of a single value, from the differences of neighbours: a trend hardly adds to
    it."""
    return _SIGMA * median(abs(after - before) for before, after in pairwise(values))


class Curve:
    """A whole run in at most MAX_CURVE_POINTS points. When it is full, neighbouring points are merged, and
    each point then holds twice as many steps."""

    def __init__(self) -> None:
        self._points: list[CurvePoint] = []
        self._stride = 1

    @property
    def points(self) -> Sequence[CurvePoint]:
        return self._points

    def copy(self) -> Curve:
        other = Curve()
        other._points, other._stride = list(self._points), self._stride
        return other

    def add(self, step: Step) -> None:
        rate = step.samples_per_s
        if step.num_samples_global is not None and step.step_time_s:
            rate = step.num_samples_global / step.step_time_s
        point = CurvePoint(
            step.step,
            1,
            step.time_s,
            step.loss,
            rate,
            step.data_time_s,
            step.step_time_s,
            step.counter,
            step.epoch,
            step.lr,
            step.tokens_per_s,
        )
        if self._points and self._points[-1].num_steps < self._stride:
            self._points[-1] = _merge(self._points[-1], point)
        else:
            self._points.append(point)
        if len(self._points) > MAX_CURVE_POINTS:
            self._stride *= 2
            pairs = zip(self._points[::2], self._points[1::2], strict=False)
            odd = self._points[-1:] if len(self._points) % 2 else []
            self._points = [_merge(a, b) for a, b in pairs] + odd


def _merge(a: CurvePoint, b: CurvePoint) -> CurvePoint:
    def mean(x: float | None, y: float | None) -> float | None:
        if x is None or y is None:
            return y if x is None else x
        return (x * a.num_steps + y * b.num_steps) / (a.num_steps + b.num_steps)

    return CurvePoint(
        b.step,
        a.num_steps + b.num_steps,
        b.time_s,
        mean(a.loss, b.loss),
        mean(a.samples_per_s, b.samples_per_s),
        mean(a.data_time_s, b.data_time_s),
        mean(a.step_time_s, b.step_time_s),
        b.counter,
        a.epoch if b.epoch is None else b.epoch,
        a.lr if b.lr is None else b.lr,
        mean(a.tokens_per_s, b.tokens_per_s),
    )


class History:
    """The series of one target by rank, GPU and node, oldest first."""

    def __init__(self) -> None:
        self._steps: dict[int, deque[Step]] = {}
        self._num_steps: dict[int, int] = {}
        self._first_not_finite: dict[int, Step] = {}
        self._gpus: SeriesByDevice[tuple[str, int], GpuSample] = SeriesByDevice(
            MAX_SAMPLES, MIN_SAMPLES_PER_DEVICE, MAX_SAMPLES_PER_DEVICE, GPU_COLUMNS
        )
        self._hosts: SeriesByDevice[str, HostSample] = SeriesByDevice(
            MAX_SAMPLES, MIN_SAMPLES_PER_DEVICE, MAX_SAMPLES_PER_DEVICE
        )
        self._processes: dict[str, tuple[float, list[ProcessSample]]] = {}
        self._largest: dict[str, ProcessSample] = {}
        self._links: dict[tuple[str, int], tuple[GpuLink, GpuLink]] = {}
        self._health: dict[tuple[str, int], tuple[GpuHealth, GpuHealth]] = {}
        self._ports: dict[tuple[str, str], tuple[PortSample, PortSample]] = {}
        self._mounts: dict[tuple[str, str], tuple[MountSample, MountSample]] = {}
        self._events: deque[GpuEvent] = deque(maxlen=MAX_EVENTS)
        self._origins: dict[str, Origin] = {}
        self._curve = Curve()
        self._derived: dict[Hashable, Any] = {}

    def copy(self) -> History:
        """A copy for a reader in another thread. The frozen values in the series are shared."""
        other = History()
        other._steps = {rank: steps.copy() for rank, steps in self._steps.items()}
        other._num_steps = dict(self._num_steps)
        other._first_not_finite = dict(self._first_not_finite)
        other._gpus = self._gpus.copy()
        other._hosts = self._hosts.copy()
        other._processes = dict(self._processes)
        other._largest = dict(self._largest)
        other._links = dict(self._links)
        other._health = dict(self._health)
        other._ports = dict(self._ports)
        other._mounts = dict(self._mounts)
        other._events = self._events.copy()
        other._origins = dict(self._origins)
        other._curve = self._curve.copy()
        return other

    def derived(self, key: Hashable, make: Callable[[], _Derived]) -> _Derived:
        """The value of `make()`, computed once for all readers until the history grows."""
        if key not in self._derived:
            self._derived[key] = make()
        return cast(_Derived, self._derived[key])

    def add_steps(self, steps: Iterable[Step]) -> None:
        self._derived.clear()
        for step in steps:
            if step.rank not in self._steps and step.rank < min(self._steps, default=step.rank):
                self._curve = Curve()  # it held another rank, whose file was there first
            kept = self._steps.setdefault(step.rank, deque())
            self._num_steps.setdefault(step.rank, 0)
            kept.append(step)
            bound = max(MIN_STEPS_PER_RANK, min(MAX_STEPS_PER_RANK, MAX_STEPS // len(self._steps)))
            while len(kept) > bound:
                kept.popleft()
            self._num_steps[step.rank] += 1
            if step.loss is not None and not math.isfinite(step.loss):
                self._first_not_finite.setdefault(step.rank, step)
            if step.rank == min(self._steps):
                self._curve.add(step)

    def forget_steps(self) -> None:
        """Drop all steps, because they belong to an earlier attempt."""
        self._steps, self._num_steps, self._first_not_finite, self._curve = {}, {}, {}, Curve()
        self._derived.clear()

    def begin_attempt(self, rank: int, time_s: float) -> None:
        """Drop the steps that this rank wrote before `time_s`: they belong to an earlier attempt."""
        steps = self._steps.get(rank, ())
        kept = [step for step in steps if step.time_s is None or step.time_s >= time_s]
        if len(kept) == len(steps):
            return
        if rank == min(self._steps):
            self._curve = Curve()
        self._steps.pop(rank)
        self._num_steps.pop(rank)
        self._first_not_finite.pop(rank, None)
        self.add_steps(kept)

    def add_samples(self, samples: Iterable[TelemetrySample], rung: Rung = Rung.SAMPLER) -> None:
        self._derived.clear()
        for sample in samples:
            if not isinstance(sample, SensorGap):
                self._origins[sample.node] = Origin(rung, sample.time_s)
            if isinstance(sample, GpuSample):
                self._gpus.add((sample.node, sample.gpu), sample)
            elif isinstance(sample, HostSample):
                self._hosts.add(sample.node, sample)
            elif isinstance(sample, ProcessSample):
                time_s, rows = self._processes.get(sample.node, (sample.time_s, []))
                if sample.time_s != time_s:
                    rows = []
                self._processes[sample.node] = (sample.time_s, [*rows, sample])
                known = self._largest.get(sample.node, sample)
                if (sample.anonymous_mib or 0.0) >= (known.anonymous_mib or 0.0):
                    self._largest[sample.node] = sample
            elif isinstance(sample, GpuLink):
                _put(self._links, (sample.node, sample.gpu), sample)
            elif isinstance(sample, GpuHealth):
                _put(self._health, (sample.node, sample.gpu), sample)
            elif isinstance(sample, PortSample):
                _put(self._ports, (sample.node, sample.name), sample)
            elif isinstance(sample, MountSample):
                _put(self._mounts, (sample.node, sample.path), sample)
            elif isinstance(sample, GpuEvent):
                self._events.append(sample)

    @property
    def ranks(self) -> tuple[int, ...]:
        """Ranks that wrote at least one step, ascending."""
        return self.derived("ranks", lambda: tuple(sorted(self._steps)))

    def steps(self, rank: int) -> Sequence[Step]:
        """The newest steps of a rank: up to MAX_STEPS_PER_RANK, fewer if there are very many ranks; empty for
        an unknown rank."""
        return self._steps.get(rank, ())

    def num_steps(self, rank: int) -> int:
        """Number of steps ever read for a rank."""
        return self._num_steps.get(rank, 0)

    def first_not_finite(self, rank: int) -> Step | None:
        """The first step whose loss was NaN or infinite; it is kept for the whole run."""
        return self._first_not_finite.get(rank)

    @property
    def curve(self) -> Sequence[CurvePoint]:
        """The whole run at low resolution, from the lowest rank."""
        return self._curve.points

    @property
    def gpus(self) -> tuple[tuple[str, int], ...]:
        """(node, gpu) of every sampled GPU, ascending."""
        return self.derived("gpus", lambda: tuple(sorted(self._gpus.keys())))

    def gpu(self, node: str, gpu: int) -> Sequence[GpuSample]:
        """The samples of a GPU: the newer half complete, the older half thinned."""
        return self._gpus.of((node, gpu)).samples

    def gpu_series(self, node: str, gpu: int) -> Series[GpuSample]:
        """The same samples with fields as columns, for readers of many samples."""
        return self._gpus.of((node, gpu))

    @property
    def nodes(self) -> tuple[str, ...]:
        """Nodes with host samples, ascending."""
        return self.derived("nodes", lambda: tuple(sorted(self._hosts.keys())))

    def host(self, node: str) -> Sequence[HostSample]:
        return self._hosts.of(node).samples

    def origin(self, node: str) -> Origin | None:
        """The source of a node's newest measurements; None without any."""
        return self._origins.get(node)

    def processes(self, node: str) -> Sequence[ProcessSample]:
        """The newest sample of each large process on a node."""
        return self._processes.get(node, (0.0, []))[1]

    def largest_process(self, node: str) -> ProcessSample | None:
        """The sample of a process with the most anonymous memory on a node; None if none was ever above the
        job's memory limit."""
        largest = self._largest.get(node)
        return largest if largest is not None and largest.anonymous_mib is not None else None

    def gpu_link(self, node: str, gpu: int) -> tuple[GpuLink, GpuLink] | None:
        """The first and the newest sample; the difference of their counters happened in this run."""
        return self._links.get((node, gpu))

    def gpu_health(self, node: str, gpu: int) -> tuple[GpuHealth, GpuHealth] | None:
        """The first and the newest sample."""
        return self._health.get((node, gpu))

    def ports(self, node: str) -> Sequence[tuple[PortSample, PortSample]]:
        """The first and the newest sample of each network port of a node."""
        return [pair for (of_node, _), pair in self._ports.items() if of_node == node]

    def mounts(self, node: str) -> Sequence[MountSample]:
        """The newest sample of each network file system that the node used."""
        return [newest for (of_node, _), (_, newest) in self._mounts.items() if of_node == node]

    @property
    def gpu_events(self) -> Sequence[GpuEvent]:
        """Xids, oldest first; the newest MAX_EVENTS are kept."""
        return self._events


def _put(looks: dict[_Key, tuple[_Look, _Look]], key: _Key, sample: _Look) -> None:
    if key in looks:
        looks[key] = (looks[key][0], sample)
    elif len(looks) < MAX_NAMES:
        looks[key] = (sample, sample)
