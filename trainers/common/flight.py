"""This rank's last collectives, told from inside while the training hangs.

torch's flight recorder remembers them, but the main thread cannot tell them when it waits for a rank that never comes. A second thread
can. Whoever asks writes to its pipe and reads the answer from a file in memory; both are found in /proc/PID/fd, by the file's name.
"""

from __future__ import annotations

import os
import threading


def offer() -> None:
    """Before the process group is made: the recorder is off unless it has room."""
    os.environ.setdefault("TORCH_FR_BUFFER_SIZE", "2000")
    try:
        from torch._C._distributed_c10d import _dump_fr_trace_json
    except ImportError:  # before torch 2.9, or torch without torch.distributed
        return
    asked, bell = os.pipe()
    told = os.memfd_create(f"coach-flight-{bell}")

    def tell() -> None:
        while os.read(asked, 1):
            os.write(told, _dump_fr_trace_json(includeCollectives=True, onlyActive=False) + b"\n")

    threading.Thread(target=tell, name="flight recorder", daemon=True).start()
