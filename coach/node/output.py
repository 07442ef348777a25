"""The command's standard output and error: the run directory keeps them, or names the file that does.

A stream that goes to a regular file stays as it is, and run.json names the file. For a terminal the command
gets a pseudo-terminal, for any other target a pipe. Only the copier writes the log, so a full disk does not
affect the command. `coach run` also holds the reading side, so a new copier can replace one that was killed.
Two streams with one target share one log and keep their order. If a log or a pseudo-terminal cannot be made,
the stream stays as if there were no coach.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import socket
import stat
import sys
import termios
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Set, Tuple

from coach import runs
from coach.harmless import printable
from coach.node.copier import DRAINED, ENDED, FULL, LOST, Command, Stream, copy, encode, fit_window
from coach.node.processes import read_stat

_STDOUT, _STDERR = 1, 2
_NAMES = {_STDOUT: "stdout", _STDERR: "stderr"}
_LOG_WAIT_S = 2.0
_LOOK_INTERVAL_S = 0.1
_MIN_LIFE_S = 1.0
"""A copier that ends sooner than this is not started again."""
_F_SETPIPE_SZ, _PIPE_BYTES = 1031, 1 << 20
_LOG_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


class _Kept(NamedTuple):
    """One log: the descriptor that the command prints to, and the stream that the copier keeps and passes
    on."""

    command_end: int
    stream: Stream


class Output:
    """The streams of one command, as `coach run` holds them. No method raises."""

    def __init__(self) -> None:
        self.of_command: Dict[int, int] = {}
        """1 and 2 → the descriptor that the command gets in its place."""
        self.places: Dict[str, Any] = {}
        """For run.json: `stdout` and `stderr` → a name in the run directory, or the path of a file elsewhere;
        with `_start_bytes` appended, the file's size before the run.
        """
        self._streams: List[Stream] = []
        self._control: Optional[socket.socket] = None
        self._said = b""
        """The message that the copier gets about the command; a new copier gets it too."""
        self._place_of_logs = ""
        self._told: Optional[int] = None
        """The target that holds standard error, if the copier writes to it."""
        self.has_told_of_full_disk = False
        self._has_untold_loss = False
        self._is_drained = True
        self._started_s = 0.0
        self.copier_pid: Optional[int] = None

    @classmethod
    def of_run(cls, paths: runs.RunPaths, env: Mapping[str, str]) -> "Output":
        """Find the targets of standard output and error, and make the logs that are needed."""
        output = cls()
        output._place_of_logs = str(paths.run_dir)
        kept: Dict[Tuple[int, int, int], int] = {}
        for number in (_STDOUT, _STDERR):
            with contextlib.suppress(OSError, termios.error):
                output._take(number, paths, env, kept)
        if output._streams:
            found = os.fstat(_STDERR)
            output._told = kept.get((found.st_dev, found.st_ino, found.st_rdev))
            output._start_copier()
        return output

    def _take(
        self, number: int, paths: runs.RunPaths, env: Mapping[str, str], kept: Dict[Tuple[int, int, int], int]
    ) -> None:
        found = os.fstat(number)
        target = (found.st_dev, found.st_ino, found.st_rdev)
        name = _NAMES[number]
        if target in kept:
            self.of_command[number] = self.of_command[kept[target]]
            self.places[name] = self.places[_NAMES[kept[target]]]
        elif stat.S_ISREG(found.st_mode):
            if found.st_nlink:
                path = os.readlink(f"/proc/self/fd/{number}")  # noqa: PTH115 (the text is wanted)
                # In a job the output file begins with the job, not with the command.
                self._place(name, path, 0 if env.get("SLURM_JOB_ID") else _position(number))
        elif os.isatty(number) or not env.get("SLURM_STEP_ID"):
            log = paths.stdout_log if number == _STDOUT else paths.stderr_log
            taken = _keep(number, found, log)
            kept[target] = number
            self.of_command[number] = taken.command_end
            self._place(name, log.name, log.stat().st_size)
            self._streams.append(taken.stream)

    def _place(self, name: str, place: str, start_bytes: int) -> None:
        self.places[name] = place
        if start_bytes:
            self.places[f"{name}_start_bytes"] = start_bytes

    def _start_copier(self) -> None:
        own, others = socket.socketpair()
        self._started_s = time.monotonic()
        try:
            pid = os.fork()
        except OSError:
            self._pass_by()
            return
        if pid == 0:
            status = 1
            try:
                own.close()
                copy(self._streams, others, self._place_of_logs, self._told)
                status = 0
            finally:
                os._exit(status)
        others.close()
        self._control, self.copier_pid, self._is_drained = own, pid, False

    def _pass_by(self) -> None:
        self.close_command_ends()
        self.places, self._streams = {}, []

    def started(self, pid: int) -> None:
        """The command runs: `coach run` no longer needs the command's ends."""
        self.close_command_ends()
        found = read_stat(pid)
        if found is not None:
            self._said = encode(Command(pid, found.start_ticks))
            self._tell(self._said)

    def say(self, line: str) -> None:
        """Print the reason why the command did not start, in place of its standard error."""
        with contextlib.suppress(OSError):
            words = f"{printable(line)}\n".encode()
            os.write(self.of_command.get(_STDERR, _STDERR), words)
        self.close_command_ends()

    def close_command_ends(self) -> None:
        """Close the descriptors that only the command may hold open."""
        for descriptor in set(self.of_command.values()):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self.of_command = {}

    def look_after_copier(self, options: int = os.WNOHANG) -> None:
        """Start the copier again if somebody killed it: a command on a terminal would wait for it for
        ever."""
        if self.copier_pid is None:
            return
        try:
            pid, status = os.waitpid(self.copier_pid, options)
        except ChildProcessError:  # SIGCHLD is ignored here, so the kernel has reaped it
            pid, status = self.copier_pid, 0
        if pid == 0:
            return
        self.copier_pid, self._is_drained = None, True
        if status != 0 and time.monotonic() - self._started_s > _MIN_LIFE_S:
            self._start_copier()
            self._tell(self._said)

    def fit_window(self) -> bool:
        """Give the command's terminal the new size. Returns True if it has a terminal.

        The command must then get a new signal: the real terminal's own signal may have reached it earlier.
        """
        terminals = [each for each in self._streams if os.isatty(each.source)]
        for each in terminals:
            fit_window(each.target, each.source)
        return bool(terminals)

    def say_end(self) -> None:
        """The command has ended. Wait a moment until all its output is in the logs."""
        self._said += ENDED
        self._tell(ENDED)
        self._await_drained(time.monotonic() + _LOG_WAIT_S)

    def await_reader(self, ending: Set[signal.Signals]) -> None:
        """Wait until all output is passed on, for as long as its reader takes.

        A signal to end ends the wait.
        """
        while not self._await_drained(time.monotonic() + _LOOK_INTERVAL_S):
            if signal.sigpending() & ending:
                return

    def tell_loss(self) -> None:
        """Print at the end what the copier could not: that the logs are incomplete."""
        if self._has_untold_loss:
            words = "the disk was full for a time, so the stored output is incomplete"
            with contextlib.suppress(OSError, ValueError):
                print(f"coach run: {self._place_of_logs}: {words}", file=sys.stderr, flush=True)

    def _await_drained(self, deadline_s: float) -> bool:
        while not self._is_drained and self._control is not None:
            if not select.select([self._control], [], [], max(0.0, deadline_s - time.monotonic()))[0]:
                return False
            with contextlib.suppress(OSError):
                word = self._control.recv(1)
                self.has_told_of_full_disk = self.has_told_of_full_disk or word == FULL
                self._is_drained = word == DRAINED
                self._has_untold_loss = self._has_untold_loss or word == LOST
                if word:
                    continue
            self.look_after_copier(options=0)  # the socket is closed, so the copier is ending
        return True

    def _tell(self, words: bytes) -> None:
        if self._control is not None:
            with contextlib.suppress(OSError):
                self._control.send(words, socket.MSG_NOSIGNAL)


