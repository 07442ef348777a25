"""The job's limits on this node: CPUs from affinity, cgroup and Slurm; memory from cgroup, Slurm and the
machine.

Each source reports too much in some set-up (no cgroup, no task affinity, no Slurm), so the smallest reported
value counts.
"""

from __future__ import annotations

import math
import os
import re
from pathlib import Path
from typing import Dict, Iterator, Mapping, Optional, Tuple

from coach.node.counters import is_number
from coach.trusted import read_small

# Version 1 reports "no limit" as a number near 2^63.
_NO_LIMIT = 1 << 60
_CPUS = Path("/sys/devices/system/cpu")
_HEX = re.compile(r"[0-9a-f]{1,2048}")
_MEMORY_FILES = {"": "memory.max", "memory": "memory.limit_in_bytes"}
_EVENT_FILES = {"": "memory.events", "memory": "memory.oom_control"}
_USED_FILES = {"": "memory.current", "memory": "memory.usage_in_bytes"}


def allotted_cpus(pid: int, env: Mapping[str, str], cgroup_root: Path = Path("/sys/fs/cgroup")) -> int:
    """How many CPUs the job has on this node."""
    on_node = _number(env.get("SLURM_CPUS_ON_NODE"))
    if on_node and _has_several_tasks(env):
        return on_node  # the affinity of one task covers only a part of the job's CPUs
    counts = [len(os.sched_getaffinity(pid))]
    if on_node:
        counts.append(on_node)
    quota = cpu_quota_of(_cgroups_of(pid), cgroup_root)
    if quota is not None:
        counts.append(max(1, math.ceil(quota)))
    return min(counts)


def memory_limit_mib(
    pid: int, env: Mapping[str, str], cgroup_root: Path = Path("/sys/fs/cgroup")
) -> Optional[float]:
    """Memory in MiB that the job may use on this node; None if not even the machine's memory is known."""
    limits = []
    total = read_meminfo_mib().get("MemTotal")
    if total is not None:
        limits.append(total)
    per_node, per_cpu = _number(env.get("SLURM_MEM_PER_NODE")), _number(env.get("SLURM_MEM_PER_CPU"))
    on_node = _number(env.get("SLURM_CPUS_ON_NODE"))
    if per_node:
        limits.append(float(per_node))
    elif per_cpu and on_node:
        limits.append(float(per_cpu * on_node))
    of_cgroup = memory_limit_of(_cgroups_of(pid), cgroup_root)
    if of_cgroup is not None:
        limits.append(of_cgroup)
    return min(limits) if limits else None


def memory_request_mib(env: Mapping[str, str], cpu_root: Path = _CPUS) -> Optional[float]:
    """Memory in MiB that Slurm reserved for the job on one node. None outside of a job, with --mem=0 and
    --mem-per-gpu, and for a job with all cores of the node: its memory may be a default of the site, and no
    other job is beside it.

    The CPUs are those of the job, because a step may have fewer. If the job has different numbers of CPUs on
    its nodes, the largest one counts, so that no request is understated.
    """
    words = re.findall(r"\d{1,9}(?!\d|\))", env.get("SLURM_JOB_CPUS_PER_NODE", ""))
    if not words or "SLURMD_NODENAME" not in env:
        return None
    most = max(map(int, words))
    siblings = read_small(cpu_root / "cpu0/topology/thread_siblings").replace(",", "")
    threads_per_core = bin(int(siblings, 16)).count("1") if _HEX.fullmatch(siblings) else 1
    if most >= (os.cpu_count() or 1) / max(1, threads_per_core):
        return None
    per_node, per_cpu = _number(env.get("SLURM_MEM_PER_NODE")), _number(env.get("SLURM_MEM_PER_CPU"))
    if per_node:
        return float(per_node)
    return float(per_cpu * most) if per_cpu else None


