"""Ends the training on this node after another node has refused it: otherwise the ranks would wait for their
peer until a timeout.

A thread of its own watches exit.json, and only for the first minutes. A file system that hangs delays neither
the signals nor the training.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any, Dict

from coach import runs
from coach.node.processes import ProcessTable

_LOOK_FOR_S = 300.0
_INTERVAL_S = 2.0
_GRACE_S = 5.0


def end_with_a_refused_peer(
    paths: runs.RunPaths, node: str, training: "subprocess.Popen[bytes]", interval_s: float = _INTERVAL_S
) -> None:
    """Watch exit.json, and end the training when another node's refusal appears there. Returns at once."""
    arguments = (paths, node, training, interval_s)
    threading.Thread(target=_watch, args=arguments, name="peers", daemon=True).start()


def _watch(paths: runs.RunPaths, node: str, training: "subprocess.Popen[bytes]", interval_s: float) -> None:
    deadline = time.monotonic() + _LOOK_FOR_S
    while training.returncode is None and time.monotonic() < deadline:
        refused = _refusal(paths)
        if refused and refused.get("node") != node:
            print(
                f"coach run: ended, because {refused.get('node')} cannot train", file=sys.stderr, flush=True
            )
            _end(training)
            return
        time.sleep(interval_s)


def _refusal(paths: runs.RunPaths) -> Dict[str, Any]:
    found = runs.read_json_if_any(paths.exit_json).get("refused")
    return found if isinstance(found, dict) else {}


def _end(training: "subprocess.Popen[bytes]") -> None:
    os.kill(os.getpid(), signal.SIGTERM)  # the supervisor passes it on, like any signal
    deadline = time.monotonic() + _GRACE_S
    while training.returncode is None and time.monotonic() < deadline:
        time.sleep(0.1)
    if training.returncode is None:
        # torchrun gives its ranks minutes to end. They have nothing to save, and wait in C++ code, where no
        # signal reaches Python's handler.
        for process in ProcessTable(root=training.pid).sample(time.monotonic()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        training.kill()
