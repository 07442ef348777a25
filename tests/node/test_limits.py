"""The resources that a job may use, by cgroups of both versions, Slurm's variables, and the machine."""

from __future__ import annotations

import mmap
import os
import subprocess
from pathlib import Path

import pytest

from coach.node import limits
from coach.node.processes import parse_stat, read_anonymous_mib
from tests.waiting import wait_until


def test_slurm_and_the_machine_limit_cpus_and_memory(tmp_path: Path) -> None:
    affinity = len(os.sched_getaffinity(0))
    total_mib = limits.read_meminfo_mib()["MemTotal"]
    assert limits.allotted_cpus(os.getpid(), {}, tmp_path) == affinity
    assert limits.allotted_cpus(os.getpid(), {"SLURM_CPUS_ON_NODE": "1"}, tmp_path) == 1
    assert limits.memory_limit_mib(os.getpid(), {}, tmp_path) == total_mib
    assert limits.memory_limit_mib(os.getpid(), {"SLURM_MEM_PER_NODE": "64"}, tmp_path) == 64


def test_the_cpus_of_a_step_are_not_taken_from_one_tasks_affinity(tmp_path: Path) -> None:
    step = {"SLURM_CPUS_ON_NODE": "512", "SLURM_STEP_TASKS_PER_NODE": "4(x2)"}
    assert limits.allotted_cpus(os.getpid(), step, tmp_path) == 512


@pytest.mark.parametrize("is_container", [False, True])
def test_a_cgroup_of_version_2_limits_memory_and_cpus(tmp_path: Path, is_container: bool) -> None:
    step = tmp_path / "system.slice/slurmstepd.scope/job_17/step_0"
    # In a container the path is the host's, and the limiting cgroup is mounted at the root.
    limiting = tmp_path if is_container else step.parent
    limiting.mkdir(parents=True, exist_ok=True)
    (limiting / "memory.max").write_text(f"{256 * 2**20}\n")
    (limiting / "cpu.max").write_text("150000 100000\n")
    if not is_container:
        step.mkdir()
        (step / "memory.max").write_text("max\n")
        (step / "cpu.max").write_text("max 100000\n")
    text = "0::/system.slice/slurmstepd.scope/job_17/step_0\n"
    assert limits.memory_limit_of(text, tmp_path) == 256
    assert limits.cpu_quota_of(text, tmp_path) == 1.5


