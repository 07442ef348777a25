"""The process that passes on what a command prints, also when its `coach run` was killed.

It is a fork in a session of its own. A command on a terminal prints to a pseudo-terminal whose other side
this process reads: it writes all to the log and to the terminal, and the command waits when the terminal
does. Any other command prints to the log itself; this process follows the log and passes it on, and the
command waits for nobody. It ends when nothing more can be printed and all was passed on.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import socket
import termios
import threading
import time
from abc import ABC, abstractmethod
from typing import Callable, Iterable, List, NamedTuple, Optional

from coach.node.processes import read_stat

ENDED, DRAINED = b"E", b"D"
"""Said on the control socket: the command has ended (by `coach run`); all it printed was passed on (by the
copier)."""

_CHUNK_BYTES = 64 * 1024
_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 0.01, 0.1
_HOLDERS_INTERVAL_S = 1.0
_ALIVE_INTERVAL_S = 0.5
_ACCESS_MODE = os.O_RDONLY | os.O_WRONLY | os.O_RDWR


class Stream(NamedTuple):
    """One stream of the command. All are file descriptors of `coach run`."""

    source: int
    """The reading side of the command's pseudo-terminal, or its log, opened for reading."""
    target: int
    """Where it is passed on: standard output or standard error of `coach run`."""
    log: Optional[int]
    """The log that the copier writes; None where the command writes it, and `source` is the log."""


class Command(NamedTuple):
    """The command's process. The number alone may be given to another process."""

    pid: int
    start_ticks: int

    @property
    def is_alive(self) -> bool:
        stat = read_stat(self.pid)
        return stat is not None and stat.start_ticks == self.start_ticks


def copy(streams: List[Stream], control: socket.socket) -> None:
    """In the forked process: pass on all streams to their ends."""
    os.setsid()
    _close_all_but({control.fileno(), *(fd for stream in streams for fd in stream if fd is not None)})
    has_ended = threading.Event()
    ended, end = os.pipe()
    copies = [(_Terminal if stream.log is not None else _Log)(stream, has_ended, ended) for stream in streams]
    threads = [threading.Thread(target=each.run, daemon=True) for each in copies]
    for thread in threads:
        thread.start()
    _await_end(control, lambda: any(thread.is_alive() for thread in threads))
    has_ended.set()
    os.close(end)
    for each in copies:
        each.is_drained.wait()
    with contextlib.suppress(OSError):
        control.send(DRAINED)
    for thread in threads:
        thread.join()


def fit_window(terminal: int, other: int) -> None:
    """Give a pseudo-terminal the size of the terminal."""
    with contextlib.suppress(OSError):
        size = fcntl.ioctl(terminal, termios.TIOCGWINSZ, bytes(8))
        if fcntl.ioctl(other, termios.TIOCGWINSZ, bytes(8)) != size:
            fcntl.ioctl(other, termios.TIOCSWINSZ, size)


def _await_end(control: socket.socket, is_needed: Callable[[], bool]) -> None:
    """Until the command's end: `coach run` says it; where that was killed, the command itself is looked
    at."""
    command: Optional[Command] = None
    said = b""
    while not said.endswith(ENDED):
        if not is_needed():
            return
        if not select.select([control], [], [], _ALIVE_INTERVAL_S)[0]:
            continue
        with contextlib.suppress(OSError):
            said = control.recv(64)
        if not said:
            break
        numbers = said.partition(b"\n")[0].split()
        if len(numbers) == 2:
            command = Command(int(numbers[0]), int(numbers[1]))
    while not said and command is not None and command.is_alive and is_needed():
        time.sleep(_ALIVE_INTERVAL_S)


def encode(command: Command) -> bytes:
    """The command that has started, as `coach run` says it on the control socket."""
    return b"%d %d\n" % command


