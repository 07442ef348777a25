"""The screens in a fork with their own terminal, killed just before a change.

The screens change files in several threads. strace would count the calls of each thread apart, and those of
their child processes. So here the interpreter reports each change, one system call, before it makes it. The
order of the threads differs from run to run; the journal records the real place of the kill.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import struct
import sys
import termios
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from coach.__main__ import main
from tests.faults import programs
from tests.faults.world import World

LAUNCHED = (*programs.SLEEP[:-2], "sh", "-c", "exit 0")
_EVENTS = {
    "os.rename": "rename",
    "os.remove": "unlink",
    "os.mkdir": "mkdir",
    "os.rmdir": "rmdir",
    "os.link": "link",
    "os.symlink": "symlink",
    "os.chmod": "chmod",
    "os.truncate": "truncate",
}
_CHANGES = os.O_CREAT | os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_TRUNC
_RANDOM = re.compile(r"\.\d+\.[0-9a-f]{8}\b|-[0-9a-f]{24}\b")
_LIMIT_S = 60.0


class Boundaries:
    """Counts the changes below a folder, writes each down before it is made, and kills at one of them."""

    def __init__(self, root: Path, journal: Path, kill_at: int | None) -> None:
        self._root = f"{root}/"
        self._journal = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._kill_at = kill_at
        self._number = 0
        self._lock = threading.RLock()

    def install(self) -> None:
        """From now on, in this process."""
        sys.addaudithook(self._hear)
        really_open, really_sync = os.open, os.fsync

        def opened(path: Any, flags: int, *args: Any, **more: Any) -> int:
            number = really_open(path, flags, *args, **more)
            if flags & _CHANGES:
                self._pass("write", path)  # the file is there, and empty
            return number

        def synced(number: Any) -> None:
            self._pass("fsync", Path(f"/proc/self/fd/{number}").readlink())
            really_sync(number)

        os.open, os.fsync = opened, synced

    def _hear(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(args[2], int) and args[2] & _CHANGES:
            self._pass("open", args[0])
        elif event in _EVENTS:
            self._pass(_EVENTS[event], args[1] if event == "os.rename" else args[0])
        elif event == "subprocess.Popen":
            self._pass("start", self._root + Path(os.fsdecode(args[1][0])).name)

    def _pass(self, call: str, path: Any) -> None:
        if not isinstance(path, str | bytes | os.PathLike):
            return
        place = os.fsdecode(path)
        if not place.startswith(self._root):
            return
        with self._lock:
            self._number += 1
            words = f"{call} {_RANDOM.sub('.*', Path(place).name)}\n"
            os.write(self._journal, words.encode())
            if self._number == self._kill_at:
                os.kill(os.getpid(), signal.SIGKILL)


def prepare(world: World) -> None:
    """Two runs for the screens to update: the launch of one was killed before it recorded its job, the other
    was cancelled outside of coach."""
    for _ in range(2):
        world.coach(*programs.SLEEP)
    lost, cancelled = world.folders()[:2]
    record = json.loads((lost / "run.json").read_text())
    record["job_id"] = record["submitted_time_s"] = None
    (lost / "run.json").write_text(json.dumps(record))
    (job,) = [job for job in world.clients.jobs if str(cancelled) in job["script"]]
    job["state"] = "CANCELLED"
    (world.clients.folder / "jobs" / job["id"]).write_text(json.dumps(job))


def has_settled(world: World) -> bool:
    """coach knows the true state of both runs."""
    lost, cancelled = (json.loads((path / "run.json").read_text()) for path in world.folders()[:2])
    return lost["job_id"] is not None and cancelled.get("state") == "CANCELLED"


def body(world: World, journal: Path, kill_at: int | None) -> Callable[[], int]:
    """`coach` in a terminal until both runs are seen to, then `q`."""

    def run() -> int:
        world.enter()
        screen, terminal = os.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        if os.fork() == 0:
            os.close(terminal)
            os._exit(_be_person(screen, world))
        os.close(screen)
        fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
        for number in range(3):
            os.dup2(terminal, number)
        Boundaries(world.root, journal, kill_at).install()
        return main([])

    return run


def _be_person(screen: int, world: World) -> int:
    """Read the output, as a terminal does; press `q` when the work is done."""
    os.set_blocking(screen, False)
    end_s, last_s, painted = time.monotonic() + _LIMIT_S, 0.0, b""
    while time.monotonic() < end_s:
        try:
            painted = (painted + os.read(screen, 65536))[-500_000:]
            (world.home / "painted").write_bytes(painted)
            continue
        except BlockingIOError:
            time.sleep(0.02)
        except OSError:
            return 0  # the program has ended
        if b"queue" in painted and time.monotonic() - last_s > 1.0 and has_settled(world):
            last_s = time.monotonic()
            os.write(screen, b"q")
    return 1


def journal_of(path: Path) -> Sequence[str]:
    """The changes that were about to happen, in order."""
    return path.read_text().splitlines() if path.exists() else ()
