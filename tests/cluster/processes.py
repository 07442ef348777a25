"""The cluster's processes: known by pid and start time, and found again when Slurm itself has lost them.

Nothing is ever ended by its name. A daemon is ended by the pid that was recorded when it was started, if that pid is still the same
process; a job's leftovers (the daemon above them was killed) by the cluster's own files and configuration that they hold.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

from tests.waiting import wait_until


@dataclass(frozen=True, slots=True)
class Daemon:
    """A process that was started, told apart from a later one with the same pid by when it started."""

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
    """Job processes of the cluster in `directory`: slurmstepds first, because they would report their children's deaths.

    A slurmstepd is known by an open file in the cluster's directory (its environment is overwritten by its title), a job's process by the
    cluster's configuration and a job id in its environment.
    """
    stepds, jobs = [], []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        try:
            if (folder / "comm").read_text().strip() == "slurmstepd":
                if _holds_a_file_in(folder, directory):
                    stepds.append(daemon_of("slurmstepd", int(folder.name)))
            else:
                variables = (folder / "environ").read_bytes().split(b"\0")
                is_ours = b"SLURM_CONF=" + os.fsencode(slurm_conf) in variables
                if is_ours and any(variable.startswith(b"SLURM_JOB_ID=") for variable in variables):
                    jobs.append(daemon_of("job process", int(folder.name)))
        except OSError:
            continue  # it has ended meanwhile
    return [process for process in (*stepds, *jobs) if process.start_ticks]


def _holds_a_file_in(process: Path, directory: Path) -> bool:
    return any(file.readlink().is_relative_to(directory) for file in (process / "fd").iterdir())


def _start_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None when it is gone, or only waits to be reaped."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])
