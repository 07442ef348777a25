"""The part of psutil that coach uses, from /proc, for an interpreter without that native package.

Names, values and exceptions are psutil's. A process is known by its number and its start, so that a number
that was given to another process since is never signalled.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

STATUS_ZOMBIE = "zombie"
_STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "disk-sleep",
    "T": "stopped",
    "t": "tracing-stop",
    "Z": STATUS_ZOMBIE,
    "X": "dead",
    "x": "dead",
    "I": "idle",
    "W": "waking",
    "P": "parked",
    "K": "wake-kill",
}
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_POLL_S = 0.04


class Error(Exception):
    """Of all exceptions here."""


class NoSuchProcess(Error):
    """It has ended, or there never was one."""

    def __init__(self, pid: int) -> None:
        super().__init__(f"process PID not found (pid={pid})")
        self.pid = pid


class ZombieProcess(NoSuchProcess):
    """It has ended, and its parent has not asked how."""


class AccessDenied(Error):
    """The process belongs to another user."""

    def __init__(self, pid: int) -> None:
        super().__init__(f"(pid={pid})")
        self.pid = pid


class Memory(NamedTuple):
    """Bytes. `pss` divides shared memory among its processes; None if it was not requested."""

    rss: int
    pss: int | None = None


class MachineMemory(NamedTuple):
    """Bytes."""

    total: int
    available: int


class Process:
    """One process; without a pid, this process."""

    def __init__(self, pid: int | None = None) -> None:
        self.pid = os.getpid() if pid is None else pid
        if self.pid < 0:
            raise ValueError(f"pid must be a positive integer (got {self.pid})")
        if self.pid.bit_length() > 31:
            raise NoSuchProcess(self.pid)
        self._ticks = int(self._stat()[19])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Process) and (self.pid, self._ticks) == (other.pid, other._ticks)

    def __hash__(self) -> int:
        return hash((self.pid, self._ticks))

    def create_time(self) -> float:
        """Seconds since 1970."""
        return boot_time() + self._ticks / _TICKS

    def status(self) -> str:
        """Its state."""
        return _STATES.get(self._stat()[0], "?")

    def ppid(self) -> int:
        """Its parent."""
        return int(self._stat()[1])

    def is_running(self) -> bool:
        """True while it is this very process, a zombie included."""
        try:
            return int(self._stat()[19]) == self._ticks
        except NoSuchProcess:
            return False

    def memory_info(self) -> Memory:
        """Its memory."""
        fields = self._read("statm").split()
        return Memory(int(fields[1]) * _PAGE_BYTES)

    def memory_full_info(self) -> Memory:
        """Its memory, with its share of the memory shared with others."""
        try:
            text = self._read("smaps_rollup")
        except FileNotFoundError:  # before Linux 4.14
            text = self._read("smaps")
        pss_kib = sum(int(line.split()[1]) for line in text.splitlines() if line.startswith(b"Pss:"))
        return Memory(self.memory_info().rss, pss_kib * 1024)

    def children(self, recursive: bool = False) -> list[Process]:
        """Its child processes; with `recursive` also their children."""
        if not self.is_running():
            raise NoSuchProcess(self.pid)
        below: dict[int, list[Process]] = {}
        for pid in pids():
            try:
                process = Process(pid)
                below.setdefault(process.ppid(), []).append(process)
            except Error:
                continue
        found: list[Process] = []
        waiting = [self.pid]
        while waiting:
            for process in below.pop(waiting.pop(0), ()):
                if process._ticks >= self._ticks:
                    found.append(process)
                    waiting += [process.pid] if recursive else []
        return found

    def send_signal(self, number: int) -> None:
        """Signal it, if it is still this process."""
        if self.pid == 0 or not self.is_running():
            raise NoSuchProcess(self.pid)
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            raise NoSuchProcess(self.pid) from None
        except PermissionError:
            raise AccessDenied(self.pid) from None

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)

    def _stat(self) -> list[str]:
        """The fields of /proc/PID/stat behind the name: the state is the first."""
        return self._read("stat").rpartition(b")")[2].decode("ascii").split()

    def _read(self, name: str) -> bytes:
        try:
            data = Path(f"/proc/{self.pid}/{name}").read_bytes()
        except PermissionError:
            raise AccessDenied(self.pid) from None
        except ProcessLookupError:
            raise NoSuchProcess(self.pid) from None
        except FileNotFoundError:
            if Path(f"/proc/{self.pid}/stat").exists():
                raise
            raise NoSuchProcess(self.pid) from None
        if not data and name.startswith("smaps"):  # a process that has ended, or a part of the kernel
            raise ZombieProcess(self.pid) if self.status() == STATUS_ZOMBIE else AccessDenied(self.pid)
        return data


def pids() -> list[int]:
    """The numbers of all processes."""
    return sorted(int(name) for name in os.listdir("/proc") if name.isdecimal())


def boot_time() -> float:
    """When the kernel was started, in seconds since 1970."""
    for line in Path("/proc/stat").read_bytes().splitlines():
        if line.startswith(b"btime "):
            return float(line.split()[1])
    raise RuntimeError("no line btime in /proc/stat")


def virtual_memory() -> MachineMemory:
    """Of this machine."""
    values = {}
    for line in Path("/proc/meminfo").read_text("ascii").splitlines():
        name, _, value = line.partition(":")
        values[name] = int(value.split()[0]) * 1024
    return MachineMemory(values["MemTotal"], values.get("MemAvailable", values["MemFree"]))


def wait_procs(
    processes: Iterable[Process], timeout: float | None = None
) -> tuple[list[Process], list[Process]]:
    """Wait for processes to end. Returns the ended ones and the living ones; children are reaped with their
    status."""
    deadline_s = None if timeout is None else time.monotonic() + timeout
    gone: list[Process] = []
    alive = list(dict.fromkeys(processes))
    while True:
        still = [process for process in alive if not _has_ended(process)]
        gone += [process for process in alive if process not in still]
        alive = still
        if not alive or (deadline_s is not None and time.monotonic() >= deadline_s):
            return gone, alive
        left_s = _POLL_S if deadline_s is None else deadline_s - time.monotonic()
        time.sleep(max(0.0, min(_POLL_S, left_s)))


def _has_ended(process: Process) -> bool:
    if not process.is_running():
        return True
    try:
        return os.waitpid(process.pid, os.WNOHANG)[0] == process.pid
    except ChildProcessError:
        return False