def _position(number: int) -> int:
    """The offset of the next byte written."""
    appends = fcntl.fcntl(number, fcntl.F_GETFL) & os.O_APPEND
    return os.fstat(number).st_size if appends else os.lseek(number, 0, os.SEEK_CUR)


def _keep(number: int, found: os.stat_result, log: Path) -> _Kept:
    """Make the log of a stream, and the descriptor that the command prints to. Raises OSError or
    termios.error."""
    written = os.open(str(log), _LOG_FLAGS, 0o600)
    try:
        if os.isatty(number):
            return _on_terminal(number, written)
        is_null = stat.S_ISCHR(found.st_mode) and found.st_rdev == os.stat(os.devnull).st_rdev  # noqa: PTH116
        logged = None
        if not is_null:
            logged = os.open(str(log), os.O_RDONLY | os.O_CLOEXEC)
            os.lseek(logged, 0, os.SEEK_END)
        source, command_end = os.pipe()
    except (OSError, termios.error):
        os.close(written)
        raise
    with contextlib.suppress(OSError):  # a file system that blocks for a moment must not hold up the command
        fcntl.fcntl(command_end, _F_SETPIPE_SZ, _PIPE_BYTES)
    return _Kept(command_end, Stream(source, number, written, logged))


def _on_terminal(number: int, log: int) -> _Kept:
    source, command_end = os.openpty()
    fit_window(number, source)
    # The same settings as the terminal's, but output arrives unchanged: the terminal itself turns a newline
    # into CR LF.
    attributes = termios.tcgetattr(number)
    attributes[1] &= ~termios.OPOST
    attributes[3] &= ~(termios.ECHO | termios.ECHONL)
    termios.tcsetattr(command_end, termios.TCSANOW, attributes)
    return _Kept(command_end, Stream(source, number, log))
