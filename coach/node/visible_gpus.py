"""The job's GPUs on a node, in CUDA's order, and the counts to compare them with.

NVML numbers all devices of the node, or those that the job's cgroup shows. CUDA_VISIBLE_DEVICES narrows them
further. A device that is divided into MIG instances is replaced by its instances.
"""

from __future__ import annotations

import os
from typing import Any, List, Mapping, NamedTuple, Optional

from coach.node.gap import Gap

_EVERY_GPU_OF_THE_NODE = "/proc/driver/nvidia/gpus"


class Visible(NamedTuple):
    """One GPU or MIG instance of the job. `whole` is the device to which an instance belongs, otherwise
    None.

    A device that the driver cannot open keeps its place, because CUDA's numbers count it: `error` then says
    why, and there is no handle.
    """

    handle: Any
    whole: Any = None
    error: Any = None


class Counts(NamedTuple):
    """Numbers of GPUs: seen by the sampler, allotted to the job on this node, and present in the node. None:
    unknown."""

    num_gpus: int
    num_gpus_allotted: Optional[int]
    num_gpus_of_node: Optional[int]


def find(nvml: Any, env: Mapping[str, str]) -> List[Visible]:
    """The visible devices. CUDA_VISIBLE_DEVICES holds numbers or UUIDs; entries after one that does not exist
    are hidden."""
    every = [found for index in range(nvml.nvmlDeviceGetCount()) for found in _at(nvml, index)]
    visible = env.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return [part for device in every for part in _instances(nvml, device)]
    found: List[Visible] = []
    for entry in visible.split(","):
        parts = _named(nvml, entry.strip(), every)
        if not parts:
            break
        found += parts
    return found


def count(num_gpus: int, env: Mapping[str, str]) -> Counts:
    """Count the GPUs. Slurm reports the allotted ones. The driver's files list all GPUs, even those that a
    cgroup hides."""
    allotted = env.get("SLURM_GPUS_ON_NODE", "")
    try:
        # Only the number is needed.
        of_node: Optional[int] = len(os.listdir(_EVERY_GPU_OF_THE_NODE))  # noqa: PTH208
    except OSError:
        of_node = None
    return Counts(num_gpus, int(allotted) if allotted.isdecimal() else None, of_node)


def explain(counts: Counts, env: Mapping[str, str]) -> List[Gap]:
    """The reasons why the sampler sees fewer GPUs than it should."""
    if counts.num_gpus_allotted and 0 < counts.num_gpus < counts.num_gpus_allotted:
        return [
            (
                "gpu.utilization",
                (
                    f"{counts.num_gpus} of the job's {counts.num_gpus_allotted} GPUs on this node are "
                    "visible to the sampler"
                ),
                "one task per node sees all of them: --ntasks-per-node=1, no --gpus-per-task",
            )
        ]
    if counts.num_gpus:
        return []
    if env.get("CUDA_VISIBLE_DEVICES") is not None:
        return [("gpu.utilization", "CUDA_VISIBLE_DEVICES hides every GPU", "ask for GPUs with --gpus")]
    of_node = f", of {counts.num_gpus_of_node} on this node" if counts.num_gpus_of_node else ""
    return [("gpu.utilization", f"NVML sees no GPU{of_node}", "ask for GPUs with --gpus")]


def uuid_of(nvml: Any, handle: Any) -> Optional[str]:
    """A device's UUID; None if the device does not report it."""
    try:
        return as_text(nvml.nvmlDeviceGetUUID(handle))
    except nvml.NVMLError:
        return None


def as_text(value: Any) -> str:
    """The text: older bindings return bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _at(nvml: Any, index: int) -> List[Visible]:
    """The device of an index; empty if it belongs to another job."""
    try:
        return [Visible(nvml.nvmlDeviceGetHandleByIndex(index))]
    except nvml.NVMLError as error:
        return [] if error.value == nvml.NVML_ERROR_NO_PERMISSION else [Visible(None, error=error)]


def _named(nvml: Any, entry: str, every: List[Visible]) -> List[Visible]:
    if entry.isdecimal():
        return _instances(nvml, every[int(entry)]) if int(entry) < len(every) else []
    if entry.startswith("MIG-"):
        try:
            handle = nvml.nvmlDeviceGetHandleByUUID(entry.encode())
            return [Visible(handle, nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle))]
        except nvml.NVMLError:
            return []
    for device in every:
        # CUDA accepts the start of a UUID, if it is long enough to be unique.
        if entry and device.error is None and (uuid_of(nvml, device.handle) or "").startswith(entry):
            return _instances(nvml, device)
    # A device that cannot be opened does not report its UUID: it may be this one.
    return [device for device in every if device.error is not None][:1] if entry.startswith("GPU-") else []


def _instances(nvml: Any, device: Visible) -> List[Visible]:
    """The MIG instances of a device, or the device itself if it is not divided."""
    handle = device.handle
    if device.error is not None:
        return [device]
    try:
        if not nvml.nvmlDeviceGetMigMode(handle)[0]:
            return [Visible(handle)]
        places = range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle))
    except (nvml.NVMLError, AttributeError):  # a device, a driver or a binding without MIG
        return [Visible(handle)]
    found = []
    for place in places:
        try:
            found.append(Visible(nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, place), handle))
        except nvml.NVMLError:
            continue  # an empty slot, or another job's instance
    return found
