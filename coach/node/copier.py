"""The process that passes on a command's output, even after its `coach run` was killed.

It is a fork in its own session. The command prints to a pseudo-terminal or a pipe, and this process reads the
other side, so a full disk or a closed reader does not affect the command.

On a terminal, the copier writes all output to the log and to the terminal, and the command waits while the
terminal does. Output for a pipe goes to the log and is passed on from there, so the command waits for no
reader. If the log takes no more, for example on a full disk, the output is passed on directly. The process
ends when no more can be printed and all was passed on.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import socket
import termios
import threading
import time
from typing import Callable, Iterable, List, NamedTuple, Optional

from coach.node.processes import read_stat

ENDED, DRAINED, FULL, LOST = b"E", b"D", b"F", b"L"
"""Messages on the control socket. From `coach run`: ENDED, the command has ended. From the copier: DRAINED,
all output was passed on; FULL, the user was told that the disk is full; LOST, some output was not kept and
the user could not be told."""

_CHUNK_BYTES = 64 * 1024
_ALIVE_INTERVAL_S = 0.5
_IS_FULL = {errno.ENOSPC, errno.EDQUOT}


class Stream(NamedTuple):
    """One stream of the command. All fields are file descriptors of `coach run`."""

    source: int
    """The reading side of the command's pseudo-terminal or pipe."""
    target: int
    """The destination: standard output or standard error of `coach run`."""
    log: int
    """The log, opened for writing."""
    logged: Optional[int] = None
    """The log, opened for reading: output is passed on from it at the reader's own pace. None: output is
    passed on directly, and the command waits for its reader."""


class Command(NamedTuple):
    """The command's process. The kernel may reuse its pid alone."""

    pid: int
    start_ticks: int

    @property
    def is_alive(self) -> bool:
        stat = read_stat(self.pid)
        return stat is not None and stat.start_ticks == self.start_ticks


def copy(streams: List[Stream], control: socket.socket, place: str, told: Optional[int]) -> None:
    """In the forked process: pass on all streams until they end.

    `place` is the directory of the logs. If a log takes no more, one message goes to `told`, the target that
    holds standard error.
    """
    os.setsid()
    _close_all_but({control.fileno(), *(fd for stream in streams for fd in stream if fd is not None)})
    ended, end = os.pipe()
    trouble = _Trouble(control, place, told)
    copies = [_Copy(stream, ended, trouble) for stream in streams]
    threads = [threading.Thread(target=each.run, daemon=True) for each in copies]
    for thread in threads:
        thread.start()
    _await_end(control, lambda: any(thread.is_alive() for thread in threads))
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
    """Wait for the command's end. `coach run` reports it. If `coach run` was killed, poll the command
    itself."""
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
    """The started command, in the form in which `coach run` sends it on the control socket."""
    return b"%d %d\n" % command


class _Trouble:
    """Tells the reader of standard error once that the log takes no more."""

    def __init__(self, control: socket.socket, place: str, told: Optional[int]) -> None:
        self._control, self._place, self._told = control, place, told
        self._lock = threading.Lock()
        self._is_said = False

    def say(self, error: OSError) -> None:
        with self._lock:
            if self._is_said:
                return
            self._is_said = True
        is_full = error.errno in _IS_FULL
        rest = "nothing is recorded while this lasts" if is_full else "its output is not kept"
        words = f"coach run: {self._place}: {error.strerror}; the command goes on, {rest}\n"
        is_told = self._told is not None and _write(self._told, words.encode("utf-8", "surrogateescape"))
        with contextlib.suppress(OSError):
            if is_full or not is_told:
                self._control.send(FULL if is_told else LOST)


class _Log:
    """The log that the copier writes. After a time without room it notes how many bytes are missing."""

    def __init__(self, log: int, trouble: _Trouble) -> None:
        self._log = log
        self._trouble = trouble
        self._num_lost = 0

    def keep(self, data: bytes) -> int:
        """Write as much of the data as possible. Returns the number of bytes written."""
        if self._num_lost:
            note = f"\n[coach run: {self._num_lost} bytes of the output are not kept here]\n".encode()
            if self._append(note) < len(note):
                self._num_lost += len(data)
                return 0
        num_kept = self._append(data)
        self._num_lost = len(data) - num_kept
        return num_kept

    def _append(self, data: bytes) -> int:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._log, rest) :]
            except OSError as error:
                self._trouble.say(error)
                break
        return len(data) - len(rest)


