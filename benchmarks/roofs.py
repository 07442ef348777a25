"""Compute how fast a training step could be: its compute roof, its memory roof and its launch roof, and the
lowest of the three.

The step is run once under two counters: floating point operations (torch's own counter) and, operator by
operator, the bytes it reads and writes. Only the device's data-sheet figures come from a table. The memory
roof is that of an eager step. A compiler fuses operators and may exceed it; a batch norm that reads its input
three times stays below it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

LAUNCH_S = 6e-6
"""What one operator costs the host at least, eager: an assumption, and the only one here."""

_NO_WORK = ("view", "t.", "transpose", "permute", "expand", "slice", "select", "detach", "alias", "unsqueeze")
_NO_WORK += ("squeeze", "empty", "as_strided", "split", "unbind", "reshape", "_to_copy_view")


@dataclass(frozen=True, slots=True)
class Device:
    """Peaks of a data sheet, dense, in FLOP/s and bytes/s."""

    fp32: float
    tf32: float
    bf16: float
    memory: float


DEVICES = {
    "NVIDIA H200": Device(67e12, 494e12, 989e12, 4.8e12),
    "NVIDIA H100 PCIe": Device(51e12, 378e12, 756e12, 2.0e12),
    "NVIDIA H100": Device(67e12, 494e12, 989e12, 3.35e12),
    "NVIDIA A100-SXM4-80GB": Device(19.5e12, 156e12, 312e12, 2.039e12),
    "NVIDIA A100": Device(19.5e12, 156e12, 312e12, 1.555e12),
}
"""By the beginning of the name that torch gives; the longer ones first."""


@dataclass(frozen=True, slots=True)
class Work:
    """The work of one step."""

    flops: float
    num_bytes: float
    num_operators: int


@dataclass(frozen=True, slots=True)
class Roofs:
    """The least seconds of a step by each limit."""

    compute_s: float
    memory_s: float
    launch_s: float

    @property
    def binding(self) -> str:
        """The limit that allows least."""
        limits = {"compute": self.compute_s, "memory": self.memory_s, "launch": self.launch_s}
        return max(limits, key=limits.__getitem__)

    @property
    def least_s(self) -> float:
        return max(self.compute_s, self.memory_s, self.launch_s)


class Traffic(TorchDispatchMode):
    """Adds up the bytes that every operator reads and writes."""

    def __init__(self) -> None:
        super().__init__()
        self.num_bytes = 0
        self.num_operators = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        if not function.is_view and not str(function.__name__).startswith(_NO_WORK):
            tensors = [leaf for leaf in tree_leaves((args, kwargs, result)) if isinstance(leaf, torch.Tensor)]
            self.num_bytes += sum(tensor.numel() * tensor.element_size() for tensor in tensors)
            self.num_operators += 1
        return result


def work_of(step: Callable[[], object]) -> Work:
    """Run a step once, not compiled, and count."""
    with FlopCounterMode(display=False) as flops, Traffic() as traffic:
        step()
    return Work(flops.get_total_flops(), traffic.num_bytes, traffic.num_operators)


def device_of(name: str) -> Device | None:
    """The data sheet of a device; None where this file has none."""
    return next((DEVICES[start] for start in DEVICES if name.startswith(start)), None)


def roofs_of(work: Work, device: Device, precision: str) -> Roofs:
    """The roofs of a step whose products are in `precision`: fp32, tf32 or bf16."""
    peak: float = getattr(device, precision)
    return Roofs(work.flops / peak, work.num_bytes / device.memory, work.num_operators * LAUNCH_S)
