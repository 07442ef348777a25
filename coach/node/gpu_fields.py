"""Values that NVML reports for one device: tables of readers, each of which succeeds or fails on its own.

Encoder, decoder and display are left out on purpose: no training uses them.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Tuple, Union

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
_COMPUTE_MODES = {0: "default", 1: "exclusive_thread", 2: "prohibited", 3: "exclusive_process"}
_ALL_LINKS = 0xFFFFFFFF

Values = Dict[Any, Any]
"""By field name; for processes, by pid."""


class Scope(Enum):
    """The meaning of a value on a GPU that is divided into MIG instances."""

    INSTANCE = 1
    """Each instance has its own value."""
    SHARED = 2
    """One value of the whole device holds for all instances, such as its temperature."""
    WHOLE = 3
    """A sum over all instances, from which no instance's share can be derived."""


class Field(NamedTuple):
    """One query to NVML. The reader takes a device handle."""

    name: str
    read: Callable[[Any], Values]
    scope: Scope
    is_optional: bool = False
    """True for hardware that many devices lack, such as NVLink: its absence is not reported as a gap."""


def of_every_sample(nvml: Any) -> List[Field]:
    """Values that change all the time and are fast to read."""

    def ask_reasons(handle: Any) -> int:
        try:
            mask: int = nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
        except (AttributeError, nvml.NVMLError_FunctionNotFound):  # the name in older bindings and drivers
            mask = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
        return mask

    def utilization(handle: Any) -> Values:
        rates = nvml.nvmlDeviceGetUtilizationRates(handle)
        return {"utilization_pct": rates.gpu, "memory_utilization_pct": rates.memory}

    def memory(handle: Any) -> Values:
        info = nvml.nvmlDeviceGetMemoryInfo(handle)
        return {"memory_used_mib": info.used >> 20, "memory_total_mib": info.total >> 20}

    def reasons(handle: Any) -> Values:
        mask = ask_reasons(handle)
        return {"clocks_event_reasons": [name for bit, name in _REASONS.items() if mask & bit]}

    def clocks(handle: Any) -> Values:
        return {
            "sm_clock_mhz": nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
            "memory_clock_mhz": nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
        }

    return [
        Field("utilization", utilization, Scope.INSTANCE),
        Field("memory", memory, Scope.INSTANCE),
        Field("power", lambda gpu: {"power_w": nvml.nvmlDeviceGetPowerUsage(gpu) / 1000}, Scope.WHOLE),
        Field(
            "temperature",
            lambda gpu: {"temperature_c": nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU)},
            Scope.SHARED,
        ),
        Field(
            "memory_temperature",
            lambda gpu: _field_values(nvml, gpu, {"memory_temperature_c": nvml.NVML_FI_DEV_MEMORY_TEMP}),
            Scope.SHARED,
            is_optional=True,
        ),
        Field("clocks", clocks, Scope.SHARED),
        Field("clocks_event_reasons", reasons, Scope.SHARED),
    ]


def of_limits(nvml: Any) -> List[Field]:
    """Limits for the values of each sample. They are read now and then, and written with each sample."""

    def max_clocks(handle: Any) -> Values:
        return {
            "max_sm_clock_mhz": nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM),
            "max_memory_clock_mhz": nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_MEM),
        }

    return [
        Field(
            "power_limit",
            lambda gpu: {"power_limit_w": nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1000},
            Scope.WHOLE,
        ),
        Field("max_clocks", max_clocks, Scope.SHARED),
    ]


def of_links(nvml: Any) -> List[Field]:
    """PCIe and NVLink. `nvlink_…_kib` are counters; the caller turns them into rates."""

    def pcie(handle: Any) -> Values:
        return {
            "pcie_generation": nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle),
            "max_pcie_generation": nvml.nvmlDeviceGetMaxPcieLinkGeneration(handle),
            "pcie_width": nvml.nvmlDeviceGetCurrPcieLinkWidth(handle),
            "max_pcie_width": nvml.nvmlDeviceGetMaxPcieLinkWidth(handle),
        }

    def pcie_throughput(handle: Any) -> Values:
        # The driver watches each counter for 20 ms, while the caller waits.
        return {
            f"pcie_{way}_mib_s": round(nvml.nvmlDeviceGetPcieThroughput(handle, counter) / 1024, 1)
            for way, counter in (("tx", nvml.NVML_PCIE_UTIL_TX_BYTES), ("rx", nvml.NVML_PCIE_UTIL_RX_BYTES))
        }

    return [
        Field("PCIe link", pcie, Scope.SHARED),
        Field(
            "PCIe replays",
            lambda gpu: {"pcie_replays": nvml.nvmlDeviceGetPcieReplayCounter(gpu)},
            Scope.SHARED,
        ),
        Field("PCIe throughput", pcie_throughput, Scope.WHOLE),
        *_of_nvlink(nvml),
    ]


