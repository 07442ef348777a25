"""A file system that never answers: every call on a path below it hangs until the server stops.

It is a FUSE file system whose server reads no request, so the kernel waits as it waits for a dead NFS server.
Mounted over a home, it hides the files; after the unmount they are back.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

_FUSE = "/dev/fuse"
_libc = ctypes.CDLL(None, use_errno=True)


def why_not() -> str | None:
    """The reason why this file system cannot be mounted here, or None."""
    if os.geteuid() != 0:
        return "not root"
    try:
        os.close(os.open(_FUSE, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        return f"{_FUSE}: {error.strerror}"
    return None


@contextlib.contextmanager
def hanging(folder: Path) -> Iterator[None]:
    """Make every call below `folder` hang. At the end waiting calls get an error, and the folder is back."""
    server = os.open(_FUSE, os.O_RDWR | os.O_CLOEXEC)
    try:
        options = f"fd={server},rootmode=40700,user_id=0,group_id=0,allow_other".encode()
        if _libc.mount(b"hanging", os.fsencode(folder), b"fuse", 0, options):
            raise OSError(ctypes.get_errno(), "mount of a FUSE file system", str(folder))
        try:
            yield
        finally:
            subprocess.run(["umount", "-l", folder], check=True)
    finally:
        os.close(server)
