"""What one line of a list shows of a target's past: its curve, and what its nodes measured last.

A list shows many targets and is drawn again with every answer. A copy of each whole past would be made each
time; this is worked out once for all that was added.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from coach.lookback.history import CurvePoint, History
from coach.model.training.telemetry import GpuSample

_KEY = "glance"


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """The newest numbers of some GPUs, or of the CPUs of a node. What was not measured is None."""

    num_devices: int
    time_s: float
    """Of the oldest of these numbers."""
    use_pct: float | None = None
    """Mean of all devices."""
    memory_used_mib: float | None = None
    memory_total_mib: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None


@dataclass(frozen=True, slots=True)
class Glance:
    """One target's past, shortly."""

    curve: tuple[CurvePoint, ...] = ()
    gpus: Mapping[str, DeviceUse] = field(default_factory=dict)
    """By node."""
    cpus: Mapping[str, DeviceUse] = field(default_factory=dict)
    """By node."""

    @property
    def is_empty(self) -> bool:
        """True if nothing was measured."""
        return not self.curve and not self.gpus and not self.cpus


def glance_of(history: History) -> Glance:
    """The same value until something is added."""
    return history.derived(_KEY, lambda: _look(history))


def together(uses: Iterable[DeviceUse]) -> DeviceUse | None:
    """Several nodes as one; None where there is none."""
    known = [*uses]
    num = sum(use.num_devices for use in known)
    if not num:
        return None
    return DeviceUse(
        num,
        min(use.time_s for use in known),
        _mean((use.use_pct, use.num_devices) for use in known),
        _sum(use.memory_used_mib for use in known),
        _sum(use.memory_total_mib for use in known),
        _sum(use.power_w for use in known),
        _sum(use.power_limit_w for use in known),
    )


def _look(history: History) -> Glance:
    newest: dict[str, list[GpuSample]] = {}
    for node, gpu in history.gpus:
        newest.setdefault(node, []).append(history.gpu(node, gpu)[-1])
    gpus = {node: _of_gpus(samples) for node, samples in newest.items()}
    cpus = {}
    for node in history.nodes:
        host = history.host(node)[-1]
        cpus[node] = DeviceUse(1, host.time_s, host.cpu_pct, host.memory_used_mib, host.memory_limit_mib)
    return Glance(tuple(history.curve), gpus, cpus)


def _of_gpus(samples: list[GpuSample]) -> DeviceUse:
    return DeviceUse(
        len(samples),
        min(sample.time_s for sample in samples),
        _mean((sample.utilization_pct, 1) for sample in samples),
        _sum(sample.memory_used_mib for sample in samples),
        _sum(sample.memory_total_mib for sample in samples),
        _sum(sample.power_w for sample in samples),
        _sum(sample.power_limit_w for sample in samples),
    )


def _mean(values: Iterable[tuple[float | None, int]]) -> float | None:
    known = [(value, weight) for value, weight in values if value is not None]
    return sum(value * weight for value, weight in known) / sum(w for _, w in known) if known else None


def _sum(values: Iterable[float | None]) -> float | None:
    """None where one is not known: a sum of some would pass for that of all."""
    known = [*values]
    return None if None in known else sum(value for value in known if value is not None)
