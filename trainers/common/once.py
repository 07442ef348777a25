"""Made once, by one of many processes: the others wait for it, on any node.

Ranks of several jobs may want the same generated data in the same minute, on a network file system that has
no flock and whose clock is not that of the nodes. So the lock is a file that only one process can make, its
owner shows that it is alive by touching it, and its age is judged by the file server's clock alone.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import tempfile
import time
from pathlib import Path
from typing import Callable, Iterator

STALE_S = 60.0
"""An owner that has not touched its lock for this time is dead: ten times the time of one part of the
data."""
_RETRY_S = 0.1
_AGE_CHECK_INTERVAL_S = 1.0


def made_once(final: Path, make: Callable[[Path, Callable[[], None]], None]) -> bool:
    """Have the folder `final`, and return True if this process made it. Any number of processes may call this
    at once, on any number of nodes.

    `make` fills a new folder, and calls the function that it gets from time to time, to be known alive. Only
    this user can write in a folder that is made here; another's folder of that name raises OSError.
    """
    is_made_here = False
    final.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not final.exists():
        with one_at_a_time(final.with_name(f".{final.name}.lock"), final.exists) as show_alive:
            if not final.exists():
                unfinished = Path(tempfile.mkdtemp(prefix=f".{final.name}.", dir=final.parent))
                try:
                    make(unfinished, show_alive)
                    try:
                        unfinished.rename(final)
                    except OSError:
                        if not final.exists():  # otherwise another process was first, and made the same
                            raise
                    is_made_here = True
                finally:
                    shutil.rmtree(unfinished, ignore_errors=True)
    found = final.stat()
    if found.st_uid not in (os.getuid(), 0) or found.st_mode & 0o022:
        raise PermissionError(errno.EPERM, "another user may have written it", str(final))
    return is_made_here


@contextlib.contextmanager
def one_at_a_time(lock: Path, is_made: Callable[[], bool]) -> Iterator[Callable[[], None]]:
    """Wait until the thing is made or this process has the lock. Yields a function that its maker calls from
    time to time, to be known alive.

    A maker that is stopped for longer than a lock lives may meet a second maker: the result has to become
    visible by a rename.
    """
    checked_s = time.monotonic()
    while not _make(lock):
        if is_made():
            yield lambda: None
            return
        if time.monotonic() - checked_s >= _AGE_CHECK_INTERVAL_S:
            checked_s = time.monotonic()
            _break_if_stale(lock)
        time.sleep(_RETRY_S)
    own = _identity(lock)

    def show_alive() -> None:
        nonlocal own
        with contextlib.suppress(OSError):
            if _identity(lock) == own:
                os.utime(lock)  # without times: the file server's own clock
                own = _identity(lock)

    try:
        yield show_alive
    finally:
        with contextlib.suppress(OSError):
            if _identity(lock) == own:
                lock.unlink()


def _make(lock: Path) -> bool:
    try:
        descriptor = os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        return False
    # For people; nothing reads it, and where the disk is full it stays empty.
    with contextlib.suppress(OSError), open(descriptor, "w") as file:
        file.write(f"{os.uname().nodename} {os.getpid()} {time.time():.0f}\n")
    return True


def _break_if_stale(lock: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        stale = _identity(lock)
        if _server_time_ns(lock) - stale[1] <= STALE_S * 1e9:
            return
        # Move it before removing it: a late process has caught a living owner's lock, sees it, and gives it
        # back.
        moved = _unique(lock)
        lock.rename(moved)
        if _identity(moved) != stale:
            with contextlib.suppress(OSError):
                os.link(moved, lock)
        moved.unlink()


def _identity(path: Path) -> tuple[int, int]:
    """The identity of a lock among others of the same name: an inode's number is given anew, but not with the
    same time."""
    with open(
        path
    ) as file:  # opening a file makes the node ask the file server; the answer of stat may be a minute old
        found = os.fstat(file.fileno())
    return found.st_ino, found.st_mtime_ns


def _server_time_ns(lock: Path) -> int:
    probe = _unique(lock)
    with open(probe, "x") as file:
        time_ns = os.fstat(file.fileno()).st_mtime_ns
    probe.unlink()
    return time_ns


def _unique(lock: Path) -> Path:
    return lock.with_name(f"{lock.name}.{os.getpid()}.{secrets.token_hex(4)}")
