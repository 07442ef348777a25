"""Run one client of the system, and never leave it behind, however coach itself ends.

A client that waits for a dead controller hangs for many seconds, and on a login node nobody cleans up after a
coach whose terminal was closed or that was killed. A parent that dies by KILL can clean up nothing, and the
kernel's own means (PR_SET_PDEATHSIG) needs Python code between fork and exec, which may deadlock beside other
threads, or a `setpriv` that RHEL 8 does not have; and it would miss the children of a site's wrapper script.
So every client runs in the process group of a shell that was there before it: the shell holds one end of a
pipe, and ends its group as soon as the other end has gone without a word. There is no moment at which a
client runs unwatched.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

_END_GROUP_UNLESS_TOLD = "trap '' HUP; read -r _ || kill -9 -$$"
_ASK_GROUP_TO_END_UNLESS_TOLD = "trap '' HUP TERM; read -r _ || { kill -TERM -$$; sleep 3; kill -9 -$$; }"
_PATIENCE_S = 3.0
_GLANCE_S = 0.02
_MAX_LIMITS = 5
_PIECE_BYTES = 1 << 16
"""As much as a pipe holds."""


@dataclass(frozen=True, slots=True)
class Finished:
    """How a command ended, and what it said."""

    returncode: int
    stdout: bytes
    stderr: bytes


def run_command(
    argv: Sequence[str],
    env: Mapping[str, str],
    timeout_s: float,
    directory: str | None = None,
    on_output: Callable[[bytes], object] | None = None,
) -> Finished:
    """Run to the end, in `directory` if there is one, without a shell and without input.

    `on_output` gets what the command prints while it prints it; then `stdout` stays empty.

    Raises OSError, or subprocess.TimeoutExpired when it was ended for its time.
    """
    with (
        _watched_group(env) as group,
        _started(argv, env, group, directory) as process,
    ):
        try:
            if on_output is None:
                stdout, stderr = process.communicate(timeout=timeout_s)
            else:
                stdout, stderr = b"", _pass_on(process, on_output, timeout_s)
        except BaseException:
            os.killpg(group, signal.SIGKILL)  # its shell is not reaped yet, so it is still this group
            raise
    return Finished(process.returncode, stdout, stderr)


def _pass_on(
    process: subprocess.Popen[bytes], on_output: Callable[[bytes], object], timeout_s: float
) -> bytes:
    """Give away what a process prints until it ends; what it said on stderr. Raises
    subprocess.TimeoutExpired.

    The limit is for silence, since whoever reads slowly holds up the process; in all it may take
    _MAX_LIMITS times as long.
    """
    assert process.stdout is not None
    assert process.stderr is not None
    start_s = spoke_s = time.monotonic()
    said: list[bytes] = []

    def left_s() -> float:
        left = min(spoke_s + timeout_s, start_s + _MAX_LIMITS * timeout_s) - time.monotonic()
        if left <= 0:
            raise subprocess.TimeoutExpired(process.args, timeout_s)
        return left

    with selectors.DefaultSelector() as waiting:
        waiting.register(process.stdout, selectors.EVENT_READ, on_output)
        waiting.register(process.stderr, selectors.EVENT_READ, said.append)
        while waiting.get_map():
            for key, _ in waiting.select(left_s()):
                if piece := os.read(key.fd, _PIECE_BYTES):
                    key.data(piece)
                    spoke_s = time.monotonic()
                else:
                    waiting.unregister(key.fileobj)
    process.wait(left_s())
    return b"".join(said)


@contextlib.contextmanager
def running_command(argv: Sequence[str], env: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A command that goes on, without input, its outputs to be read; on leaving it and its children are asked
    to end, and soon made to.

    Raises OSError.

    It is asked also when this process is killed: an srun that is killed with all its group leaves its step
    behind in the job.
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
    """Whether any process but the watcher is still in it."""
    for name in os.listdir("/proc"):  # noqa: PTH208 (thousands of names, no paths)
        if name.isdecimal() and int(name) != group:
            with contextlib.suppress(ProcessLookupError):
                if os.getpgid(int(name)) == group:
                    return True
    return False


@contextlib.contextmanager
def _watched_group(env: Mapping[str, str], script: str = _END_GROUP_UNLESS_TOLD) -> Iterator[int]:
    """A process group that ends with this process."""
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
