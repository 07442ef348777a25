"""A program in its own terminal, measured from outside: its output, its cost, and its calls to Slurm.

It compares coach with other programs on one controller by the same method. CPU time is that of the program
and of every Slurm command that it ran. Stand-ins on its PATH record each call to Slurm and then become the
real command.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

CLIENTS = ("squeue", "sinfo", "scontrol", "sacct", "sdiag", "sprio", "sshare", "sacctmgr")
_ESCAPE = re.compile(
    rb"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[PX^_].*?\x1b\\|[@-Z\\-_])", re.DOTALL
)
_TICKS = os.sysconf("SC_CLK_TCK")


def counting_clients(folder: Path) -> Path:
    """Stand-ins for Slurm's clients; the file in which they note their calls."""
    folder.mkdir(exist_ok=True)
    calls = folder / "calls"
    calls.write_text("")
    calls.chmod(0o666)
    for name in CLIENTS:
        stand_in = folder / name
        stand_in.write_text(f'#!/bin/sh\necho {name} >>{calls}\nexec /usr/bin/{name} "$@"\n')
        stand_in.chmod(0o755)
    return calls


class Guest:
    """The program runs from the start of `with` to its end."""

    def __init__(
        self, argv: Sequence[str], env: Mapping[str, str], columns: int = 160, rows: int = 50
    ) -> None:
        self._painted = b""
        self._painted_s = 0.0
        self.started_s = time.monotonic()
        self.pid, self._terminal = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            os.execvpe(argv[0], list(argv), dict(env))
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._terminal, 65536)
            except OSError:  # the program has ended
                return
            if not data:
                return
            self._painted += data
            self._painted_s = time.monotonic()

    def wait_for(self, wanted: str, timeout_s: float = 60.0) -> float:
        """Wait until the text painted since the last `forget` contains a pattern. Returns the seconds since
        the start; a failure shows the painted text."""
        pattern = re.compile(wanted)
        deadline_s = time.monotonic() + timeout_s
        while time.monotonic() < deadline_s:
            if pattern.search(self.text()):
                return self._painted_s - self.started_s
            select.select([], [], [], 0.005)
        raise AssertionError(f"{wanted!r} was not painted in {timeout_s:g} s:\n{self.text()[-3000:]}")

    def text(self) -> str:
        return _ESCAPE.sub(b"", self._painted).decode(errors="replace")

    def forget(self) -> None:
        self._painted = b""

    def press(self, keys: str, timeout_s: float = 5.0) -> float:
        """Seconds until the first paint after these keys."""
        pressed_s = time.monotonic()
        os.write(self._terminal, keys.encode())
        while self._painted_s < pressed_s and time.monotonic() < pressed_s + timeout_s:
            select.select([], [], [], 0.001)
        return max(0.0, self._painted_s - pressed_s) or timeout_s

    def cpu_s(self) -> tuple[float, float]:
        """CPU time of the program itself, and of its children that have ended."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        own, children = fields[11:13], fields[13:15]
        return sum(map(int, own)) / _TICKS, sum(map(int, children)) / _TICKS

    def memory_mib(self) -> tuple[float, float]:
        """Resident now, and at most so far."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        kib = {
            name: int(value.split()[0])
            for name, _, value in (line.partition(":") for line in lines if line.startswith("Vm"))
        }
        return kib["VmRSS"] / 1024, kib["VmHWM"] / 1024

    def __enter__(self) -> Guest:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._terminal)
