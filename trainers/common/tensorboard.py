"""The records of steps and evaluations for TensorBoard as well: a second reader's format, written from the
first one's records.

The JSONL files stay the source: coach reads nothing of this, and it adds nothing to the records. One rank
writes, the first.
"""

from __future__ import annotations

import os
from typing import Any

from common.needed import needed

_SHOWN = {
    "loss": "train/loss",
    "lr": "train/lr",
    "grad_norm": "train/grad_norm",
    "loss_scale": "train/loss_scale",
    "accuracy": "train/accuracy",
    "step_time_s": "time/step_s",
    "data_time_s": "time/data_wait_s",
    "memory_allocated_mib": "memory/allocated_mib",
    "memory_reserved_mib": "memory/reserved_mib",
}
_SHOWN_OF_EVAL = {"loss": "eval/loss", "accuracy": "eval/accuracy"}


class TensorBoard:
    """Writes to `<run_dir>/tensorboard`: `tensorboard --logdir RUNS` shows all runs below a folder beside
    each other."""

    def __init__(self, run_dir: str) -> None:
        with needed("install it: `pip install tensorboard`, or leave out --tensorboard"):
            from torch.utils.tensorboard import SummaryWriter
        self._writer = SummaryWriter(os.path.join(run_dir, "tensorboard"))

    def add(self, record: dict[str, Any]) -> None:
        """Take one record, of a step or of an event, as it is written to the metrics."""
        event = record.get("event")
        if event not in (None, "eval"):
            return
        for key, name in (_SHOWN_OF_EVAL if event else _SHOWN).items():
            if key in record:
                self._writer.add_scalar(name, float(record[key]), record["step"], record["time_s"])
        if record.get("step_time_s"):
            throughput = record["num_samples_global"] / record["step_time_s"]
            self._writer.add_scalar("time/samples_per_s", throughput, record["step"], record["time_s"])

    def close(self) -> None:
        self._writer.close()