def memory_left_mib(
    pid: int, env: Mapping[str, str], cgroup_root: Path = Path("/sys/fs/cgroup")
) -> Optional[float]:
    """Memory in MiB that one more process of the job may use on this node; None if unknown.

    The file cache counts as free, because the kernel gives it up first. All of Slurm's own limit counts as
    free: the job's other processes have ended by the time of this call.
    """
    found = [read_meminfo_mib().get("MemAvailable"), memory_limit_mib(pid, env, cgroup_root)]
    for controller, directory in _directories(_cgroups_of(pid), cgroup_root):
        if controller in _MEMORY_FILES:
            found.append(_left_in(controller, directory))
    return min((each for each in found if each is not None), default=None)


def num_oom_kills(pid: int) -> Optional[int]:
    """Number of processes in this process's cgroup that the kernel killed for lack of memory; None if no
    cgroup counts them. Linux 4.13 and newer do."""
    return oom_kills_of(_cgroups_of(pid), Path("/sys/fs/cgroup"))


def oom_kills_of(cgroups: str, root: Path) -> Optional[int]:
    """The same for the cgroups that /proc/PID/cgroup lists."""
    for controller, directory in _directories(cgroups, root):
        text = read_small(directory / _EVENT_FILES[controller]) if controller in _EVENT_FILES else ""
        counts = dict(line.split(" ", 1) for line in text.splitlines() if " " in line)
        if is_number(counts.get("oom_kill", "")):
            return int(counts["oom_kill"])
    return None


def _left_in(controller: str, directory: Path) -> Optional[float]:
    limit = read_small(directory / _MEMORY_FILES[controller])
    used = read_small(directory / _USED_FILES[controller])
    if not (is_number(limit) and is_number(used)) or int(limit) >= _NO_LIMIT:
        return None
    cache = 0
    for line in read_small(directory / "memory.stat").splitlines():
        name, _, rest = line.partition(" ")
        if name == ("total_inactive_file" if controller else "inactive_file") and is_number(rest):
            cache = int(rest)
    return (int(limit) - int(used) + cache) / 2**20


def cpu_quota_of(cgroups: str, root: Path) -> Optional[float]:
    """The smallest quota, in CPUs, of a process's cgroups and of all their parents. `cgroups` is the text of
    /proc/PID/cgroup."""
    quotas = [_cpu_quota(controller, directory) for controller, directory in _directories(cgroups, root)]
    return min((quota for quota in quotas if quota is not None), default=None)


def memory_limit_of(cgroups: str, root: Path) -> Optional[float]:
    """The smallest memory limit of a process's cgroups, in MiB."""
    found = []
    for controller, directory in _directories(cgroups, root):
        text = read_small(directory / _MEMORY_FILES[controller]) if controller in _MEMORY_FILES else ""
        if is_number(text) and int(text) < _NO_LIMIT:
            found.append(int(text) / 2**20)
    return min(found, default=None)


def read_meminfo_mib(path: Path = Path("/proc/meminfo")) -> Dict[str, float]:
    """The machine's memory values in MiB, for example MemTotal and MemAvailable."""
    found: Dict[str, float] = {}
    for line in read_small(path).splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if len(words) == 2 and is_number(words[0]):
            found[name] = int(words[0]) / 1024
    return found


def _cgroups_of(pid: int) -> str:
    return read_small(f"/proc/{pid}/cgroup")


def _directories(cgroups: str, root: Path) -> Iterator[Tuple[str, Path]]:
    """(controller, directory) of the process's cgroups and all their parents; the controller is empty for
    version 2.

    In a container the path may be the host's, while only its cgroup is mounted here, as the root. Then the
    root holds the limits.
    """
    for line in cgroups.splitlines():
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
        quota, _, period = (read_small(directory / "cpu.max") or "max").partition(" ")
    elif controller == "cpu":
        quota = read_small(directory / "cpu.cfs_quota_us") or "-1"
        period = read_small(directory / "cpu.cfs_period_us")
    else:
        return None
    return int(quota) / int(period) if is_number(quota) and is_number(period) and int(period) else None


def _has_several_tasks(env: Mapping[str, str]) -> bool:
    tasks = env.get("SLURM_STEP_TASKS_PER_NODE") or env.get("SLURM_NTASKS_PER_NODE") or "1"
    return tasks.split("(")[0].split(",")[0] != "1"


def _number(text: Optional[str]) -> Optional[int]:
    return int(text) if text and is_number(text) and int(text) > 0 else None
