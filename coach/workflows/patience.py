"""Report that a file system does not answer while a person waits for it, and let Ctrl-C end the program.

A call to a dead file server blocks until the server is back. Only a signal that kills the process interrupts
it, and Python's own handler of Ctrl-C waits for the call. Without a report nobody would know why a command,
or the start of the screens, takes long.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from coach import runs
from coach.sources.machine.disk import words_of_hang

PATIENCE_S = 5.0
"""Seconds. A command may take long for good reasons: the file systems are tried only after this time."""
ANSWER_S = 3.0
_LOOK_S = 0.05


@contextlib.contextmanager
def patience(after_s: float = PATIENCE_S, answer_s: float = ANSWER_S) -> Iterator[None]:
    """While the block runs, report on stderr file systems that do not answer. Leaves no thread behind."""
    has_ended = threading.Event()
    teller = threading.Thread(target=_tell, args=(has_ended, after_s, answer_s), name="patience", daemon=True)
    teller.start()
    try:
        yield
    finally:
        has_ended.set()
        teller.join()
        handler = signal.getsignal(signal.SIGINT)
        if handler is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)


def _tell(has_ended: threading.Event, after_s: float, answer_s: float) -> None:
    if has_ended.wait(after_s):
        return
    said = dict.fromkeys(words_of_hang(path) for path in silent(_places(), answer_s, has_ended))
    if said and not has_ended.is_set():
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            _let_ctrl_c_kill()
        for words in said:
            sys.stderr.write(f"coach: {words}; Ctrl-C ends coach\n")


def _let_ctrl_c_kill() -> None:
    """Reset the handler through the C library: Python can do it only in the main thread, which is blocked."""
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes  # a Python may be built without it; only a hang needs it

        ctypes.CDLL(None).signal(signal.SIGINT, None)


def _places() -> list[Path]:
    """The directories that coach uses, and the working directory."""
    env = os.environ
    kept = [runs.default_config_dir(env), runs.default_runs_root(env), runs.default_cache_dir(env)]
    return [*kept, Path("/proc/self/cwd/.")]


def silent(paths: Sequence[Path], limit_s: float, has_ended: threading.Event) -> list[Path]:
    """The paths that did not answer within `limit_s`."""
    answered = {path: threading.Event() for path in paths}
    for path, event in answered.items():
        threading.Thread(target=_ask, args=(path, event), name="asking", daemon=True).start()
    end_s = time.monotonic() + limit_s
    while time.monotonic() < end_s and not all(event.is_set() for event in answered.values()):
        if has_ended.wait(_LOOK_S):
            break
    return [path for path, event in answered.items() if not event.is_set()]


def _ask(path: Path, answered: threading.Event) -> None:
    with contextlib.suppress(OSError):
        path.stat()
    answered.set()
