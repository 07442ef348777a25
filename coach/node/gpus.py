"""Reads the job's GPUs through NVML, field by field. A value that a device lacks is left out, and reported
once as a gap.

Records carry CUDA's index of the device within the job, and its UUID. Only the UUID is the same everywhere.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
import time
from importlib import import_module
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Set, Tuple

from coach.node import gpu_fields, visible_gpus
from coach.node.counters import Rates
from coach.node.gap import Failures, Gap, ranges
from coach.node.gpm import Gpm
from coach.node.gpu_fields import Field, Scope, Values

Reader = Tuple[Field, Callable[[], Values]]
"""A field, and the function that reads it from one device."""
_WAIT_MS = 10_000
_PAUSE_S = 10.0


class ProcessUse(NamedTuple):
    """GPU memory of one process in MiB, and the GPUs that hold it."""

    memory_mib: float
    gpus: List[int]


class Sample(NamedTuple):
    """The GPUs at one time: records without time and node, use per process, and new gaps."""

    records: List[Dict[str, Any]]
    processes: Dict[int, ProcessUse]
    gaps: List[Gap]


class _Device:
    """One GPU or MIG instance of the job, with the readers of its fields."""

    def __init__(self, index: int, visible: visible_gpus.Visible, nvml: Any) -> None:
        self.index = index
        self.handle, self.whole = visible.handle, visible.whole
        uuid = visible_gpus.uuid_of(nvml, self.handle)
        self.key: Values = {"gpu": index, "uuid": uuid}
        self.facts: Values = dict(self.key)
        with contextlib.suppress(nvml.NVMLError):
            self.facts["name"] = visible_gpus.as_text(nvml.nvmlDeviceGetName(self.handle))
        if self.whole is not None:
            self.facts["whole_uuid"] = visible_gpus.uuid_of(nvml, self.whole)
        self.every_sample = self.bound(gpu_fields.of_every_sample(nvml))
        self.limits = self.bound(gpu_fields.of_limits(nvml))
        self.links = self.bound(gpu_fields.of_links(nvml))
        self.health = self.bound(gpu_fields.of_health(nvml))
        self.processes = self.bound([gpu_fields.of_processes(nvml)])
        self.known_limits: Values = {}
        self.silent: Set[str] = set()
        """Fields that failed and were reported; those in `refused` are not read again."""
        self.refused: Set[str] = set()
        self.is_lost = self.has_said_lost = False
        self.slow_due_s: Optional[float] = None

    def bound(self, fields: List[Field]) -> List[Reader]:
        """The fields as readers of this device. A MIG instance gets only the fields that mean something for
        it."""
        readers: List[Reader] = []
        for field in fields:
            if self.whole is None or field.scope is Scope.INSTANCE:
                readers.append((field, _reader(field, self.handle)))
            elif field.scope is Scope.SHARED:
                readers.append((field, _reader(field, self.whole)))
        return readers


def _reader(field: Field, handle: Any) -> Callable[[], Values]:
    return lambda: field.read(handle)


class Gpus:
    """The devices of the job. Without a driver the list is empty, and the first sample's gaps give the
    reason."""

    def __init__(
        self,
        env: Mapping[str, str],
        has_gpm: bool,
        slow_interval_s: float,
        tell_xid: Callable[[int, str, int], None],
    ) -> None:
        self._slow_interval_s = slow_interval_s
        self.counts: Optional[visible_gpus.Counts] = None
        self._gaps: List[Gap] = []
        self._devices: List[_Device] = []
        self._rates = Rates()
        self._nvml: Any = None
        try:
            self._nvml = import_module("pynvml")
        except ImportError:
            self._gaps.append(_missing_binding())
            return
        try:
            self._nvml.nvmlInit()
            found = visible_gpus.find(self._nvml, env)
        except self._nvml.NVMLError as error:
            self._gaps.append(self._why_no_nvml(error))
            return
        for index, visible in enumerate(found):
            if visible.error is None:
                self._devices.append(_Device(index, visible, self._nvml))
            else:
                self._gaps.append(self._why_not_opened(index, visible.error))
        self.counts = visible_gpus.count(len(found), env)
        self._gaps += visible_gpus.explain(self.counts, env)
        instances = [device.index for device in self._devices if device.whole is not None]
        if instances:
            self._gaps.append(_of_instances(instances))
        if has_gpm:
            self._add_gpm()
        self._watch_xids(tell_xid)

    def sample(self, time_s: float) -> Sample:
        """Read every device once. `time_s` is a monotonic clock."""
        records: List[Values] = []
        processes: Dict[int, ProcessUse] = {}
        failed = Failures()
        for device in self._devices:
            found = self._read_device(device, time_s, failed)
            if device.is_lost:
                continue
            records += found
            for pid, used_mib in self._read(device, device.processes, failed).items():
                before = processes.get(pid, ProcessUse(0.0, []))
                processes[pid] = ProcessUse(before.memory_mib + used_mib, [*before.gpus, device.index])
        gaps = [*self._gaps, *failed.gaps()]
        self._gaps = []
        return Sample(records, processes, gaps)

    def _read_device(self, device: _Device, time_s: float, failed: Failures) -> List[Values]:
        device.is_lost = False
        values = self._read(device, device.every_sample, failed)
        slow: List[Values] = []
        if not device.is_lost and (device.slow_due_s is None or time_s >= device.slow_due_s):
            # Each device takes time, so the reads are spread over the interval.
            share = (device.index + 1) / (self._devices[-1].index + 1) if device.slow_due_s is None else 1.0
            device.slow_due_s = time_s + self._slow_interval_s * share
            device.known_limits = self._read(device, device.limits, failed)
            links = self._with_rates(device, self._read(device, device.links, failed, "links"), time_s)
            health = self._read(device, device.health, failed, "health")
            slow = [
                {"kind": "gpu_link", **device.key, **links},
                {"kind": "gpu_health", **device.key, **health},
            ]
        if device.is_lost and not device.has_said_lost:
            failed.gap(_of_lost(device.index))
        device.has_said_lost = device.is_lost
        return [{"kind": "gpu", **device.facts, **values, **device.known_limits}, *slow]

    def _read(
        self, device: _Device, readers: List[Reader], failed: Failures, group: Optional[str] = None
    ) -> Values:
        values: Values = {}
        for field, read in readers:
            if device.is_lost or field.name in device.refused:
                continue
            try:
                values.update(read())
            except (self._nvml.NVMLError, AttributeError) as error:
                self._note(device, field, error, failed, group)
        return values

    def _note(
        self, device: _Device, field: Field, error: Any, failed: Failures, group: Optional[str] = None
    ) -> None:
        nvml = self._nvml
        value = nvml.NVML_ERROR_FUNCTION_NOT_FOUND if isinstance(error, AttributeError) else error.value
        if value == nvml.NVML_ERROR_GPU_IS_LOST:
            device.is_lost = True
            return
        is_absent = field.is_optional and value == nvml.NVML_ERROR_NOT_SUPPORTED
        if field.name not in device.silent and not is_absent:
            device.silent.add(field.name)
            how = _HOW_OLD_BINDING if isinstance(error, AttributeError) else self._how(error)
            failed.add(field.name, group, device.index, error, how)
        if value in (
            nvml.NVML_ERROR_NOT_SUPPORTED,
            nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
            nvml.NVML_ERROR_NO_PERMISSION,
        ):
            device.refused.add(field.name)

    def _with_rates(self, device: _Device, values: Values, time_s: float) -> Values:
        for way in ("tx", "rx"):
            counter = values.pop(f"nvlink_{way}_kib", None)
            rate = self._rates.of((device.index, way), counter, time_s)
            if rate is not None:
                values[f"nvlink_{way}_mib_s"] = round(rate / 1024, 1)
        return values

    def _add_gpm(self) -> None:
        failed = Failures()
        for device in self._devices:
            try:
                gpm = Gpm(self._nvml, device.handle, device.whole)
                device.every_sample += device.bound([Field("gpm", gpm.read, Scope.INSTANCE)])
            except (self._nvml.NVMLError, AttributeError) as error:
                failed.add(
                    "gpm", None, device.index, error, self._how(error, "GPM needs a Hopper or newer GPU")
                )
        self._gaps += failed.gaps()

    def _watch_xids(self, tell: Callable[[int, str, int], None]) -> None:
        failed = Failures()
        seen = set()
        try:
            watch = XidWatch(self._nvml, tell)
        except (self._nvml.NVMLError, AttributeError) as error:
            self._gaps.append(("gpu.xid", f"no Xid events: {error}", _HOW_XID))
            return
        for device in self._devices:
            handle = device.handle if device.whole is None else device.whole
            uuid = visible_gpus.uuid_of(self._nvml, handle)
            if uuid is None or uuid in seen:
                continue  # instances of one device share its events
            seen.add(uuid)
            try:
                watch.register(handle, device.index, uuid)
            except self._nvml.NVMLError as error:
                failed.add("xid", None, device.index, error, self._how(error, _HOW_XID))
        self._gaps += failed.gaps()
        watch.start()

    def _how(self, error: Any, otherwise: str = "this device does not report it") -> str:
        value = getattr(error, "value", None)
        if value == self._nvml.NVML_ERROR_NO_PERMISSION:
            return "the driver reports it to administrators only: ask them"
        return "a newer driver reports it" if value == self._nvml.NVML_ERROR_FUNCTION_NOT_FOUND else otherwise

    def _why_not_opened(self, index: int, error: Any) -> Gap:
        if error.value == self._nvml.NVML_ERROR_GPU_IS_LOST:
            return _of_lost(index)
        return (f"gpu.{index}", f"GPU {index}: {error}", _HOW_NVIDIA_SMI)

    def _why_no_nvml(self, error: Any) -> Gap:
        nvml = self._nvml
        if error.value in (nvml.NVML_ERROR_LIBRARY_NOT_FOUND, nvml.NVML_ERROR_DRIVER_NOT_LOADED):
            return _NO_DRIVER
        return ("gpu.utilization", f"NVML: {error}", _HOW_NVIDIA_SMI)


def _of_lost(index: int) -> Gap:
    return (f"gpu.{index}", f"GPU {index} is lost", _HOW_LOST)


def _of_instances(indices: List[int]) -> Gap:
    kind = "a MIG instance" if len(indices) == 1 else "MIG instances"
    return (
        "gpu.power",
        f"GPU {ranges(indices)}: {kind}; power and traffic are measured for the whole device only",
        "`--gpm` measures what an instance does, on Hopper or newer",
    )


def _missing_binding() -> Gap:
    missing = f"pynvml missing in {sys.executable}"
    if os.path.exists("/dev/nvidiactl"):  # noqa: PTH110 (no path is kept)
        return ("gpu.utilization", missing, f"{sys.executable} -m pip install nvidia-ml-py")
    what, because, how = _NO_DRIVER
    return (what, f"{missing}, and {because}", how)


_NO_DRIVER: Gap = (
    "gpu.utilization",
    "no NVIDIA driver",
    "run on a node with NVIDIA GPUs and their driver; in a container, pass the driver in (--nv)",
)
_HOW_LOST = "the driver lost the device: leave this node out (--exclude) and tell its administrators"
_HOW_NVIDIA_SMI = "`nvidia-smi` on this node shows more"
_HOW_OLD_BINDING = "a newer nvidia-ml-py reports it"
_HOW_XID = "`dmesg` on the node has them (NVRM: Xid)"


class XidWatch:
    """Registers devices, then reports each Xid to `tell(gpu, uuid, xid)` in a thread of its own."""

    def __init__(self, nvml: Any, tell: Callable[[int, str, int], None]) -> None:
        self._nvml = nvml
        self._tell = tell
        self._set = nvml.nvmlEventSetCreate()
        self._devices: Dict[int, Tuple[int, str]] = {}

    def register(self, handle: Any, gpu: int, uuid: str) -> None:
        """Watch one device. Raises NVMLError if it has no such events."""
        self._nvml.nvmlDeviceRegisterEvents(handle, self._nvml.nvmlEventTypeXidCriticalError, self._set)
        self._devices[_address(handle)] = (gpu, uuid)

    def start(self) -> None:
        """Start to wait, after all devices are registered."""
        if self._devices:
            threading.Thread(target=self._wait, args=(dict(self._devices),), daemon=True).start()

    def _wait(self, devices: Mapping[int, Tuple[int, str]]) -> None:
        while True:
            try:
                event = self._nvml.nvmlEventSetWait_v2(self._set, _WAIT_MS)
            except self._nvml.NVMLError as error:
                if error.value != self._nvml.NVML_ERROR_TIMEOUT:
                    time.sleep(_PAUSE_S)  # on a lost device each wait fails at once
                continue
            if _address(event.device) in devices:
                self._tell(*devices[_address(event.device)], int(event.eventData))


def _address(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
