"""Die with the parent: the kernel ends a helper process whose parent has gone, even by SIGKILL."""

from __future__ import annotations

import contextlib
import os
import signal

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Ask the kernel to kill this process when `parent` ends; end at once if it has ended already.

    Where the C library cannot be called, nothing is asked: callers that wait in a loop look at os.getppid() as well.
    """
    with contextlib.suppress(Exception):
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)
