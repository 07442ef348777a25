"""The baseline in a container of its own, as a runtime would make it without being told more.

python trainers/drill_narrow_shelf.py --epochs 1
"""

from __future__ import annotations

import ctypes
import os

import baseline
from common.distributed import TrainerError, run

CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x00020000, 0x4000, 0x40000


def enter_container() -> None:
    """From here on this process and its children see other mounts than the machine; nobody else does."""
    libc = ctypes.CDLL(None, use_errno=True)
    steps = (
        lambda: libc.unshare(CLONE_NEWNS),
        lambda: libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None),
        lambda: libc.mount(b"shm", b"/dev/shm", b"tmpfs", 0, b"size=256k"),
    )
    for step in steps:
        if step() != 0:
            raise TrainerError(f"no container can be made here: {os.strerror(ctypes.get_errno())}")


def main() -> None:
    enter_container()
    baseline.main()


if __name__ == "__main__":
    run(main)