class _Copy(ABC):
    """Passes on one stream, in a thread of its own."""

    def __init__(self, stream: Stream, has_ended: threading.Event, ended: int) -> None:
        self.is_drained = threading.Event()
        self._stream = stream
        self._has_ended = has_ended
        self._ended = ended
        """Readable once the command has ended."""
        self._has_reader = True

    def run(self) -> None:
        try:
            while self._is_wanted():
                data = self._next()
                if not data:
                    return
                self._keep(data)
                if self._has_reader:
                    self._has_reader = _write(self._stream.target, data)
        finally:
            self.is_drained.set()

    @abstractmethod
    def _is_wanted(self) -> bool:
        """False once nothing more has to be passed on."""

    @abstractmethod
    def _next(self) -> bytes:
        """The bytes that come next, after a wait; empty at the end."""

    @abstractmethod
    def _keep(self, data: bytes) -> None:
        """Write it to the log, if that is left to the copier."""


class _Terminal(_Copy):
    def _is_wanted(self) -> bool:
        return True  # without a reader the command would wait for ever

    def _next(self) -> bytes:
        poll = select.poll()
        poll.register(self._stream.source, select.POLLIN)
        if not self.is_drained.is_set():
            poll.register(self._ended, select.POLLIN)
        while True:
            ready = {fd for fd, _ in poll.poll()}
            if self._stream.source in ready:
                fit_window(self._stream.target, self._stream.source)
                try:
                    return os.read(self._stream.source, _CHUNK_BYTES)
                except OSError:
                    return b""  # nobody has the pseudo-terminal open any more
            self.is_drained.set()
            poll.unregister(self._ended)

    def _keep(self, data: bytes) -> None:
        if self._stream.log is not None:
            _write(self._stream.log, data)


class _Log(_Copy):
    _holder: Optional[int] = None
    """A process that the command left behind, and that can still write to the log."""

    def _is_wanted(self) -> bool:
        return self._has_reader

    def _keep(self, data: bytes) -> None:
        """Nothing is left to do: the command has written it."""

    def _next(self) -> bytes:
        pause_s = _SHORTEST_PAUSE_S
        while True:
            has_ended = self._has_ended.is_set()  # before the read: what was printed until the end is read
            data = os.read(self._stream.source, _CHUNK_BYTES)
            if data:
                return data
            if not has_ended:
                self._has_ended.wait(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                continue
            self.is_drained.set()
            self._holder = _writer_of(self._stream.source, self._holder)
            if self._holder is None:
                return os.read(self._stream.source, _CHUNK_BYTES)
            time.sleep(_HOLDERS_INTERVAL_S)


def _write(target: int, data: bytes) -> bool:
    """Write all of it, however long that takes.

    Returns False when it cannot be written: nobody reads it, or the disk is full.
    """
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(target, rest) :]
        except BlockingIOError:
            select.select([], [target], [])
        except OSError:
            return False
    return True


def _writer_of(log: int, hint: Optional[int] = None) -> Optional[int]:
    """A process that can still write to the log: one that the command left behind.

    `hint` is looked at first.
    """
    own = os.getpid()
    pids = [int(name) for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208 (names are wanted)
    found = os.fstat(log)
    for pid in sorted(pids, key=lambda each: each != hint):
        if pid != own and _can_write(pid, (found.st_dev, found.st_ino)):
            return pid
    return None


def _can_write(pid: int, log: "tuple[int, int]") -> bool:
    try:
        names = os.listdir(f"/proc/{pid}/fd")  # noqa: PTH208 (names are wanted)
    except OSError:
        return False  # it has ended, or belongs to somebody else
    for name in names:
        with contextlib.suppress(OSError, ValueError, IndexError):
            found = os.stat(f"/proc/{pid}/fd/{name}")  # noqa: PTH116 (kept cheap)
            if (found.st_dev, found.st_ino) == log:
                with open(f"/proc/{pid}/fdinfo/{name}", encoding="ascii") as file:
                    flags = int(file.read().partition("flags:")[2].split()[0], 8)
                if flags & _ACCESS_MODE != os.O_RDONLY:
                    return True
    return False


def _close_all_but(kept: Iterable[int]) -> None:
    """It must hold nothing open that others wait on, such as the pipe of `coach run … | tee` when that stream
    is not its own."""
    wanted = set(kept)
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        if standard not in wanted:
            os.dup2(null, standard)
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 (names are wanted)
        if int(name) > 2 and int(name) not in wanted:
            with contextlib.suppress(OSError):
                os.close(int(name))
