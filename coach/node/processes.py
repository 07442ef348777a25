"""The job's processes on this node, read only from /proc.

A node may run thousands of other processes. Each process is inspected once to see if it belongs to the job,
and only the job's are read again. The cost of a sample thus depends on the job, not on the node.
"""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Callable, Dict, Iterable, List, NamedTuple, Optional, Set, Tuple

_PAGE_MIB = os.sysconf("SC_PAGE_SIZE") / 2**20
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")

_MAX_DIGITS = 20
# Variables of torchrun and Open MPI; the first that is set counts.
_RANK = (b"RANK", b"OMPI_COMM_WORLD_RANK")
_LOCAL_RANK = (b"LOCAL_RANK", b"OMPI_COMM_WORLD_LOCAL_RANK")

# The kernel reuses pids: a process outside the job is inspected again after this many samples.
_FORGET_STRANGERS_AFTER = 60


class Stat(NamedTuple):
    """The fields of /proc/PID/stat."""

    pid: int
    name: str
    parent: int
    cpu_s: float
    rss_mib: float
    start_ticks: int
    num_threads: int


class Ranks(NamedTuple):
    """The rank numbers that a launcher gave a process; None if it gave none."""

    rank: Optional[int] = None
    local_rank: Optional[int] = None


class Process(NamedTuple):
    """One process of the job at one sample. `cpu_pct` is in percent of one CPU, None at the first look."""

    pid: int
    name: str
    ranks: Ranks
    cpu_pct: Optional[float]
    rss_mib: float
    num_threads: int


def parse_stat(pid: int, data: bytes) -> Optional[Stat]:
    """Parse /proc/PID/stat. The process name may hold any text, such as `) R 1`, so fields are counted from
    the last parenthesis."""
    opening, closing = data.find(b"("), data.rfind(b")")
    fields = data[closing + 2 :].split()
    if opening < 0 or closing < 0 or len(fields) < 22 or fields[0] in (b"Z", b"X"):
        return None
    name = data[opening + 1 : closing].decode("utf-8", "replace")
    told = [fields[place] for place in (1, 11, 12, 17, 19, 21)]
    if not all(word.lstrip(b"-").isdigit() and len(word) <= _MAX_DIGITS for word in told):
        return None
    parent, user, system, threads, start, pages = map(int, told)
    return Stat(pid, name, parent, (user + system) / _TICKS_PER_S, pages * _PAGE_MIB, start, threads)


def read_stat(pid: int) -> Optional[Stat]:
    """The stat of a living process; None when it has ended, or is a zombie."""
    data = _read(f"/proc/{pid}/stat")
    return parse_stat(pid, data) if data else None


def ranks_of(pid: int) -> Ranks:
    """The ranks in a process's environment; all None if it has none or cannot be read.

    Slurm numbers tasks, not ranks. Under torchrun a task is a node, so Slurm's numbers are not used.
    """
    found: Dict[bytes, int] = {}
    for entry in _read(f"/proc/{pid}/environ").split(b"\0"):
        name, _, value = entry.partition(b"=")
        if name in _RANK + _LOCAL_RANK and value.isdigit() and len(value) < 10:
            found[name] = int(value)
    rank, local_rank = ([found[name] for name in names if name in found] for names in (_RANK, _LOCAL_RANK))
    return Ranks(rank[0] if rank else None, local_rank[0] if local_rank else None)


def read_io_bytes(pid: int) -> Optional[Tuple[int, int]]:
    """(read, written) bytes that a process moved from and to file systems. Reads from the page cache are not
    counted."""
    found: Dict[bytes, int] = {}
    for line in _read(f"/proc/{pid}/io").splitlines():
        name, _, value = line.partition(b": ")
        if value.isdigit():
            found[name] = int(value)
    read, written = found.get(b"read_bytes"), found.get(b"write_bytes")
    return None if read is None or written is None else (read, written)


def read_anonymous_mib(pid: int) -> Optional[float]:
    """Resident memory without the pages of files and of shared memory, in MiB: the kernel cannot drop it, as
    it drops a data set that is mapped from a file."""
    words = _read(f"/proc/{pid}/statm").split()
    if len(words) < 3 or not all(word.isdigit() and len(word) <= _MAX_DIGITS for word in words[1:3]):
        return None
    return max(0, int(words[1]) - int(words[2])) * _PAGE_MIB


