"""The cluster's processes: known by pid and start time, and found again when Slurm itself has lost them.

Nothing is ever ended by its name. A daemon is ended by the pid that was recorded when it was started, if that
pid is still the same process; a job's leftovers (the daemon above them was killed) by the cluster's own files
and configuration that they hold.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.waiting import wait_until


@dataclass(frozen=True, slots=True)
class Daemon:
    """A started process; its start time distinguishes it from a later process with the same pid."""

    name: str
    pid: int
    start_ticks: int

    @property
    def is_alive(self) -> bool:
        return _start_ticks(self.pid) == self.start_ticks

    def signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.is_alive:
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                return

    def end(self, timeout_s: float = 5.0) -> None:
        """SIGTERM, and SIGKILL when that was not enough. Returns when the process is gone."""
        self.signal(signal.SIGTERM)
        try:
            wait_until(lambda: not self.is_alive, timeout_s, f"{self.name} ends")
        except AssertionError:
            self.signal(signal.SIGKILL)
            wait_until(lambda: not self.is_alive, timeout_s, f"{self.name} ends after SIGKILL")


def daemon_of(name: str, pid: int) -> Daemon:
    """The process `pid`, which was just started."""
    return Daemon(name, pid, _start_ticks(pid) or 0)


def leftovers(directory: Path, slurm_conf: Path) -> list[Daemon]:
    """Job processes of the cluster in `directory`: slurmstepds first, because they would report their
    children's deaths.

    A slurmstepd is known by an open file in the cluster's directory (its environment is overwritten by its
    title), a job's process by the cluster's configuration and a job id in its environment.
    """
    stepds = [process for process in _processes() if _is_stepd_of(directory, process)]
    jobs = with_environment(f"SLURM_CONF={slurm_conf}", needs="SLURM_JOB_ID=")
    return [*stepds, *jobs]


def programs_with_environment(setting: str, *names: str) -> list[str]:
    """The programs among `names` that run with exactly `setting` in their environment, one a process."""
    return [
        name
        for process in _processes()
        if (name := _program(process.pid)) in names and setting.encode() in _environment(process.pid)
    ]


def with_environment(setting: str, needs: str = "") -> list[Daemon]:
    """Processes that were started with exactly `setting` (`NAME=value`) in their environment, and with a
    variable that starts with `needs`."""
    return [
        process
        for process in _processes()
        if setting.encode() in (variables := _environment(process.pid))
        and any(variable.startswith(needs.encode()) for variable in variables)
    ]


def in_session(leader: int) -> list[Daemon]:
    """Processes of one terminal session, `leader` being the first of them."""
    return [process for process in _processes() if _stat(process.pid)[3:4] == [str(leader)]]


def _processes() -> Iterator[Daemon]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            pid = int(folder.name)
            start_ticks = _start_ticks(pid)
            if start_ticks is not None:
                yield Daemon(f"process {pid}", pid, start_ticks)


def _is_stepd_of(directory: Path, process: Daemon) -> bool:
    if not _program(process.pid).startswith("slurmstepd"):  # Debian's file is named slurmstepd-wlm
        return False
    try:
        files = Path(f"/proc/{process.pid}/fd").iterdir()
        return any(file.readlink().is_relative_to(directory) for file in files)
    except OSError:
        return False  # it has ended meanwhile


def _program(pid: int) -> str:
    """The file that a process executes: for a script and its forks it is the shell."""
    try:
        return Path(f"/proc/{pid}/exe").readlink().name
    except OSError:
        return ""  # it has ended meanwhile


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []  # it has ended meanwhile


def _start_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None when it is gone, or only waits to be reaped."""
    fields = _stat(pid)
    return None if not fields or fields[0] in "ZX" else int(fields[19])


def _stat(pid: int) -> list[str]:
    """/proc/PID/stat from the state on: before it is a name with any characters."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
