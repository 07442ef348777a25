"""Measures the whole node, including load from other jobs: CPU, memory, pressure, disks, network, shared
memory. It reads /proc and /sys, and asks the kernel for the size of /dev/shm.

A job that is slow because of its neighbours, or because of a shared disk, looks healthy by its own numbers.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

from coach.node.counters import Rates
from coach.node.gap import Gap
from coach.node.limits import read_meminfo_mib
from coach.trusted import read_small

_SECTOR_MIB = 512 / 2**20
_MAX_PORTS = 16
# Errors that cost a packet or a link. Symbol errors are left out: each cable has some, and they are
# corrected.
_INFINIBAND_ERRORS = (
    "port_rcv_errors",
    "port_xmit_discards",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
)
# Dropped packets are left out: they often belong to protocols without a listener.
_ETHERNET_ERRORS = ("rx_errors", "tx_errors")
_TYPES = {"1": "ethernet", "32": "ipoib"}
_WORD_BYTES = 4  # InfiniBand counts data in words of four bytes


class Activity:
    """Reads the node's counters. Pressure that the kernel does not measure is found at the start, and is a
    gap."""

    def __init__(self, proc: Path = Path("/proc"), sys: Path = Path("/sys")) -> None:
        self._proc = proc
        self._sys = sys
        self._rates = Rates()
        # Only disks with a device behind them: partitions, bridges and virtual interfaces would count the
        # same bytes twice.
        self._disks = _with_device(sys / "block")
        self._interfaces = _with_device(sys / "class/net")
        self.gaps: List[Gap] = []
        if parse_pressure(read_small(proc / "pressure/cpu")) == (None, None):
            self.gaps.append(
                (
                    "host.pressure",
                    "this kernel has no pressure information",
                    "boot it with psi=1 (Linux 4.20)",
                )
            )

    def sample(self, time_s: float) -> Dict[str, Any]:
        """The fields of a host record. `time_s` is a monotonic clock."""
        busy, total = parse_cpu(read_small(self._proc / "stat"))
        busy_rate, total_rate = self._rates.of("busy", busy, time_s), self._rates.of("total", total, time_s)
        cpu_some, _ = parse_pressure(read_small(self._proc / "pressure/cpu"))
        memory_some, memory_full = parse_pressure(read_small(self._proc / "pressure/memory"))
        io_some, io_full = parse_pressure(read_small(self._proc / "pressure/io"))
        memory = read_meminfo_mib(self._proc / "meminfo")
        total_mib, available_mib = memory.get("MemTotal"), memory.get("MemAvailable")
        swap_mib, free_swap_mib = memory.get("SwapTotal"), memory.get("SwapFree")
        read, written = parse_diskstats(read_small(self._proc / "diskstats"), self._disks)
        shared_used, shared_total = _size_of("/dev/shm")
        return {
            "node_cpu_pct": 100 * (busy_rate / total_rate) if busy_rate is not None and total_rate else None,
            "node_memory_used_mib": _difference(total_mib, available_mib),
            "node_memory_total_mib": total_mib,
            "swap_used_mib": _difference(swap_mib, free_swap_mib),
            "swap_total_mib": swap_mib,
            "cpu_pressure_pct": cpu_some,
            "memory_pressure_pct": memory_some,
            "memory_stall_pct": memory_full,
            "io_pressure_pct": io_some,
            "io_stall_pct": io_full,
            "disk_read_mib_s": self._rates.of("read", read, time_s),
            "disk_write_mib_s": self._rates.of("written", written, time_s),
            "network_rx_mib_s": self._rates.of("rx", self._bytes("rx"), time_s),
            "network_tx_mib_s": self._rates.of("tx", self._bytes("tx"), time_s),
            "shared_memory_used_mib": shared_used,
            "shared_memory_total_mib": shared_total,
        }

    def _bytes(self, way: str) -> Optional[float]:
        folder = self._sys / "class/net"
        found = [read_small(folder / name / f"statistics/{way}_bytes") for name in self._interfaces]
        return sum(int(text) / 2**20 for text in found if text.isdecimal()) if any(found) else None


def parse_cpu(text: str) -> Tuple[Optional[float], Optional[float]]:
    """(busy, all) ticks of all CPUs since boot, from /proc/stat. Time spent waiting for a disk is not
    busy."""
    fields = text.partition("\n")[0].split()
    if len(fields) < 6 or fields[0] != "cpu" or not all(field.isdecimal() for field in fields[1:]):
        return None, None
    ticks = [int(field) for field in fields[1:9]]  # the host's time already includes its guests' time
    idle = ticks[3] + ticks[4]
    return float(sum(ticks) - idle), float(sum(ticks))


def parse_pressure(text: str) -> Tuple[Optional[float], Optional[float]]:
    """(some, full) from /proc/pressure: the share of the last ten seconds in which some, or all, tasks
    stalled. Older kernels have no `full` for CPU."""
    found: Dict[str, float] = {}
    for line in text.splitlines():
        kind, _, rest = line.partition(" avg10=")
        try:
            found[kind] = float(rest.partition(" ")[0])
        except ValueError:
            continue
    return found.get("some"), found.get("full")


def parse_diskstats(text: str, disks: List[str]) -> Tuple[Optional[float], Optional[float]]:
    """(read, written) MiB of these disks since boot, from /proc/diskstats."""
    read = written = None
    for line in text.splitlines():
        fields = line.split()
        if len(fields) >= 10 and fields[2] in disks and fields[5].isdecimal() and fields[9].isdecimal():
            read = (read or 0.0) + int(fields[5]) * _SECTOR_MIB
            written = (written or 0.0) + int(fields[9]) * _SECTOR_MIB
    return read, written


def _with_device(folder: Path) -> List[str]:
    try:
        return sorted(path.name for path in folder.iterdir() if (path / "device").exists())
    except OSError:
        return []


def _size_of(mount: str) -> Tuple[Optional[float], Optional[float]]:
    try:
        found = os.statvfs(mount)
    except OSError:
        return None, None
    return (found.f_blocks - found.f_bfree) * found.f_frsize / 2**20, found.f_blocks * found.f_frsize / 2**20


def _difference(total: Optional[float], rest: Optional[float]) -> Optional[float]:
    return None if total is None or rest is None else total - rest


class Ports:
    """Ports found at the start, with the rates of their counters."""

    def __init__(self, sys: Path = Path("/sys")) -> None:
        self._rates = Rates()
        self._ethernet = [path for path in _children(sys / "class/net") if (path / "device").exists()]
        self._infiniband = [
            port for device in _children(sys / "class/infiniband") for port in _children(device / "ports")
        ]

    def sample(self, time_s: float) -> List[Dict[str, Any]]:
        """Fields of port records. `time_s` is a monotonic clock."""
        records = [self._infiniband_port(path, time_s) for path in self._infiniband]
        records += [self._interface(path, time_s) for path in self._ethernet]
        return records[:_MAX_PORTS]

    def _infiniband_port(self, path: Path, time_s: float) -> Dict[str, Any]:
        counters = path / "counters"
        name = f"{path.parent.parent.name}/{path.name}"
        return {
            "kind": "port",
            "name": name,
            "type": "roce" if read_small(path / "link_layer") == "Ethernet" else "infiniband",
            "state": read_small(path / "state").rpartition(": ")[2].lower() or None,
            "rate_gbit_s": _first_number(read_small(path / "rate")),
            "rx_mib_s": self._rate(name, "rx", _number(counters / "port_rcv_data"), _WORD_BYTES, time_s),
            "tx_mib_s": self._rate(name, "tx", _number(counters / "port_xmit_data"), _WORD_BYTES, time_s),
            "num_errors": _sum([_number(counters / error) for error in _INFINIBAND_ERRORS]),
            "num_link_downs": _number(counters / "link_downed"),
        }

    def _interface(self, path: Path, time_s: float) -> Dict[str, Any]:
        counters = path / "statistics"
        speed = _number(path / "speed")
        return {
            "kind": "port",
            "name": path.name,
            "type": _TYPES.get(read_small(path / "type")),
            "state": read_small(path / "operstate") or None,
            "rate_gbit_s": speed / 1000 if speed else None,
            "rx_mib_s": self._rate(path.name, "rx", _number(counters / "rx_bytes"), 1, time_s),
            "tx_mib_s": self._rate(path.name, "tx", _number(counters / "tx_bytes"), 1, time_s),
            "num_errors": _sum([_number(counters / error) for error in _ETHERNET_ERRORS]),
            "num_link_downs": _number(path / "carrier_down_count"),
        }

    def _rate(
        self, name: str, way: str, counter: Optional[int], unit_bytes: int, time_s: float
    ) -> Optional[float]:
        rate = self._rates.of((name, way), counter, time_s)
        return None if rate is None else rate * unit_bytes / 2**20


def _children(folder: Path) -> List[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _sum(values: List[Optional[int]]) -> Optional[int]:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _number(path: Path) -> Optional[int]:
    """A counter's value. An interface without a link reports -1 as its speed."""
    text = read_small(path)
    return int(text) if text.isdecimal() else None


def _first_number(text: str) -> Optional[float]:
    found = re.match(r"\d+(?:\.\d+)?", text)
    return float(found[0]) if found else None