def _of_nvlink(nvml: Any) -> List[Field]:
    def nvlinks(handle: Any) -> Values:
        states = [nvml.nvmlDeviceGetNvLinkState(handle, 0)]
        try:
            while len(states) < nvml.NVML_NVLINK_MAX_LINKS:
                states.append(nvml.nvmlDeviceGetNvLinkState(handle, len(states)))
        except nvml.NVMLError:
            pass  # the device has no further links
        return {"num_nvlinks": len(states), "num_active_nvlinks": sum(map(bool, states))}

    def nvlink_errors(handle: Any) -> Values:
        found = _field_values(
            nvml,
            handle,
            {
                "crc_flit": nvml.NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL,
                "crc_data": nvml.NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL,
                "nvlink_replays": nvml.NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL,
                "nvlink_recoveries": nvml.NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL,
            },
        )
        crc = [found.pop(name) for name in ("crc_flit", "crc_data") if name in found]
        return {**found, "nvlink_crc_errors": sum(crc)} if crc else found

    def nvlink_traffic(handle: Any) -> Values:
        return _field_values(
            nvml,
            handle,
            {
                "nvlink_tx_kib": (nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, _ALL_LINKS),
                "nvlink_rx_kib": (nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, _ALL_LINKS),
            },
        )

    return [
        Field("NVLink", nvlinks, Scope.SHARED, is_optional=True),
        Field("NVLink errors", nvlink_errors, Scope.SHARED, is_optional=True),
        Field("NVLink throughput", nvlink_traffic, Scope.WHOLE, is_optional=True),
    ]


def of_health(nvml: Any) -> List[Field]:
    """Memory errors, memory remapped because of them, temperature limits, and modes."""

    def ecc(handle: Any) -> Values:
        if not nvml.nvmlDeviceGetEccMode(handle)[0]:
            return {"has_ecc": False}
        values: Values = {"has_ecc": True}
        for kept, counter in (("volatile", nvml.NVML_VOLATILE_ECC), ("aggregate", nvml.NVML_AGGREGATE_ECC)):
            for what, error in (
                ("corrected", nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
                ("uncorrected", nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
            ):
                values[f"ecc_{kept}_{what}"] = nvml.nvmlDeviceGetTotalEccErrors(handle, error, counter)
        return values

    def rows(handle: Any) -> Values:
        corrected, uncorrected, is_pending, has_failed = nvml.nvmlDeviceGetRemappedRows(handle)
        return {
            "remapped_rows_corrected": corrected,
            "remapped_rows_uncorrected": uncorrected,
            "is_row_remap_pending": bool(is_pending),
            "has_row_remap_failed": bool(has_failed),
        }

    def pages(handle: Any) -> Values:
        found = _field_values(
            nvml,
            handle,
            {
                "retired_pages_single_bit": nvml.NVML_FI_DEV_RETIRED_SBE,
                "retired_pages_double_bit": nvml.NVML_FI_DEV_RETIRED_DBE,
                "is_page_retirement_pending": nvml.NVML_FI_DEV_RETIRED_PENDING,
            },
        )
        pending = "is_page_retirement_pending"
        return {**found, pending: bool(found[pending])} if pending in found else found

    return [
        Field("ECC", ecc, Scope.SHARED),
        Field("row remapping", rows, Scope.SHARED),
        Field("retired pages", pages, Scope.SHARED, is_optional=True),
        *_of_limits_and_modes(nvml),
    ]


def _of_limits_and_modes(nvml: Any) -> List[Field]:
    def temperature_limits(handle: Any) -> Values:
        values = {}
        for name, threshold in (
            ("shutdown_temperature_c", nvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN),
            ("slowdown_temperature_c", nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN),
            ("max_memory_temperature_c", nvml.NVML_TEMPERATURE_THRESHOLD_MEM_MAX),
            ("max_temperature_c", nvml.NVML_TEMPERATURE_THRESHOLD_GPU_MAX),
        ):
            try:
                values[name] = nvml.nvmlDeviceGetTemperatureThreshold(handle, threshold)
            except nvml.NVMLError as error:
                refused = error
        if not values:
            raise refused
        return values

    def compute_mode(handle: Any) -> Values:
        mode = nvml.nvmlDeviceGetComputeMode(handle)
        return {"compute_mode": _COMPUTE_MODES.get(mode, str(mode))}

    return [
        Field("temperature limits", temperature_limits, Scope.SHARED),
        Field(
            "persistence mode",
            lambda gpu: {"is_persistent": bool(nvml.nvmlDeviceGetPersistenceMode(gpu))},
            Scope.SHARED,
        ),
        Field("compute mode", compute_mode, Scope.SHARED),
        Field(
            "MIG mode",
            lambda gpu: {"is_mig": bool(nvml.nvmlDeviceGetMigMode(gpu)[0])},
            Scope.SHARED,
            is_optional=True,
        ),
    ]


def of_processes(nvml: Any) -> Field:
    """Memory of each process in MiB, by pid."""

    def processes(handle: Any) -> Values:
        # Versioned names first: with a driver older than the binding, the plain one raises no NVMLError.
        try:
            found = nvml.nvmlDeviceGetComputeRunningProcesses_v3(handle)
        except (AttributeError, nvml.NVMLError_FunctionNotFound):
            plain = nvml.nvmlDeviceGetComputeRunningProcesses  # older bindings have only this one
            found = getattr(nvml, "nvmlDeviceGetComputeRunningProcesses_v2", plain)(handle)
        return {process.pid: process.usedGpuMemory / 2**20 for process in found if process.usedGpuMemory}

    return Field("processes", processes, Scope.INSTANCE)


def _field_values(nvml: Any, handle: Any, ids: Mapping[str, Union[int, Tuple[int, int]]]) -> Values:
    """The values that the device has, in one call. Raises the first value's error if it has none."""
    answers = nvml.nvmlDeviceGetFieldValues(handle, list(ids.values()))
    found = {
        name: answer.value.uiVal
        if answer.valueType == nvml.NVML_VALUE_TYPE_UNSIGNED_INT
        else answer.value.ullVal
        for name, answer in zip(ids, answers)  # noqa: B905 (strict= is newer than Python 3.9)
        if answer.nvmlReturn == nvml.NVML_SUCCESS
    }
    if not found:
        raise nvml.NVMLError(answers[0].nvmlReturn)
    return found