class _Copy:
    """Keeps and passes on one stream, in its own thread."""

    def __init__(self, stream: Stream, ended: int, trouble: _Trouble) -> None:
        self.is_drained = threading.Event()
        self._stream = stream
        self._ended = ended
        """Readable as soon as the command has ended."""
        self._is_terminal = os.isatty(stream.source)
        self._log = _Log(stream.log, trouble)
        self._passing: Optional[_Passing] = None
        if stream.logged is not None:
            self._passing = _Passing(stream.logged, stream.target, self.is_drained)
        self._has_reader = True

    def run(self) -> None:
        # It reads on without a reader: otherwise the command would wait for ever, or its pipe would kill it.
        try:
            for data in iter(self._next, b""):
                self._take(data)
        finally:
            if self._passing is not None:
                self._passing.finish()
            self.is_drained.set()

    def _next(self) -> bytes:
        """Wait for the next bytes; empty at the end."""
        poll = select.poll()
        poll.register(self._stream.source, select.POLLIN)
        if not self.is_drained.is_set():
            poll.register(self._ended, select.POLLIN)
        while True:
            ready = {fd for fd, _ in poll.poll()}
            if self._stream.source in ready:
                if self._is_terminal:
                    fit_window(self._stream.target, self._stream.source)
                try:
                    return os.read(self._stream.source, _CHUNK_BYTES)
                except OSError:
                    return b""  # no process has the pseudo-terminal open any more
            poll.unregister(self._ended)
            if self._passing is None:
                self.is_drained.set()
            else:
                self._passing.tell_when_drained()

    def _take(self, data: bytes) -> None:
        num_kept = self._log.keep(data)
        if self._passing is not None:
            if num_kept == len(data) and self._passing.is_running:
                self._passing.has_more()
                return
            self._passing.finish()  # first pass on the bytes already in the log
            self._has_reader, self._passing = self._passing.has_reader, None
            data = data[num_kept:]
        if self._stream.logged is not None:
            with contextlib.suppress(OSError):  # a copier that replaces this one starts after these bytes
                os.lseek(self._stream.logged, 0, os.SEEK_END)
        if self._has_reader:
            self._has_reader = _write(self._stream.target, data)


class _Passing:
    """Passes a log on while it grows, in its own thread."""

    def __init__(self, logged: int, target: int, is_drained: threading.Event) -> None:
        self.has_reader = True
        self.is_running = True
        self._logged, self._target = logged, target
        self._is_drained = is_drained
        self._is_over = self._is_asked = False
        self._news = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def has_more(self) -> None:
        """Report that the log has grown."""
        self._news.set()

    def tell_when_drained(self) -> None:
        """No more output will come: report when the whole log was passed on."""
        self._is_asked = True
        self._news.set()
        if not self.is_running:
            self._is_drained.set()

    def finish(self) -> None:
        """Wait until the whole log was passed on."""
        self._is_over = True
        self._news.set()
        self._thread.join()

    def _run(self) -> None:
        with contextlib.suppress(OSError):  # the log can no longer be read
            while self.has_reader:
                self._news.clear()  # cleared before the check, so that no news is missed between them
                is_over, is_asked = self._is_over, self._is_asked
                data = os.read(self._logged, _CHUNK_BYTES)
                if data:
                    self.has_reader = _write(self._target, data)
                    continue
                if is_asked:
                    self._is_drained.set()
                if is_over:
                    break
                self._news.wait()
        self.is_running = False
        if self._is_asked:
            self._is_drained.set()


def _write(target: int, data: bytes) -> bool:
    """Write all of the data, however long that takes.

    Returns False if it cannot be written: the reader is gone, or the disk is full.
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


def _close_all_but(kept: Iterable[int]) -> None:
    """Close all other descriptors. The copier must not hold open what others wait for, such as the pipe of
    `coach run … | tee` if it does not write to it."""
    wanted = set(kept)
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        if standard not in wanted:
            os.dup2(null, standard)
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 (names are wanted)
        if int(name) > 2 and int(name) not in wanted:
            with contextlib.suppress(OSError):
                os.close(int(name))
