"""The NVIDIA driver of this node, as NVML reports it: its version, the CUDA that it supports, its number of
GPUs.

A separate process asks through ctypes. A driver in trouble hangs its caller, the training would inherit
descriptors that NVML opens, and not every environment has the binding.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, NamedTuple, Optional

_LIMIT_S = 3.0
_PROC_VERSION = Path("/proc/driver/nvidia/version")


class Driver(NamedTuple):
    """Facts about the driver; None: not reported."""

    version: Optional[str] = None
    cuda: Optional[str] = None
    """The newest CUDA that it supports, `12.8`."""
    num_gpus: Optional[int] = None


def ask_driver() -> Driver:
    """Ask NVML, for at most a few seconds. Without NVML read the kernel module's own file."""
    said = _ask_nvml()
    cuda = said.get("cuda")
    version = said.get("version") or _kernel_module_version()
    return Driver(version, f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None, said.get("num_gpus"))


def _ask_nvml() -> Dict[str, Any]:
    argv = [sys.executable, "-I", "-S", __file__]
    null = subprocess.DEVNULL
    try:
        process = subprocess.Popen(argv, stdin=null, stdout=subprocess.PIPE, stderr=null)
        try:
            output, _ = process.communicate(timeout=_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()  # not waited for: a process that hangs in the driver does not end even now
            return {}
        value = json.loads(output)
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _kernel_module_version() -> Optional[str]:
    try:
        found = re.search(r"\b(\d{3,}\.\d+(?:\.\d+)?)\b", _PROC_VERSION.read_text(errors="replace"))
    except OSError:
        return None
    return found[1] if found else None


def _read_nvml() -> Dict[str, Any]:
    import ctypes  # only here: a Python may have been built without ctypes

    nvml = ctypes.CDLL("libnvidia-ml.so.1")
    if nvml.nvmlInit_v2() != 0:
        return {}
    text, number = ctypes.create_string_buffer(96), ctypes.c_int()
    said: Dict[str, Any] = {}
    if nvml.nvmlSystemGetDriverVersion(text, ctypes.c_uint(len(text))) == 0:
        said["version"] = text.value.decode("utf-8", "replace")
    # The `_v2` call asks libcuda, which in a container may be newer than the kernel module. Drivers before
    # CUDA 10.2 lack the call.
    ask_cuda = getattr(nvml, "nvmlSystemGetCudaDriverVersion_v2", None)
    if ask_cuda is not None and ask_cuda(ctypes.byref(number)) == 0:
        said["cuda"] = number.value
    if nvml.nvmlDeviceGetCount_v2(ctypes.byref(number)) == 0:
        said["num_gpus"] = number.value
    return said


if __name__ == "__main__":
    try:
        print(json.dumps(_read_nvml()))
    except (ImportError, OSError, AttributeError):  # the library is missing, or lacks a function
        print("{}")
