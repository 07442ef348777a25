"""Reports exact numbers of a training to coach, from inside the training. Without coach it does nothing.

    import coach_report

    for batch in loader:
        ...
        coach_report.step(loss=loss, samples=len(batch))

A job that coach launched, and a command under `coach run`, can import this module. It needs only the standard
library, so a copy beside a script lets the script run anywhere. No function raises. Reading a tensor waits
for the GPU, so tensors are read together: after ten steps, or at the first step after a second.
"""

import atexit
import json
import math
import os
import sys
import time
from typing import Any, Dict, List, Optional

INTERVAL_STEPS = 10
INTERVAL_S = 1.0


class _Report:
    """Collects the records of this process, and appends them to `metrics/rank-<r>.jsonl` in the run
    directory."""

    def __init__(self, environment: "os._Environ[str]") -> None:
        def number(*names: str) -> Optional[int]:
            said = (environment.get(name, "") for name in names)
            return next((int(text) for text in said if text.isdecimal()), None)

        self.rank = number("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID") or 0
        self.world_size = number("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS") or 1
        self._local_rank = number("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")
        self._node = environment.get("SLURMD_NODENAME") or os.uname().nodename.split(".")[0]
        self._run_dir = environment.get("COACH_RUN_DIR", "")
        self._pid = os.getpid()
        self._file: Any = None
        self._records: List[Dict[str, Any]] = []
        self._num_steps = 0
        self._last_s: Optional[float] = None
        self._written_s = time.monotonic()

    def is_on(self) -> bool:
        """True under coach. False in a forked worker process: the records belong to its parent."""
        return bool(self._run_dir) and os.getpid() == self._pid

    def step(self, number: Optional[int], samples: Optional[int], values: Dict[str, Any]) -> None:
        now_s = time.perf_counter()
        number = self._num_steps if number is None else int(number)
        self._num_steps = number + 1
        record: Dict[str, Any] = {"step": number, "time_s": time.time()}
        if self._last_s is not None:
            record["step_time_s"] = now_s - self._last_s
        self._last_s = now_s
        if samples is not None:
            record["num_samples"] = int(samples)
            record["num_samples_global"] = int(samples) * self.world_size
        self._take({**record, **_held(values)})

    def evaluation(self, number: Optional[int], values: Dict[str, Any]) -> None:
        number = max(0, self._num_steps - 1) if number is None else int(number)
        self._take({"event": "eval", "time_s": time.time(), "step": number, **_held(values)})
        self.write()

    def write(self) -> None:
        """Append all collected records. If that fails, they are lost, and one message reports it."""
        records, self._records = self._records, []
        self._written_s = time.monotonic()
        if not records or not self.is_on():
            return
        try:
            if self._file is None:
                self._file = self._opened()
            lines = [json.dumps({key: _number(value) for key, value in each.items()}) for each in records]
            self._file.write("".join(f"{line}\n" for line in lines).encode())
        except Exception as error:
            self._stop(error)

    def end(self, error: Exception) -> None:
        """Write the collected records, and report that the next ones are not recorded."""
        self.write()
        self._stop(error)

    def _stop(self, error: Exception) -> None:
        if self._run_dir:
            self._run_dir = ""
            sys.stderr.write(f"coach_report: {error}: the numbers of rank {self.rank} are not recorded\n")

    def _take(self, record: Dict[str, Any]) -> None:
        self._records.append(record)
        if len(self._records) >= INTERVAL_STEPS or time.monotonic() - self._written_s >= INTERVAL_S:
            self.write()

    def _opened(self) -> Any:
        folder = os.path.join(self._run_dir, "metrics")  # noqa: PTH118 (pathlib is slow to import)
        os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103 (pathlib is slow to import)
        path = os.path.join(folder, f"rank-{self.rank}.jsonl")  # noqa: PTH118 (pathlib is slow to import)
        file = open(path, "ab", buffering=0)  # noqa: SIM115 (stays open until the process ends)
        start = {"event": "start", "time_s": time.time(), "step": 0, "world_size": self.world_size}
        start.update(node=self._node, local_rank=self._local_rank, loss_of="rank")
        file.write(b"\n" * _ends_within_a_line(path) + json.dumps(start).encode() + b"\n")
        return file


def step(
    *, step: Optional[int] = None, loss: Any = None, samples: Optional[int] = None, **values: Any
) -> None:
    """Record one optimizer step. Call it once in each step, on each rank.

    `loss` and further values, given by name (`lr grad_norm accuracy data_time_s`), may be numbers or tensors
    of one element. `samples` is the number of samples of this rank in this step. `step` is the step's number;
    without it, the calls are counted from 0.
    """
    if _REPORT.is_on():
        try:
            _REPORT.step(step, samples, {"loss": loss, **values})
        except Exception as error:
            _REPORT.end(error)


def evaluation(*, step: Optional[int] = None, **values: Any) -> None:
    """Record the results of an evaluation: `coach_report.evaluation(loss=0.3, accuracy=0.91)`."""
    if _REPORT.is_on():
        try:
            _REPORT.evaluation(step, values)
        except Exception as error:
            _REPORT.end(error)


def _held(values: Dict[str, Any]) -> Dict[str, Any]:
    """The values, without the autograd graph that a loss tensor keeps in memory."""
    return {
        name: value.detach() if hasattr(value, "detach") else value
        for name, value in values.items()
        if value is not None
    }


def _number(value: Any) -> Any:
    """The value as metric files write it. JSON has no non-finite numbers, so those become strings."""
    if isinstance(value, (str, int)) or value is None:
        return value
    value = float(value)
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _ends_within_a_line(path: str) -> bool:
    """True if the file's last line is incomplete, because an earlier process was killed during a write."""
    with open(path, "rb") as file:
        if not file.seek(0, os.SEEK_END):
            return False
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"


_REPORT = _Report(os.environ)
atexit.register(_REPORT.write)
