"""This rank's last collectives, told from inside while the training hangs.

torch's flight recorder remembers them, but the main thread cannot tell them when it waits for a rank that
never comes. A second thread can. The asking process writes to its pipe and reads the answer from a file in
memory; both are found in /proc/PID/fd, by the file's name.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Callable, Sequence


def offer() -> None:
    """Before the process group is made: the recorder is off unless it has room."""
    os.environ.setdefault("TORCH_FR_BUFFER_SIZE", "2000")
    try:
        from torch._C import _distributed_c10d as c10d
    except ImportError:  # torch without torch.distributed
        return
    # NCCL keeps a recorder of its own, where torch has it; the other is gloo's, from torch 2.9.
    names = ("_dump_nccl_trace_json", "_dump_fr_trace_json")
    dumps = [getattr(c10d, name) for name in names if hasattr(c10d, name)]
    if not dumps:
        return
    asked, bell = os.pipe()
    told = os.memfd_create(f"coach-flight-{bell}")

    def tell() -> None:
        while os.read(asked, 1):
            with contextlib.suppress(Exception):  # the training's own output stays its own
                record = _record(dumps)
                os.ftruncate(told, 0)
                os.lseek(told, 0, os.SEEK_SET)
                os.write(told, record + b"\n")

    threading.Thread(target=tell, name="flight recorder", daemon=True).start()


def _record(dumps: Sequence[Callable[..., bytes]]) -> bytes:
    """The record of the first recorder with any collective, else of the last one."""
    record = b""
    for dump in dumps:
        record = dump(includeCollectives=True, onlyActive=False)
        if json.loads(record).get("entries"):
            break
    return record
