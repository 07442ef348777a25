"""This machine as a node: its CPUs, memory and GPUs.

It is separate from the runs on the machine, because asking the GPU driver is slow and its answer does not
change while coach is open.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter

from coach.model.slurm.cluster import GpuCount, Node

PARTITION = "local"


def read_machine() -> Node:
    """The resources of this process: the CPUs of its affinity, the memory of the machine, and the GPUs of the
    NVIDIA driver, if there is one."""
    import psutil

    return Node(
        name=os.uname().nodename.split(".")[0],
        state="idle",
        reason=None,
        partitions=(PARTITION,),
        num_cpus=len(os.sched_getaffinity(0)),
        num_cpus_allocated=0,
        memory_mib=psutil.virtual_memory().total // 2**20,
        memory_allocated_mib=0,
        gpus=_read_gpus(),
    )


def _read_gpus() -> tuple[GpuCount, ...]:
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    names: Counter[str] = Counter()
    try:
        for index in range(pynvml.nvmlDeviceGetCount()):
            name = pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(index))
            names[name.decode("utf-8", "replace") if isinstance(name, bytes) else name] += 1
    except pynvml.NVMLError:
        return ()
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()
    return tuple(GpuCount(name, total, 0) for name, total in names.items())
