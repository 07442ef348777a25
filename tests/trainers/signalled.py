"""Run a trainer in which one rank gets SIGTERM at the end of a chosen step: `signalled.py STEP RANK TRAINER
[FLAG …]`.

A signal from outside arrives in a different step each time; a test that compares steps needs it in the same
step.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
from pathlib import Path

step, rank = int(sys.argv[1]), int(sys.argv[2])
sys.argv = sys.argv[3:]
sys.path.insert(0, str(Path(sys.argv[0]).parent))

from common.metrics import MetricsLog  # noqa: E402 - found only now

write = MetricsLog.step


def write_and_signal(metrics: MetricsLog, **record: object) -> None:
    write(metrics, **record)
    if record["step"] == step and metrics.rank == rank:
        os.kill(os.getpid(), signal.SIGTERM)


MetricsLog.step = write_and_signal
runpy.run_path(sys.argv[0], run_name="__main__")
