"""How long this node waits for its network file systems: NFS from mountstats, Lustre from its clients'
statistics if they can be read.

A data loader that waits for a busy server uses no CPU and no disk. Only the client's own clock shows it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Tuple

from coach.node.counters import Rates, is_number
from coach.node.gap import Gap
from coach.trusted import read_small

_MAX_MOUNTS = 8
_LUSTRE_FOLDERS = ("proc/fs/lustre", "sys/fs/lustre", "sys/kernel/debug/lustre")
_MOUNT = re.compile(r"^device (\S+) mounted on (\S+) with fstype (\S+)")
_OPERATION = re.compile(r"^\s*[A-Z_0-9]+:((?: [0-9]{1,20}){8,9})$")


class Counters(NamedTuple):
    """Counters of a client since the mount. Waiting is the time of all requests together, from queued to
    answered."""

    kind: str
    num_operations: int = 0
    wait_ms: float = 0.0
    read_mib: float = 0.0
    written_mib: float = 0.0
    num_retransmissions: Optional[int] = None


class Mounts:
    """Rates of the mounts that had requests since the last look."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._rates = Rates()
        self.gaps: List[Gap] = []
        lustre = [mount for mount, kind in parse_mounts(self._mountstats()) if kind == "lustre"]
        if lustre and not self._lustre():
            because = f"{lustre[0]} is Lustre, whose statistics only root may read on this node"
            self.gaps.append(
                ("mount", because, "`lctl get_param llite.*.stats` as an administrator shows them")
            )

    def sample(self, time_s: float) -> List[Dict[str, Any]]:
        """Fields of mount records, the busiest first. `time_s` is a monotonic clock."""
        records: List[Dict[str, Any]] = []
        for mount, counters in {**parse_nfs(self._mountstats()), **self._lustre()}.items():
            rates = [
                self._rates.of((mount, place), value, time_s) for place, value in enumerate(counters[1:5])
            ]
            operations_per_s, waited_ms, read_mib_s, write_mib_s = rates
            if not operations_per_s:
                continue
            records.append(
                {
                    "kind": "mount",
                    "path": mount,
                    "type": counters.kind,
                    "operations_per_s": operations_per_s,
                    "wait_ms": None if waited_ms is None else waited_ms / operations_per_s,
                    "read_mib_s": read_mib_s,
                    "write_mib_s": write_mib_s,
                    "num_retransmissions": counters.num_retransmissions,
                }
            )
        return sorted(records, key=lambda record: -record["operations_per_s"])[:_MAX_MOUNTS]

    def _mountstats(self) -> str:
        return read_small(self._root / "proc/self/mountstats")

    def _lustre(self) -> Dict[str, Counters]:
        """By mount point, or by the file system's name if the mount point is unknown."""
        names = {
            device.rpartition("/")[2]: mount
            for device, mount, kind in _mounted(self._mountstats())
            if kind == "lustre"
        }
        found: Dict[str, Counters] = {}
        for folder in (self._root / name for name in _LUSTRE_FOLDERS):
            for path in _glob(folder, "llite/*/stats"):
                name = path.parent.name.partition("-")[0]
                servers = [read_small(stats) for stats in _glob(folder, f"osc/{name}-*/stats")]
                found.setdefault(names.get(name, name), parse_lustre(read_small(path), servers))
        return found


def parse_mounts(text: str) -> List[Tuple[str, str]]:
    """(mount point, type) of all mounts, from /proc/self/mountstats."""
    return [(mount, kind) for _, mount, kind in _mounted(text)]


def parse_nfs(text: str) -> Dict[str, Counters]:
    """The NFS mounts in /proc/self/mountstats."""
    found: Dict[str, Counters] = {}
    mount = None
    for line in text.splitlines():
        header = _MOUNT.match(line)
        if header:
            mount = header[2] if header[3] in ("nfs", "nfs4") else None
            if mount is not None:
                found[mount] = Counters(header[3], num_retransmissions=0)
        if mount is None:
            continue
        counters = found[mount]
        words = line.split()
        if words[:1] == ["bytes:"] and len(words) >= 7 and all(is_number(word) for word in words[5:7]):
            found[mount] = counters._replace(
                read_mib=int(words[5]) / 2**20, written_mib=int(words[6]) / 2**20
            )
        operation = _OPERATION.match(line)
        if operation:
            number, sent, _, _, _, _, _, total_ms = map(int, operation[1].split()[:8])
            found[mount] = counters._replace(
                num_operations=counters.num_operations + number,
                wait_ms=counters.wait_ms + total_ms,
                num_retransmissions=(counters.num_retransmissions or 0) + max(0, sent - number),
            )
    return found


def parse_lustre(llite: str, servers: Iterable[str]) -> Counters:
    """One file system: bytes that programs read and wrote, and the requests and waiting time of all its
    object servers."""
    bytes_of = {name: total for name, _, total in _lustre_lines(llite)}
    waits = [
        (n, total) for text in servers for name, n, total in _lustre_lines(text) if name == "req_waittime"
    ]
    return Counters(
        "lustre",
        sum(number for number, _ in waits),
        sum(total for _, total in waits) / 1000,
        bytes_of.get("read_bytes", 0) / 2**20,
        bytes_of.get("write_bytes", 0) / 2**20,
    )


def _lustre_lines(text: str) -> Iterable[Tuple[str, int, int]]:
    """(name, samples, sum) of `name N samples [unit] min max sum sumsq`."""
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 7 and words[2] == "samples" and is_number(words[1]) and is_number(words[6]):
            yield words[0], int(words[1]), int(words[6])


def _mounted(text: str) -> List[Tuple[str, str, str]]:
    return [(header[1], header[2], header[3]) for header in map(_MOUNT.match, text.splitlines()) if header]


def _glob(folder: Path, pattern: str) -> List[Path]:
    try:
        return sorted(folder.glob(pattern))
    except OSError:
        return []
