"""Where the time of a training went: start-up, warm-up, steady state, evaluation and checkpoints apart.

A mean over everything is the commonest false throughput: the first steps load libraries and choose kernels, a
compiled model compiles in them, and an evaluation is no training.
"""

from __future__ import annotations

import os
import time
from array import array
from statistics import median
from typing import Any

WARM_UP_STEPS = 3
"""Steps in which libraries are loaded, kernels chosen and caches filled."""


class Timing:
    """Adds up what one rank measured.

    A step costs some bytes. `is_device_s`: the times of steps tell the pace of the device.
    """

    def __init__(self, is_device_s: bool = True) -> None:
        self._is_device_s = is_device_s
        self.start_up_s: float | None = None
        self._step_times = array("f")
        self._data_times = array("f")
        self._num_samples = 0
        self._first_samples = 0
        self._seconds_of: dict[str, float] = {}

    def add_step(
        self, step_time_s: float, data_time_s: float, num_samples_global: int, is_compiling: bool = False
    ) -> None:
        if self.start_up_s is None:
            self.start_up_s = max(0.0, process_age_s() - step_time_s)
        if is_compiling and len(self._step_times) >= WARM_UP_STEPS:
            return  # its time tells nothing of the steps before and after it
        if len(self._step_times) < WARM_UP_STEPS:
            self._first_samples += num_samples_global
        self._num_samples += num_samples_global
        self._step_times.append(step_time_s)
        self._data_times.append(data_time_s)

    def add_event(self, event: str, seconds: float) -> None:
        self._seconds_of[event] = self._seconds_of.get(event, 0.0) + seconds

    def summary(self) -> dict[str, Any]:
        """The fields of the `summary` event; a value that was not measured is None. Throughput is of all
        ranks together."""
        times = self._step_times if self._is_device_s else array("f")
        steady, waits = times[WARM_UP_STEPS:], self._data_times[WARM_UP_STEPS:]
        total = sum(steady)
        ordered = sorted(steady)
        return {
            "start_up_s": self.start_up_s,
            "warm_up_s": sum(times[:WARM_UP_STEPS]) if times else None,
            "num_steady_steps": len(steady),
            "step_time_median_s": median(ordered) if ordered else None,
            "step_time_p95_s": ordered[int(0.95 * (len(ordered) - 1))] if ordered else None,
            "samples_per_s": (self._num_samples - self._first_samples) / total if total else None,
            "data_wait_share": sum(waits) / total if total else None,
            "compile_s": self._seconds_of.get("compile"),
            "eval_s": self._seconds_of.get("eval"),
            "checkpoint_s": self._seconds_of.get("checkpoint"),
        }


class CompileTime:
    """How long torch.compile was at work, as torch itself tells when it begins and ends."""

    def __init__(self) -> None:
        from torch._dynamo.callback import callback_handler  # only here: the import takes a second

        self._started = self._seconds = 0.0
        callback_handler.register_start_callback(self._begin)
        callback_handler.register_end_callback(self._end)

    def _begin(self, *_: object) -> None:
        self._started = time.perf_counter()

    def _end(self, *_: object) -> None:
        self._seconds += time.perf_counter() - self._started

    def take(self) -> float:
        """Seconds since the last call; 0: nothing was compiled."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds


class ExchangeTime:
    """How long a step of DDP waited for gradients to be exchanged, after its own backward pass had ended.

    All ranks end a step together, whichever rank is slow. The others wait for the rank that waits least.
    """

    def __init__(self, ddp_model: Any, is_on_gpu: bool) -> None:
        self._ddp_model = ddp_model
        self._last_iteration = 0
        if (
            not is_on_gpu
        ):  # a GPU has to be waited for to read its clock: torch's own pace is one step in a hundred
            ddp_model._set_ddp_runtime_logging_sample_rate(1)

    def read(self) -> float | None:
        """Seconds of the newest step that was measured; None when none has been since the last call."""
        data = self._ddp_model._get_ddp_logging_data()
        iteration = data.get("iteration", 0)
        if iteration == self._last_iteration or "backward_comm_time" not in data:
            return None
        self._last_iteration = iteration
        exposed_ns = data["backward_comm_time"] - data.get("backward_compute_comm_overlap_time", 0)
        return max(0.0, exposed_ns / 1e9)


def as_text(summary: dict[str, Any]) -> str:
    """The summary for the end of the log, without the values that were not measured."""
    parts = [
        ("start-up {:.1f} s", "start_up_s"),
        ("compilation {:.1f} s", "compile_s"),
        (f"first {WARM_UP_STEPS} steps {{:.2f}} s", "warm_up_s"),
        ("then {:.4g} s a step (median", "step_time_median_s"),
        ("p95 {:.4g} s", "step_time_p95_s"),
        ("n {})", "num_steady_steps"),
        ("{:.0f} samples/s on all ranks", "samples_per_s"),
        ("{:.0%} of the time waiting for data", "data_wait_share"),
        ("evaluation {:.1f} s", "eval_s"),
        ("checkpoints {:.1f} s", "checkpoint_s"),
    ]
    is_steady = summary["num_steady_steps"] > 0
    shown = [(text, summary[key]) for text, key in parts if is_steady or key != "num_steady_steps"]
    texts = [text.format(value) for text, value in shown if value is not None]
    return "time: " + (", ".join(texts) or "no step was made")


def process_age_s() -> float:
    """Seconds since this process was started, the interpreter's and torch's own start included."""
    try:
        with open("/proc/self/stat", encoding="ascii", errors="replace") as file:
            started_ticks = int(file.read().rpartition(")")[2].split()[19])
        with open("/proc/uptime", encoding="ascii") as file:
            return float(file.read().split()[0]) - started_ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return time.process_time()
