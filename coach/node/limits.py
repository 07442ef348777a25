"""What the job may use of this node: CPUs from affinity, cgroup and Slurm; memory from cgroup, Slurm and the machine.

Each says less than the truth in some set-up (no cgroup, no task affinity, no Slurm), so the least of those that speak counts.
"""

from __future__ import annotations

import contextlib
import math
import os
from pathlib import Path
from typing import Iterator, Mapping, Optional, Tuple

# Version 1 says "no limit" with a number near 2^63.
_NO_LIMIT = 1 << 60


def allotted_cpus(pid: int, env: Mapping[str, str], cgroup_root: Path = Path("/sys/fs/cgroup")) -> int:
    """How many CPUs the job has on this node."""
    on_node = _number(env.get("SLURM_CPUS_ON_NODE"))
    if on_node and _has_several_tasks(env):
        return on_node  # the affinity of one task is a part of the job's
    counts = [len(os.sched_getaffinity(pid))]
    if on_node:
        counts.append(on_node)
    for controller, directory in _cgroups(pid, cgroup_root):
        quota = _cpu_quota(controller, directory)
        if quota is not None:
            counts.append(max(1, math.ceil(quota)))
    return min(counts)


def memory_limit_mib(
    pid: int, env: Mapping[str, str], cgroup_root: Path = Path("/sys/fs/cgroup")
) -> Optional[float]:
    """How much memory the job may use on this node; None when not even the machine's is known."""
    limits = []
    total = read_meminfo_mib("MemTotal")
    if total is not None:
        limits.append(total)
    per_node, per_cpu = _number(env.get("SLURM_MEM_PER_NODE")), _number(env.get("SLURM_MEM_PER_CPU"))
    on_node = _number(env.get("SLURM_CPUS_ON_NODE"))
    if per_node:
        limits.append(float(per_node))
    elif per_cpu and on_node:
        limits.append(float(per_cpu * on_node))
    for controller, directory in _cgroups(pid, cgroup_root):
        name = (
            "memory.max" if controller == "" else "memory.limit_in_bytes" if controller == "memory" else None
        )
        text = _text(directory / name) if name else None
        if text is not None and text.isdigit() and int(text) < _NO_LIMIT:
            limits.append(int(text) / 2**20)
    return min(limits) if limits else None


def read_meminfo_mib(key: str) -> Optional[float]:
    """One value of /proc/meminfo, for example MemAvailable."""
    with contextlib.suppress(OSError, ValueError), open("/proc/meminfo", "rb") as file:
        for line in file:
            if line.startswith(key.encode() + b":"):
                return int(line.split()[1]) / 1024
    return None


def _cgroups(pid: int, root: Path) -> Iterator[Tuple[str, Path]]:
    """(controller, directory) of the process's cgroups and all above them; the controller is empty for version 2.

    Inside a container the path may be the host's, of which only the root is mounted here: then the root is what limits.
    """
    for line in (_text(Path(f"/proc/{pid}/cgroup")) or "").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        for controller in controllers.split(","):
            if controller not in ("", "cpu", "memory"):
                continue
            base = root / controller if controller else root
            directory = base / path.lstrip("/")
            while directory != base:
                yield controller, directory
                directory = directory.parent
            yield controller, base


def _cpu_quota(controller: str, directory: Path) -> Optional[float]:
    if controller == "":
        quota, _, period = (_text(directory / "cpu.max") or "max").partition(" ")
    elif controller == "cpu":
        quota = _text(directory / "cpu.cfs_quota_us") or "-1"
        period = _text(directory / "cpu.cfs_period_us") or ""
    else:
        return None
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) else None


def _has_several_tasks(env: Mapping[str, str]) -> bool:
    tasks = env.get("SLURM_STEP_TASKS_PER_NODE") or env.get("SLURM_NTASKS_PER_NODE") or "1"
    return tasks.split("(")[0].split(",")[0] != "1"


def _number(text: Optional[str]) -> Optional[int]:
    return int(text) if text and text.isdigit() and int(text) > 0 else None


def _text(path: Path) -> Optional[str]:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return None
