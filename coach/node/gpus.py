"""The job's GPUs through NVML, each field by itself: what one device cannot tell is left out, and said once as a gap.

NVML numbers all devices of the node, or those that the job's cgroup lets it see; records carry the number that CUDA gives a device
within the job, and its UUID, which alone is the same everywhere.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Set, Tuple

_REASONS = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}

Gap = Tuple[str, str, str]
"""what, because, how."""


class Sample(NamedTuple):
    """The GPUs at one time: records without time and node, memory in use per process, and what newly could not be read."""

    records: List[Dict[str, Any]]
    process_memory_mib: Dict[int, float]
    gaps: List[Gap]


class _Device:
    def __init__(self, index: int, handle: Any, uuid: Optional[str], name: Optional[str]) -> None:
        self.index = index
        self.handle = handle
        self.facts = {"gpu": index, "uuid": uuid, "name": name}
        self.unsupported: Set[str] = set()
        self.is_lost = False


class Gpus:
    """The devices of the job. Without a driver there are none, and `gaps` says why."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self.gaps: List[Gap] = []
        self._devices: List[_Device] = []
        self._nvml: Any = None
        try:
            self._nvml = import_module("pynvml")
        except ImportError:
            self._explain_missing_binding()
            return
        try:
            self._nvml.nvmlInit()
            self._devices = self._visible_devices(env)
        except self._nvml.NVMLError as error:
            self._explain_init(error)
            return
        self._fields = self._readers()
        self._compare_with_allotted(env)

    @property
    def num_devices(self) -> int:
        return len(self._devices)

    def sample(self) -> Sample:
        """Read every device once."""
        records: List[Dict[str, Any]] = []
        memory: Dict[int, float] = {}
        gaps: List[Gap] = []
        for device in self._devices:
            values = self._read(device, gaps)
            if device.is_lost:
                continue
            records.append({**device.facts, **values})
            for pid, used_mib in self._process_memory(device).items():
                memory[pid] = memory.get(pid, 0.0) + used_mib
        return Sample(records, memory, gaps)

    def _read(self, device: _Device, gaps: List[Gap]) -> Dict[str, Any]:
        values: Dict[str, Any] = {}
        for field, reader in self._fields.items():
            if field in device.unsupported:
                continue
            try:
                values.update(reader(device.handle))
            except self._nvml.NVMLError as error:
                if self._is_lost(error):
                    if not device.is_lost:
                        gaps.append((f"gpu.{device.index}", f"GPU {device.index}: {error}", _HOW_LOST))
                    device.is_lost = True
                    return {}
                if self._is_unsupported(error):
                    device.unsupported.add(field)
                    gaps.append((f"gpu.{field}", f"GPU {device.index}: {error}", "this device does not tell"))
        device.is_lost = False
        return values

    def _readers(self) -> Dict[str, Callable[[Any], Dict[str, Any]]]:
        nvml = self._nvml
        reasons = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
        reasons = reasons or nvml.nvmlDeviceGetCurrentClocksThrottleReasons  # its name in older versions

        def memory(handle: Any) -> Dict[str, Any]:
            info = nvml.nvmlDeviceGetMemoryInfo(handle)
            return {"memory_used_mib": info.used >> 20, "memory_total_mib": info.total >> 20}

        def event_reasons(handle: Any) -> Dict[str, Any]:
            mask = reasons(handle)
            return {"clocks_event_reasons": [name for bit, name in _REASONS.items() if mask & bit]}

        def one(key: str, call: Callable[[Any], Any]) -> Callable[[Any], Dict[str, Any]]:
            return lambda handle: {key: call(handle)}

        clock = nvml.NVML_CLOCK_SM
        return {
            "utilization": one(
                "utilization_pct", lambda handle: nvml.nvmlDeviceGetUtilizationRates(handle).gpu
            ),
            "memory": memory,
            "power": one("power_w", lambda handle: nvml.nvmlDeviceGetPowerUsage(handle) / 1000),
            "power_limit": one(
                "power_limit_w", lambda handle: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000
            ),
            "temperature": one(
                "temperature_c",
                lambda handle: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
            ),
            "sm_clock": one("sm_clock_mhz", lambda handle: nvml.nvmlDeviceGetClockInfo(handle, clock)),
            "max_sm_clock": one(
                "max_sm_clock_mhz", lambda handle: nvml.nvmlDeviceGetMaxClockInfo(handle, clock)
            ),
            "clocks_event_reasons": event_reasons,
        }

    def _process_memory(self, device: _Device) -> Dict[int, float]:
        if "processes" in device.unsupported:
            return {}
        try:
            found = self._nvml.nvmlDeviceGetComputeRunningProcesses(device.handle)
        except self._nvml.NVMLError as error:
            if self._is_unsupported(error):
                device.unsupported.add("processes")
            return {}
        return {process.pid: process.usedGpuMemory / 2**20 for process in found if process.usedGpuMemory}

    def _visible_devices(self, env: Mapping[str, str]) -> List[_Device]:
        """In CUDA's order: CUDA_VISIBLE_DEVICES holds numbers or UUIDs, and what follows an entry that does not exist is hidden."""
        nvml = self._nvml
        every = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        visible = env.get("CUDA_VISIBLE_DEVICES")
        handles = every
        if visible is not None:
            handles = []
            for entry in visible.split(","):
                handle = self._handle_of(entry.strip(), every)
                if handle is None:
                    break
                handles.append(handle)
            if not handles and every:
                self.gaps.append(
                    ("gpu.utilization", "CUDA_VISIBLE_DEVICES hides every GPU", "ask for GPUs with --gpus")
                )
        if not every:
            self.gaps.append(("gpu.utilization", "NVML sees no GPU", "ask for GPUs with --gpus"))
        return [
            _Device(
                index,
                handle,
                self._text(nvml.nvmlDeviceGetUUID, handle),
                self._text(nvml.nvmlDeviceGetName, handle),
            )
            for index, handle in enumerate(handles)
        ]

    def _handle_of(self, entry: str, every: List[Any]) -> Any:
        if entry.isdigit():
            return every[int(entry)] if int(entry) < len(every) else None
        if entry.startswith("MIG-"):
            try:
                return self._nvml.nvmlDeviceGetHandleByUUID(entry.encode())
            except self._nvml.NVMLError:
                return None
        for handle in every:
            # CUDA takes any beginning of a UUID that is long enough to be unique.
            if entry and (self._text(self._nvml.nvmlDeviceGetUUID, handle) or "").startswith(entry):
                return handle
        return None

    def _compare_with_allotted(self, env: Mapping[str, str]) -> None:
        allotted = env.get("SLURM_GPUS_ON_NODE", "")
        if self._devices and allotted.isdigit() and int(allotted) > len(self._devices):
            self.gaps.append(
                (
                    "gpu.utilization",
                    f"{len(self._devices)} of the job's {allotted} GPUs on this node are visible to the sampler",
                    "one task per node sees all of them: --ntasks-per-node=1, no --gpus-per-task",
                )
            )

    def _text(self, call: Callable[[Any], Any], handle: Any) -> Optional[str]:
        try:
            value = call(handle)
        except self._nvml.NVMLError:
            return None
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)

    def _is_lost(self, error: Any) -> bool:
        return bool(error.value == self._nvml.NVML_ERROR_GPU_IS_LOST)

    def _is_unsupported(self, error: Any) -> bool:
        nvml = self._nvml
        return error.value in (
            nvml.NVML_ERROR_NOT_SUPPORTED,
            nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
            nvml.NVML_ERROR_NO_PERMISSION,
        )

    def _explain_missing_binding(self) -> None:
        missing = f"pynvml missing in {sys.executable}"
        if os.path.exists("/dev/nvidiactl"):  # noqa: PTH110 (no path is kept)
            self.gaps.append(("gpu.utilization", missing, f"{sys.executable} -m pip install nvidia-ml-py"))
        else:
            what, because, how = _NO_DRIVER
            self.gaps.append((what, f"{missing}, and {because}", how))

    def _explain_init(self, error: Any) -> None:
        nvml = self._nvml
        if error.value in (nvml.NVML_ERROR_LIBRARY_NOT_FOUND, nvml.NVML_ERROR_DRIVER_NOT_LOADED):
            self.gaps.append(_NO_DRIVER)
        else:
            self.gaps.append(("gpu.utilization", f"NVML: {error}", "`nvidia-smi` on this node tells more"))


_NO_DRIVER: Gap = (
    "gpu.utilization",
    "no NVIDIA driver",
    "run on a node with NVIDIA GPUs and their driver; in a container, pass the driver in (--nv)",
)
_HOW_LOST = "the driver lost the device: leave this node out (--exclude) and tell its administrators"
