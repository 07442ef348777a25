"""Run a command, and never leave it behind, however coach itself ends.

A Slurm client that waits for a dead controller hangs for many seconds, and on a login node nobody cleans up
after a coach that was killed or whose terminal was closed. A process that dies by SIGKILL cannot clean up.
The kernel's own means, PR_SET_PDEATHSIG, needs either Python code between fork and exec, which may deadlock
beside other threads, or a `setpriv` that RHEL 8 does not have; and it misses the children of a site's wrapper
script. So every command runs in the process group of a shell that was started before it. The shell reads from
a pipe, and kills its group if the pipe closes without a line. At no moment does a command run unwatched.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

_END_GROUP_UNLESS_TOLD = "trap '' HUP; read -r _ || kill -9 -$$"
_ASK_GROUP_TO_END_UNLESS_TOLD = "trap '' HUP TERM; read -r _ || { kill -TERM -$$; sleep 3; kill -9 -$$; }"
_PATIENCE_S = 3.0
_GLANCE_S = 0.02
_MAX_LIMITS = 5
_PIECE_BYTES = 1 << 16
"""The capacity of a pipe."""
MAX_OUTPUT_BYTES = 1 << 30
"""Twice what squeue prints about 50,000 jobs with the longest lines: 10 KiB each. The path of the working
directory has 4 KiB (PATH_MAX), 33 fields with their separators have 1 KiB, and the lists of nodes, TRES and
dependencies the rest. A program that prints more is no client of Slurm."""
MAX_ERROR_BYTES = 1 << 20
"""Of standard error."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The exit status and the output of a command."""

    returncode: int
    stdout: bytes
    stderr: bytes


def run_command(
    argv: Sequence[str],
    env: Mapping[str, str],
    timeout_s: float,
    directory: str | None = None,
    on_output: Callable[[bytes], object] | None = None,
    on_start: Callable[[Callable[[], object] | None], object] = lambda kill: None,
) -> Finished:
    """Run a command to its end, in `directory` if given, without a shell and without input.

    `on_output` receives the output while the command prints it; `stdout` then stays empty. `on_start` gets a
    function that kills the command, and None when it has ended.

    Raises OSError, also if the command was killed because it printed too much, or subprocess.TimeoutExpired
    if it was killed because of its time limit.
    """
    with (
        _watched_group(env) as group,
        _started(argv, env, group, directory) as process,
    ):
        on_start(partial(os.killpg, group, signal.SIGKILL))
        try:
            pieces: list[bytes] = []
            most_s = timeout_s if on_output is None else _MAX_LIMITS * timeout_s
            stderr = _pass_on(process, on_output or pieces.append, timeout_s, most_s)
        except BaseException:
            os.killpg(group, signal.SIGKILL)  # the shell is not reaped yet: the group number is still valid
            raise
        finally:
            on_start(None)
    return Finished(process.returncode, b"".join(pieces), stderr)


def _pass_on(
    process: subprocess.Popen[bytes], on_output: Callable[[bytes], object], timeout_s: float, most_s: float
) -> bytes:
    """Pass on the output of a process until it ends; returns its stderr. Raises subprocess.TimeoutExpired,
    and OSError for too much output.

    `timeout_s` limits the silence, because a slow reader delays the process, `most_s` the whole time.
    """
    assert process.stdout is not None
    assert process.stderr is not None
    start_s = spoke_s = time.monotonic()
    errors: list[bytes] = []
    left_bytes: dict[object, int] = {process.stdout: MAX_OUTPUT_BYTES, process.stderr: MAX_ERROR_BYTES}

    def left_s() -> float:
        left = min(spoke_s + timeout_s, start_s + most_s) - time.monotonic()
        if left <= 0:
            raise subprocess.TimeoutExpired(process.args, timeout_s)
        return left

    with selectors.DefaultSelector() as waiting:
        waiting.register(process.stdout, selectors.EVENT_READ, on_output)
        waiting.register(process.stderr, selectors.EVENT_READ, errors.append)
        while waiting.get_map():
            for key, _ in waiting.select(left_s()):
                if piece := os.read(key.fd, _PIECE_BYTES):
                    left_bytes[key.fileobj] -= len(piece)
                    if left_bytes[key.fileobj] < 0:
                        raise OSError(errno.EFBIG, "printed too much, and was ended")
                    key.data(piece)
                    spoke_s = time.monotonic()
                else:
                    waiting.unregister(key.fileobj)
    process.wait(left_s())
    return b"".join(errors)


@contextlib.contextmanager
def running_command(argv: Sequence[str], env: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command without input, whose output the caller reads. On exit, the command and its children get
    SIGTERM, and SIGKILL after _PATIENCE_S.

    Raises OSError.

    They get SIGTERM first also if this process is killed: if an srun is killed with its whole group, its step
    stays in the job.
    """
    with (
        _watched_group(env, _ASK_GROUP_TO_END_UNLESS_TOLD) as group,
        _started(argv, env, group) as process,
    ):
        try:
            yield process
        finally:
            os.killpg(group, signal.SIGTERM)
            deadline_s = time.monotonic() + _PATIENCE_S
            while (process.poll() is None or _has_members(group)) and time.monotonic() < deadline_s:
                time.sleep(_GLANCE_S)
            os.killpg(group, signal.SIGKILL)


def _started(
    argv: Sequence[str], env: Mapping[str, str], group: int, directory: str | None = None
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=env,
        cwd=directory,
        process_group=group,
    )


def _has_members(group: int) -> bool:
    """True if the group has a process other than the watcher."""
    for name in os.listdir("/proc"):  # noqa: PTH208 (thousands of names, no paths)
        if name.isdecimal() and int(name) != group:
            with contextlib.suppress(ProcessLookupError):
                if os.getpgid(int(name)) == group:
                    return True
    return False


@contextlib.contextmanager
def _watched_group(env: Mapping[str, str], script: str = _END_GROUP_UNLESS_TOLD) -> Iterator[int]:
    """A process group that is killed when this process ends."""
    with subprocess.Popen(
        ["/bin/sh", "-c", script],
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=env,
        process_group=0,
    ) as watcher:
        assert watcher.stdin is not None
        try:
            yield watcher.pid
        finally:
            with contextlib.suppress(BrokenPipeError):
                watcher.stdin.write(b"\n")
