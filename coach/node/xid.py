"""Xid events: errors of a GPU, reported by the driver when they happen.

NVML reports them only to a caller that waits, so a thread of its own waits. It is not the thread that reads
values: a device with an Xid may no longer answer reads.
"""

from __future__ import annotations

import ctypes
import threading
import time
from typing import Any, Callable, Dict, Mapping, Tuple

_WAIT_MS = 10_000
_PAUSE_S = 10.0


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
