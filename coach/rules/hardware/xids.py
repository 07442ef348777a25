"""The meaning of NVIDIA's Xid numbers, and the set of those that the program mostly causes itself."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from coach.model.judging.finding import Fix

MEANING: Mapping[int, str] = MappingProxyType(
    {
        8: "a kernel ran too long",
        13: "an exception in the graphics engine",
        31: "a memory page fault",
        43: "the GPU stopped processing for this program",
        45: "the program's channel was cleaned up after another error",
        48: "a double-bit ECC error",
        61: "a breakpoint of the internal micro-controller",
        62: "a halt of the internal micro-controller",
        63: "a row of memory was remapped",
        64: "a row of memory could not be remapped",
        69: "an exception in the graphics engine's class",
        74: "an NVLink error",
        79: "the GPU has fallen off the bus",
        92: "a high rate of single-bit ECC errors",
        94: "a contained ECC error",
        95: "an uncontained ECC error",
        109: "a context switch timed out",
        119: "the GPU's system processor did not answer",
        120: "an error of the GPU's system processor",
        140: "an unrecovered ECC error",
    }
)
OF_THE_PROGRAM = frozenset({8, 13, 31, 43, 45, 69, 109})
FIND_THE_KERNEL = Fix(
    "Run once with CUDA_LAUNCH_BLOCKING=1: the traceback then shows the line of the failing kernel",
    {"env": {"CUDA_LAUNCH_BLOCKING": "1"}},
)


def report(number: int) -> str:
    """What the driver reported, with its meaning."""
    whose = " (mostly the program's own doing)" if number in OF_THE_PROGRAM else ""
    meaning = f": {MEANING[number]}{whose}" if number in MEANING else ""
    return f"NVIDIA driver reported Xid {number}{meaning}"