def test_a_cgroup_of_version_1_limits_memory_and_cpus(tmp_path: Path) -> None:
    text = "9:memory:/slurm/uid_1/job_17\n3:cpuset:/\n2:cpu,cpuacct:/slurm/uid_1\n0::/\n"
    job, cpu = tmp_path / "memory/slurm/uid_1/job_17", tmp_path / "cpu/slurm/uid_1"
    job.mkdir(parents=True)
    cpu.mkdir(parents=True)
    (job / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    (job.parent / "memory.limit_in_bytes").write_text(f"{128 * 2**20}\n")
    (cpu / "cpu.cfs_quota_us").write_text("200000\n")
    (cpu / "cpu.cfs_period_us").write_text("100000\n")
    assert limits.memory_limit_of(text, tmp_path) == 128
    assert limits.cpu_quota_of(text, tmp_path) == 2


def test_no_cgroup_is_no_limit(tmp_path: Path) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu/cpu.cfs_quota_us").write_text("-1\n")
    (tmp_path / "cpu/cpu.cfs_period_us").write_text("100000\n")
    assert limits.memory_limit_of("9:memory:/\n2:cpu:/\n0::/\n", tmp_path) is None
    assert limits.cpu_quota_of("9:memory:/\n2:cpu:/\n0::/\n", tmp_path) is None


@pytest.mark.parametrize(
    ("cgroups", "file", "text"),
    [
        ("0::/job_17/step_0\n", "job_17/step_0/memory.events", "oom 3\noom_kill 2\noom_group_kill 0\n"),
        (
            "9:memory:/job_17/step_0\n2:cpu,cpuacct:/\n0::/\n",
            "memory/job_17/step_0/memory.oom_control",
            "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
        ),
    ],
)
def test_the_kernel_counts_the_processes_that_it_kills_for_memory(
    tmp_path: Path, cgroups: str, file: str, text: str
) -> None:
    assert limits.oom_kills_of(cgroups, tmp_path) is None
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(text)
    assert limits.oom_kills_of(cgroups, tmp_path) == 2


@pytest.mark.memory_cgroup
def test_a_real_cgroup_of_a_real_process_is_found() -> None:
    group = Path("/sys/fs/cgroup/memory") / f"coach-test-{os.getpid()}"
    group.mkdir()
    process = subprocess.Popen(["sleep", "60"])
    try:
        (group / "memory.limit_in_bytes").write_text(str(300 * 2**20))
        (group / "cgroup.procs").write_text(str(process.pid))
        assert limits.memory_limit_mib(process.pid, {}) == 300
    finally:
        process.kill()
        process.wait()
        wait_until(lambda: not (group / "cgroup.procs").read_text(), what="an empty cgroup")
        group.rmdir()


def test_a_process_name_cannot_forge_its_stat() -> None:
    fields = " ".join(str(number) for number in range(4, 53))
    stat = parse_stat(9, f"9 (x) S 1 (y) R {fields}".encode())
    assert stat is not None
    assert (stat.name, stat.parent) == ("x) S 1 (y", 4)
    assert parse_stat(9, b"9 (gone) Z 1 2") is None
    assert parse_stat(9, b"") is None


def test_the_page_cache_of_files_counts_as_free_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "memory.max").write_text(f"{256 * 2**20}\n")
    (tmp_path / "memory.current").write_text(f"{200 * 2**20}\n")
    (tmp_path / "memory.stat").write_text(f"anon 1\ninactive_file {30 * 2**20}\n")
    monkeypatch.setattr(limits, "_cgroups_of", lambda pid: "0::/job_17")
    assert limits.memory_left_mib(os.getpid(), {}, tmp_path) == 86
    assert limits.memory_left_mib(os.getpid(), {"SLURM_MEM_PER_NODE": "64"}, tmp_path) == 64
    (tmp_path / "memory.max").write_text("max\n")
    left_mib = limits.memory_left_mib(os.getpid(), {}, tmp_path)
    assert left_mib is not None
    assert left_mib > 256


@pytest.mark.parametrize(
    ("slurm", "request_mib"),
    [
        ({"SLURM_MEM_PER_NODE": "600"}, 600),
        ({"SLURM_MEM_PER_CPU": "300", "SLURM_JOB_CPUS_PER_NODE": "1,2(x99)"}, 600),
        ({"SLURM_MEM_PER_NODE": "0"}, None),
        ({}, None),
        ({"SLURM_MEM_PER_GPU": "600"}, None),
        ({"SLURM_MEM_PER_NODE": "600", "SLURM_JOB_CPUS_PER_NODE": "1,4"}, None),
        ({"SLURM_MEM_PER_NODE": "600", "SLURM_JOB_CPUS_PER_NODE": ""}, None),
        ({"SLURM_MEM_PER_NODE": "600", "SLURMD_NODENAME": None}, None),
    ],
    ids=["mem", "mem-per-cpu", "mem-0", "none", "mem-per-gpu", "all-cores", "unknown", "login-node"],
)
def test_the_request_of_a_job_is_known_unless_it_may_have_the_whole_node(
    slurm: dict[str, str | None], request_mib: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    (tmp_path / "cpu0/topology").mkdir(parents=True)
    (tmp_path / "cpu0/topology/thread_siblings").write_text("00000000,00000011\n")
    env = {"SLURMD_NODENAME": "node1", "SLURM_JOB_CPUS_PER_NODE": "2(x3)", **slurm}
    told = {name: value for name, value in env.items() if value is not None}
    assert limits.memory_request_mib(told, tmp_path) == request_mib


def test_a_data_set_that_is_mapped_from_a_file_is_no_anonymous_memory(tmp_path: Path) -> None:
    path, pid = tmp_path / "data.bin", os.getpid()
    path.write_bytes(bytes(64 * 2**20))
    before = read_anonymous_mib(pid)
    assert before is not None
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        assert not any(data[place] for place in range(0, len(data), 4096))
        mapped = read_anonymous_mib(pid)
    loaded = bytearray(b"x") * (64 * 2**20)
    grown = read_anonymous_mib(pid)
    del loaded
    assert mapped is not None
    assert grown is not None
    assert mapped - before < 32 < grown - before
    assert read_anonymous_mib(2**22 + 1) is None
