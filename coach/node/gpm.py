"""GPM: how busy the multiprocessors of a Hopper or newer GPU were between two looks. Opt-in, because all
users share the counters.

Utilization reports only that some kernel ran. These counters report how much of the device it used.
"""

from __future__ import annotations

from typing import Any, Dict

GPM_HELP = "also SM, tensor and DRAM activity, from counters that profilers use too (Hopper or newer)"


class Gpm:
    """The counters of one device or MIG instance. Raises NVMLError if it has none."""

    def __init__(self, nvml: Any, handle: Any, whole: Any = None) -> None:
        self._nvml = nvml
        self._names = {
            nvml.NVML_GPM_METRIC_SM_UTIL: "sm_activity_pct",
            nvml.NVML_GPM_METRIC_SM_OCCUPANCY: "sm_occupancy_pct",
            nvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL: "tensor_activity_pct",
            nvml.NVML_GPM_METRIC_DRAM_BW_UTIL: "dram_activity_pct",
        }
        self._device = handle if whole is None else whole
        self._instance = None if whole is None else nvml.nvmlDeviceGetGpuInstanceId(handle)
        if not nvml.nvmlGpmQueryDeviceSupport(self._device).isSupportedDevice:
            raise nvml.NVMLError(nvml.NVML_ERROR_NOT_SUPPORTED)
        self._question = nvml.c_nvmlGpmMetricsGet_t()
        self._question.version = nvml.NVML_GPM_METRICS_GET_VERSION
        self._question.numMetrics = len(self._names)
        for place, metric in enumerate(self._names):
            self._question.metrics[place].metricId = metric
        self._older, self._newer = nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()
        self._has_older = False

    def read(self, _: Any = None) -> Dict[str, Any]:
        """Values since the last call; empty at the first."""
        nvml = self._nvml
        if self._instance is None:
            nvml.nvmlGpmSampleGet(self._device, self._newer)
        else:
            nvml.nvmlGpmMigSampleGet(self._device, self._instance, self._newer)
        self._older, self._newer = self._newer, self._older
        if not self._has_older:
            self._has_older = True
            return {}
        self._question.sample1, self._question.sample2 = self._newer, self._older
        nvml.nvmlGpmMetricsGet(self._question)
        answers = self._question.metrics[: len(self._names)]
        return {
            self._names[answer.metricId]: round(answer.value, 1)
            for answer in answers
            if answer.nvmlReturn == nvml.NVML_SUCCESS and answer.value == answer.value
        }
