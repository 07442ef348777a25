"""Kill a program at a known boundary between two system calls.

strace attaches to a waiting fork of this process. So it traces neither the start of an interpreter nor its
imports, and a kill is cheap. A first run without a kill lists the calls that change something: files that the
program makes, writes, renames and removes, and processes that it starts. A moment is one of these calls. The
program is killed as it enters the call, so all earlier calls have happened and this one has not.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from tests.waiting import wait_until

FILE_CALLS = (
    *("openat", "mkdir", "rename", "unlink", "unlinkat", "rmdir", "symlink", "link", "write", "fsync"),
    *("utimensat", "fchmod", "chmod", "sendfile", "copy_file_range", "ftruncate"),
)
PROCESS_CALLS = ("vfork", "fork", "clone", "clone3", "kill", "prctl", "setsid")
CHANGING = (*FILE_CALLS, *PROCESS_CALLS)
"""What strace is to show. Of them a moment is made where the call changes something."""

_CALL = re.compile(r"^(?:\d+ +)?(?P<name>\w+)\((?P<arguments>.*)\) += (?P<result>-?\d+|\?)")
_PATH = re.compile(r'[<"]((?:[^"<>]*/)[^"<>]*)[">]')
_TEMPORARY = re.compile(r"\.\d+\.[0-9a-f]{8}\b|\.[0-9a-f]{16}\.\w{8}\b")
_PR_SET_PTRACER = 0x59616D61
_ANYBODY = ctypes.c_ulong(-1)


@dataclass(frozen=True, slots=True)
class Moment:
    """Just before the `nth` call of this name."""

    call: str
    nth: int
    what: str
    """The call as a person reads it: `rename run.json`."""

    @property
    def injection(self) -> str:
        return f"{self.call}:signal=KILL:when={self.nth}"


@dataclass(frozen=True, slots=True)
class Program:
    """A forked program that waits for strace."""

    pid: int
    _go: int

    def trace(self, output: Path, *options: str) -> subprocess.Popen[bytes]:
        """Let strace attach, then let the program run."""
        tracer = subprocess.Popen(
            ["strace", "-qq", "-o", str(output), *options, "-p", str(self.pid)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        wait_until(lambda: _tracer_of(self.pid) or tracer.poll() is not None, 10, "strace has attached")
        assert tracer.poll() is None, tracer.stderr.read() if tracer.stderr else ""
        self.go()
        return tracer

    def go(self) -> None:
        """Let it run."""
        os.write(self._go, b"g")
        os.close(self._go)

    def wait(self, timeout_s: float = 60.0) -> int:
        """Its exit status, negative for a signal."""
        found: list[int] = []

        def has_ended() -> bool:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                found.append(os.waitstatus_to_exitcode(status))
            return bool(pid)

        wait_until(has_ended, timeout_s, f"process {self.pid} ends", every_s=0.005)
        return found[0]


def forked(body: Callable[[], int]) -> Program:
    """A fork of this process that runs `body` on request. It has its own session, as from a terminal."""
    may_go, go = os.pipe()
    pid = os.fork()
    if pid:
        os.close(may_go)
        return Program(pid, go)
    os.close(go)
    return _be_it(body, may_go)


def _be_it(body: Callable[[], int], may_go: int) -> NoReturn:
    status = 1
    try:
        os.setsid()
        ctypes.CDLL(None).prctl(_PR_SET_PTRACER, _ANYBODY, 0, 0, 0)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.alarm(120)
        os.read(may_go, 1)
        os.close(may_go)
        status = body()
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def moments_of(trace: str, roots: Sequence[Path]) -> list[Moment]:
    """The calls of a trace that change something below `roots`, or start or signal a process."""
    seen: Counter[str] = Counter()
    found = []
    for line in trace.splitlines():
        match = _CALL.match(line)
        if match is None:
            continue
        name, arguments = match["name"], match["arguments"]
        seen[name] += 1
        if name in PROCESS_CALLS:
            found.append(Moment(name, seen[name], name))
            continue
        if name == "openat" and "O_CREAT" not in arguments:
            continue
        path = next((p for p in _PATH.findall(arguments) if _is_below(p, roots)), None)
        if path is not None:
            names = _TEMPORARY.sub(".*", Path(path).name)
            found.append(Moment(name, seen[name], f"{name} {names}"))
    first = next((index for index, each in enumerate(found) if each.call in FILE_CALLS), 0)
    return found[first:]  # before it, Slurm is only asked


def spread(moments: Sequence[Moment], number: int) -> list[Moment]:
    """`number` of the moments at even distances, with the first and the last."""
    if len(moments) <= number:
        return list(moments)
    step = (len(moments) - 1) / max(1, number - 1)
    return [moments[round(index * step)] for index in range(number)]


def _is_below(path: str, roots: Sequence[Path]) -> bool:
    return any(path.startswith(f"{root}/") for root in roots)


def _tracer_of(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    return "TracerPid:\t0\n" not in status
