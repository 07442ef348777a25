"""Damaged files of the kernel, of file systems and of packages on a node: at most one value is missing."""

from __future__ import annotations

import tempfile
from pathlib import Path

from coach.node.activity import parse_cpu, parse_diskstats, parse_pressure
from coach.node.limits import cpu_quota_of, memory_limit_of, oom_kills_of, read_meminfo_mib
from coach.node.mounts import parse_lustre, parse_mounts, parse_nfs
from coach.node.processes import parse_stat
from coach.node.secret_words import mask_command, mask_text
from coach.node.torch_build import parse_version_file, satisfies
from coach.sources.machine.quota import find_mount, parse_lustre_quota, parse_quota
from tests.fuzz.harness import fuzzed
from tests.fuzz.mutation import damaged_text, words

CPU = "cpu  10132153 290696 3084719 46828483 16683 0 25195 0 175628 0\n"
PRESSURE = (
    "some avg10=0.00 avg60=0.00 avg300=0.00 total=12\nfull avg10=1.00 avg60=0.00 avg300=0.00 total=11\n"
)
DISKS = "   8       0 sda 100 2 3000 4 500 6 7000 8 0 9 10 0 0 0 0\n"
STAT = "12 (a (b) c) S 1 12 12 0 -1 4194304 1 2 3 4 50 60 7 8 20 0 3 0 999 1000 200 18446744073709551615 1 1"
MEMINFO = "MemTotal:       65536000 kB\nMemAvailable:   32768000 kB\n"
CGROUP = "0::/slurm/uid_0/job_17\n3:memory:/slurm/job_17\n"
NFS = "device s:/x mounted on /home with fstype nfs4\n\tbytes: 1 2 3 4 5 6 7 8\n\tREAD: 1 2 3 4 5 6 7 8\n"
LUSTRE = "read_bytes 100 samples [bytes] 4096 4096 409600\nwrite_bytes 5 samples [bytes] 1 2 300\n"
MOUNTS = "s:/x /home nfs4 rw,vers=4.2 0 0\n/dev/sda1 / ext4 rw 0 0\nl@tcp:/l /scratch\\040x lustre rw 0 0\n"
QUOTA = "Disk quotas for user x:\n /dev/a 10 20 30 - 1 2 3 -\n"
LFS = "Disk quotas for usr x (uid 1):\n/scratch [1024]* 2048 4096 - 10 20 30 -\n"
VERSION = "__version__ = '2.6.0+cu124'\ncuda: Optional[str] = '12.4'\nhip = None\n"
MANY_DIGITS = "9" * 5000


@fuzzed(
    damaged_text(CPU),
    damaged_text(PRESSURE),
    damaged_text(DISKS),
    damaged_text(STAT),
    cases=(
        ("cpu ² 1 1 1 1 1", "some total=²", "8 0 sda 1 1 ² 1 1 1 ²", "12 (a) S ²"),
        (CPU, PRESSURE, DISKS, STAT.replace(" 1000 ", " 1000! ")),
    ),
)
def test_counters_of_the_kernel_are_numbers_or_nothing(
    cpu: str, pressure: str, disks: str, stat: str
) -> None:
    parse_cpu(cpu)
    parse_pressure(pressure)
    parse_diskstats(disks, ["sda"])
    parse_stat(12, stat.encode("utf-8", "surrogateescape"))


@fuzzed(
    damaged_text(MEMINFO),
    damaged_text(CGROUP),
    words("1024", "max", "100000 100000", "oom_kill 3"),
    cases=(
        (MEMINFO.replace("65536000", "9" * 400), CGROUP, "9" * 5000),
        (MEMINFO, CGROUP.replace("17", "\0"), "max"),
    ),
)
def test_limits_of_a_node_are_numbers_or_nothing(meminfo: str, cgroups: str, said: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.joinpath("meminfo").write_bytes(meminfo.encode("utf-8", "surrogateescape"))
        read_meminfo_mib(folder / "meminfo")
        for below in ("slurm/uid_0/job_17", "memory/slurm/job_17"):
            (folder / below).mkdir(parents=True)
            for file in ("memory.max", "memory.limit_in_bytes", "memory.events", "cpu.max"):
                (folder / below / file).write_bytes(said.encode("utf-8", "surrogateescape"))
        oom_kills_of(cgroups, folder)
        cpu_quota_of(cgroups, folder)
        memory_limit_of(cgroups, folder)


@fuzzed(
    damaged_text(NFS),
    damaged_text(LUSTRE),
    damaged_text(MOUNTS),
    damaged_text(QUOTA, LFS),
    cases=(
        (NFS, LUSTRE, MOUNTS, QUOTA.replace("10", MANY_DIGITS)),
        (NFS, LUSTRE, MOUNTS, LFS.replace("10", MANY_DIGITS)),
    ),
)
def test_file_systems_are_read(nfs: str, lustre: str, mounts: str, quota: str) -> None:
    parse_mounts(mounts)
    parse_nfs(nfs)
    parse_lustre(lustre, [lustre])
    find_mount("/home/x", mounts)
    repr((parse_quota(quota), parse_lustre_quota(quota)))


@fuzzed(
    damaged_text(VERSION),
    words(">=2.6", "~=2.6,<3", "==2.*"),
    cases=((VERSION, f">={MANY_DIGITS}"), ("", ">=²")),
)
def test_a_package_s_version_is_read(text: str, wanted: str) -> None:
    build = parse_version_file(text)
    repr(build)
    satisfies(text, wanted)
    satisfies("2.6.0", wanted)


SECRET = "hunter2hunter2hunter2"
SAID = (f"--api-key {SECRET}", f"API_TOKEN={SECRET}", f"https://u:{SECRET}@host/x", f"password: '{SECRET}'")


@fuzzed(words(*SAID), cases=("API_TOKEN=", "--api-key"))
def test_secrets_are_struck_from_any_text(text: str) -> None:
    mask_text(text)
    mask_command(text.split())
    assert SECRET not in mask_text(f"{text.replace(SECRET, '')} --token {SECRET}")
