"""What a job may use: cgroups of both versions, Slurm's word, and the machine."""

from __future__ import annotations

import os
from pathlib import Path

from coach.node import limits
from coach.node.processes import parse_stat


def test_slurm_and_the_machine_limit_cpus_and_memory(tmp_path: Path) -> None:
    affinity = len(os.sched_getaffinity(0))
    total_mib = limits.read_meminfo_mib("MemTotal")
    assert limits.allotted_cpus(os.getpid(), {}, tmp_path) == affinity
    assert limits.allotted_cpus(os.getpid(), {"SLURM_CPUS_ON_NODE": "1"}, tmp_path) == 1
    assert limits.memory_limit_mib(os.getpid(), {}, tmp_path) == total_mib
    assert limits.memory_limit_mib(os.getpid(), {"SLURM_MEM_PER_NODE": "64"}, tmp_path) == 64


def test_the_affinity_of_one_task_is_not_what_all_tasks_of_the_step_have(tmp_path: Path) -> None:
    step = {"SLURM_CPUS_ON_NODE": "512", "SLURM_STEP_TASKS_PER_NODE": "4(x2)"}
    assert limits.allotted_cpus(os.getpid(), step, tmp_path) == 512


def test_a_cgroup_limits_memory_and_cpus(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text(f"{256 * 2**20}\n")
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    for controller in ("memory", "cpu"):
        (tmp_path / controller).mkdir()
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("-1\n")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    if any(line.startswith("0::") for line in Path("/proc/self/cgroup").read_text().splitlines()):
        assert limits.memory_limit_mib(os.getpid(), {}, tmp_path) == 256
        assert limits.allotted_cpus(os.getpid(), {}, tmp_path) == 1
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text(f"{128 * 2**20}\n")
    if any(":memory:" in line for line in Path("/proc/self/cgroup").read_text().splitlines()):
        assert limits.memory_limit_mib(os.getpid(), {}, tmp_path) == 128


def test_a_process_name_cannot_forge_its_stat() -> None:
    fields = " ".join(str(number) for number in range(4, 53))
    stat = parse_stat(9, f"9 (x) S 1 (y) R {fields}".encode())
    assert stat is not None
    assert (stat.name, stat.parent) == ("x) S 1 (y", 4)
    assert parse_stat(9, b"9 (gone) Z 1 2") is None
    assert parse_stat(9, b"") is None
