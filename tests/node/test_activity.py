"""The activity of a node around the job: from real files of /proc and /sys if this machine has them, else
from texts in the kernel's formats."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from coach.node import activity, mounts
from coach.node.activity import Activity, Ports
from coach.node.counters import Rates
from coach.node.mounts import Mounts


def test_the_node_of_this_test_is_busy_and_has_memory(tmp_path: Path) -> None:
    node = Activity()
    node.sample(time.monotonic())
    until = time.monotonic() + 0.3
    while time.monotonic() < until:
        tmp_path.stat()
    seen = node.sample(time.monotonic())
    assert 0 < seen["node_cpu_pct"] <= 100
    assert 0 < seen["node_memory_used_mib"] < seen["node_memory_total_mib"]
    assert 0 <= seen["shared_memory_used_mib"] <= seen["shared_memory_total_mib"]
    if Path("/proc/pressure/io").exists():
        assert 0 <= seen["io_stall_pct"] <= seen["io_pressure_pct"] <= 100
        assert node.gaps == []


def test_a_kernel_without_pressure_is_a_gap_and_no_zero(tmp_path: Path) -> None:
    node = Activity(proc=tmp_path, sys=tmp_path)
    assert [what for what, _, _ in node.gaps] == ["host.pressure"]
    seen = node.sample(1.0)
    assert seen.pop("shared_memory_used_mib") is not None  # asked of the kernel, not of a file
    assert seen.pop("shared_memory_total_mib") is not None
    assert set(seen.values()) == {None}


def test_waiting_for_a_disk_is_not_busy_and_a_guest_is_not_counted_twice() -> None:
    text = "cpu  100 20 30 400 50 6 7 8 90 10\ncpu0 1 2 3 4 5 6 7 8 9 10\n"
    assert activity.parse_cpu(text) == (171.0, 621.0)
    assert activity.parse_cpu("") == (None, None)
    assert activity.parse_cpu("cpu a b c d e") == (None, None)


def test_pressure_is_read_in_both_forms() -> None:
    both = "some avg10=12.50 avg60=1 avg300=0 total=9\nfull avg10=3.25 avg60=1 avg300=0 total=9\n"
    assert activity.parse_pressure(both) == (12.5, 3.25)
    assert activity.parse_pressure(both.partition("full")[0]) == (12.5, None)
    assert activity.parse_pressure("some avg10=x\n") == (None, None)


def test_only_whole_disks_are_counted() -> None:
    lines = [
        "   8       0 sda 10 0 2048 1 20 0 4096 1 0 0 0",
        "   8       1 sda1 10 0 2048 1 20 0 4096 1 0 0 0",
        " 253       0 dm-0 10 0 2048 1 20 0 4096 1 0 0 0",
        "   7       0 torn",
    ]
    assert activity.parse_diskstats("\n".join(lines), ["sda"]) == (1.0, 2.0)
    assert activity.parse_diskstats("", ["sda"]) == (None, None)


def test_a_counter_has_no_rate_at_first_sight_nor_when_it_was_reset() -> None:
    rates = Rates()
    assert rates.of("a", 1000, 0.0) is None
    assert rates.of("a", 3048, 2.0) == 1024
    assert rates.of("a", 5, 3.0) is None
    assert rates.of("a", 15, 4.0) == 10
    rates.keep_only(["b"])
    assert rates.of("a", 25, 5.0) is None


_NFS = """device proc mounted on /proc with fstype proc
device server:/home mounted on /home with fstype nfs4 statvers=1.1
\topts:\trw,vers=4.2
\tage:\t1000
\tevents:\t1 2 3
\tbytes:\t{read} 0 0 0 {read} {written} 10 20
\tRPC iostats version: 1.1  p/v: 100003/4 (nfs)
\txprt:\ttcp 0 0 2 0 38 5 5 0 5 0 2 0 0
\tper-op statistics
\t        NULL: 1 1 0 44 24 0 0 0 0
\t        READ: {reads} {sent} 0 1 2 {queued} {answered} {total} 0
\t       WRITE: 0 0 0 0 0 0 0 0 0
device tmpfs mounted on /dev/shm with fstype tmpfs
"""


def _nfs(**values: int) -> str:
    zeros = dict.fromkeys(("read", "written", "reads", "sent", "queued", "answered", "total"), 0)
    return _NFS.format(**{**zeros, **values})


def test_a_slow_nfs_server_shows_as_the_wait_of_each_request(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    file = tmp_path / "proc/self/mountstats"
    file.write_text(_nfs(reads=10, sent=10, total=20))
    followed = Mounts(tmp_path)
    assert followed.gaps == []
    assert followed.sample(0.0) == []
    file.write_text(_nfs(read=50 * 2**20, reads=110, sent=112, queued=1, answered=2, total=4020))
    [mount] = followed.sample(10.0)
    assert (mount["path"], mount["type"], mount["operations_per_s"], mount["wait_ms"]) == (
        "/home",
        "nfs4",
        10,
        40,
    )
    assert (mount["read_mib_s"], mount["write_mib_s"], mount["num_retransmissions"]) == (5, 0, 2)
    assert followed.sample(20.0) == [], "a mount that nobody used is not told of"


def test_lustre_is_measured_if_its_statistics_can_be_read_else_it_is_a_gap(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mountstats").write_text(
        "device 10.0.0.1@o2ib:/work mounted on /lustre with fstype lustre\n"
    )
    [gap] = Mounts(tmp_path).gaps
    assert "/lustre is Lustre" in gap[1]
    llite = tmp_path / "proc/fs/lustre/llite/work-ffff1234"
    server = tmp_path / "proc/fs/lustre/osc/work-OST0000-osc-ffff1234"
    for folder in (llite, server):
        folder.mkdir(parents=True)

    def write(num_bytes: int, requests: int, waited_us: int) -> None:
        (llite / "stats").write_text(
            f"read_bytes 5 samples [bytes] 1 2 {num_bytes} 9\nopen 3 samples [regs]\n"
        )
        (server / "stats").write_text(f"req_waittime {requests} samples [usec] 1 2 {waited_us} 9\n")

    write(0, 0, 0)
    followed = Mounts(tmp_path)
    assert followed.gaps == []
    followed.sample(0.0)
    write(100 * 2**20, 100, 500_000)
    [mount] = followed.sample(10.0)
    assert (mount["path"], mount["type"], mount["wait_ms"], mount["read_mib_s"]) == (
        "/lustre",
        "lustre",
        5,
        10,
    )


def test_garbage_in_mountstats_is_passed_over() -> None:
    text = "device x mounted on /x with fstype nfs\n\tbytes: a b c d e f g\n\tREAD: 1 2 3\n\x00\xff"
    assert mounts.parse_nfs(text)["/x"].num_operations == 0
    no_number = f"device x mounted on /x with fstype nfs\n\tREAD: 1 1 3 4 5 6 7 {'9' * 5000}\n"
    assert mounts.parse_nfs(no_number)["/x"].num_operations == 0


@pytest.mark.parametrize(("link_layer", "kind"), [("InfiniBand", "infiniband"), ("Ethernet", "roce")])
def test_an_infiniband_port_is_counted_by_its_own_counters(
    tmp_path: Path, link_layer: str, kind: str
) -> None:
    port = tmp_path / "class/infiniband/mlx5_0/ports/1"
    (port / "counters").mkdir(parents=True)
    counters = {"port_rcv_data": 0, "port_xmit_data": 0, "port_rcv_errors": 2, "link_downed": 1}
    values = {"link_layer": link_layer, "state": "4: ACTIVE", "rate": "400 Gb/sec (4X NDR)"}
    for name, value in values.items():
        (port / name).write_text(f"{value}\n")
    for name, count in counters.items():
        (port / "counters" / name).write_text(f"{count}\n")
    ports = Ports(tmp_path)
    ports.sample(0.0)
    (port / "counters/port_rcv_data").write_text(str(5 * 2**20 // 4 * 10))
    [found] = ports.sample(10.0)
    assert (found["name"], found["type"], found["state"], found["rate_gbit_s"]) == (
        "mlx5_0/1",
        kind,
        "active",
        400,
    )
    assert (found["rx_mib_s"], found["tx_mib_s"]) == (5, 0)
    assert (found["num_errors"], found["num_link_downs"]) == (2, 1)


def test_the_network_interfaces_of_this_machine_are_listed_with_their_state() -> None:
    real = [path.name for path in Path("/sys/class/net").iterdir() if (path / "device").exists()]
    found = [port for port in Ports().sample(0.0) if port["type"] == "ethernet"]
    assert sorted(port["name"] for port in found) == sorted(real)
    assert all(port["state"] for port in found)
