"""The summary of a target's past for one row of a list: its curve, and the newest measurements of its nodes.

A list shows many targets and is redrawn with every answer. Copying each whole history would take too long;
the summary is computed once after each addition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from coach.lookback.history import CurvePoint, History
from coach.model.training.telemetry import GpuSample

_KEY = "glance"


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """The newest measurements of a group of GPUs, or of the CPUs of a node. None: not measured."""

    num_devices: int
    time_s: float
    """Time of the oldest of these measurements, in epoch seconds."""
    use_pct: float | None = None
    """Mean use over all devices, in percent."""
    memory_used_mib: float | None = None
    memory_total_mib: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None


@dataclass(frozen=True, slots=True)
class Glance:
    """The summary of one target's past."""

    curve: tuple[CurvePoint, ...] = ()
    gpus: Mapping[str, DeviceUse] = field(default_factory=dict)
    """Node → use of its GPUs."""
    cpus: Mapping[str, DeviceUse] = field(default_factory=dict)
    """Node → use of its CPUs."""

    @property
    def is_empty(self) -> bool:
        """True if nothing was measured."""
        return not self.curve and not self.gpus and not self.cpus


def glance_of(history: History) -> Glance:
    """Return the summary; the same object until the history grows."""
    return history.derived(_KEY, lambda: _look(history))


def together(uses: Iterable[DeviceUse]) -> DeviceUse | None:
    """Combine several nodes into one value; None if there are no devices."""
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
    """None if one value is unknown: a partial sum would look like the total."""
    known = [*values]
    return None if None in known else sum(value for value in known if value is not None)
