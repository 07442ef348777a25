"""The node's network ports: Ethernet interfaces and InfiniBand ports, with their traffic and errors.

A collective is only as fast as its slowest port. InfiniBand traffic of NCCL and MPI bypasses the kernel's
network interfaces: only the port's own counters show it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Dict, List, Optional

from coach.node.counters import Rates
from coach.trusted import read_small

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
