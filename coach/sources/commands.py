"""Run one client of the system, and never leave it behind, however coach itself ends.

A client that waits for a dead controller hangs for many seconds, and on a login node nobody cleans up after a coach whose terminal was
closed or that was killed. A parent that dies by KILL can clean up nothing, and the kernel's own means (PR_SET_PDEATHSIG) needs Python
code between fork and exec, which may deadlock beside other threads, or a `setpriv` that RHEL 8 does not have; and it would miss the
children of a site's wrapper script. So every client is the leader of a process group, and a shell of its own, which holds one end of a
pipe, ends that group as soon as the other end has gone without a word.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

_END_GROUP_UNLESS_TOLD = 'read -r _ || kill -9 "-$1"'


@dataclass(frozen=True, slots=True)
class Finished:
    """How a command ended, and what it said."""

    returncode: int
    stdout: bytes
    stderr: bytes


def run_command(argv: Sequence[str], env: Mapping[str, str], timeout_s: float) -> Finished:
    """Run to the end, without a shell and without input. Raises OSError, or subprocess.TimeoutExpired when it was ended for its time."""
    with subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=env,
        process_group=0,
    ) as process:
        try:
            with _ended_with_this_process(process.pid, env):
                stdout, stderr = process.communicate(timeout=timeout_s)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return Finished(process.returncode, stdout, stderr)


@contextlib.contextmanager
def _ended_with_this_process(group: int, env: Mapping[str, str]) -> Iterator[None]:
    with subprocess.Popen(
        ["/bin/sh", "-c", _END_GROUP_UNLESS_TOLD, "sh", str(group)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=env,
        start_new_session=True,
    ) as watcher:
        try:
            yield
        finally:
            assert watcher.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                watcher.stdin.write(b"\n")
                watcher.stdin.flush()