def step_root(supervisor: int) -> int:
    """The process whose descendants are the job here: Slurm's step daemon if it started the supervisor,
    because it starts all tasks."""
    stat = read_stat(supervisor)
    parent = read_stat(stat.parent) if stat else None
    return parent.pid if parent and parent.name.startswith("slurmstepd") else supervisor


def own_processes(job_id: Optional[str]) -> Callable[[Stat], bool]:
    """A test for processes of this user and, inside a job, of this job."""
    uid = os.getuid()
    wanted = f"SLURM_JOB_ID={job_id}".encode() if job_id else None

    def belongs(stat: Stat) -> bool:
        try:
            if os.stat(f"/proc/{stat.pid}").st_uid != uid:  # noqa: PTH116 (one call per process, kept cheap)
                return False
        except OSError:
            return False
        return wanted is None or wanted in _read(f"/proc/{stat.pid}/environ").split(b"\0")

    return belongs


class ProcessTable:
    """Follows the job's processes: the descendants of `root`, or the processes that `belongs` accepts."""

    def __init__(
        self,
        root: Optional[int] = None,
        belongs: Optional[Callable[[Stat], bool]] = None,
        ignored: Iterable[int] = (),
    ) -> None:
        self._root = root
        self._belongs = belongs
        self._ignored = set(ignored)
        self._strangers: Set[int] = set()
        self._members: Dict[int, Stat] = {}
        self._ranks: Dict[int, Ranks] = {}
        self._time_s: Optional[float] = None
        self._num_samples = 0

    def sample(self, time_s: float) -> List[Process]:
        """The job's processes, largest first. `time_s` is a monotonic clock."""
        # Only the names are needed.
        present = {int(name) for name in os.listdir("/proc") if name.isdecimal()}  # noqa: PTH208
        if self._num_samples % _FORGET_STRANGERS_AFTER == 0:
            self._strangers.clear()
        self._num_samples += 1
        elapsed_s = time_s - self._time_s if self._time_s is not None else 0.0
        self._time_s = time_s
        before, self._members = self._members, {}
        for pid in before:
            stat = read_stat(pid) if pid in present else None
            if stat is not None and stat.start_ticks == before[pid].start_ticks:
                self._members[pid] = stat
        self._admit(present - set(self._members) - self._strangers - self._ignored)
        self._strangers &= present
        self._ranks = {
            pid: self._ranks[pid] if pid in self._ranks and pid in before else ranks_of(pid)
            for pid in self._members
        }
        found = [self._process(stat, before.get(pid), elapsed_s) for pid, stat in self._members.items()]
        return sorted(found, key=lambda process: -process.rss_mib)

    def _process(self, stat: Stat, before: Optional[Stat], elapsed_s: float) -> Process:
        cpu_pct = None
        if before is not None and elapsed_s > 0:
            cpu_pct = max(0.0, (stat.cpu_s - before.cpu_s) / elapsed_s * 100)
        return Process(stat.pid, stat.name, self._ranks[stat.pid], cpu_pct, stat.rss_mib, stat.num_threads)

    def _admit(self, pids: Set[int]) -> None:
        """Inspect the new processes. An orphan of the job stays the job's."""
        stats = {pid: stat for pid in pids for stat in [read_stat(pid)] if stat is not None}
        for pid, stat in stats.items():
            if self._belongs(stat) if self._belongs else self._descends(stat, stats):
                self._members[pid] = stat
            else:
                self._strangers.add(pid)

    def _descends(self, stat: Stat, new: Dict[int, Stat]) -> bool:
        parent = stat.parent
        for _ in range(1000):  # a chain of parents may change while it is read, and form a cycle
            # Processes that are not counted (coach's own) still pass membership on to their children.
            if parent == self._root or parent in self._members or parent in self._ignored:
                return True
            if parent not in new:
                return False
            parent = new[parent].parent
        return False


def _read(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return b""


_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Ask the kernel to kill this process when `parent` ends. End at once if it has ended already.

    If the C library cannot be called, the kernel is not asked: callers that wait in a loop also check
    os.getppid().
    """
    with contextlib.suppress(Exception):
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)
