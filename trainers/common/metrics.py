"""The metrics of one rank: one JSON record per optimizer step, and events between them, appended to
metrics/rank-<r>.jsonl.

Reading a number from a GPU waits for all the work queued before it. So a step hands over its tensors as they
are; once per interval they travel to the host in one copy, for which no step waits, and are written in one
append when they have arrived.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import torch

from common.distributed import print_rank0, rank_from_env, world_size_from_env
from common.tensorboard import TensorBoard
from common.timing import ExchangeTime, Timing, process_age_s

INTERVAL_STEPS = 10
INTERVAL_S = 1.0
EXCHANGE_EVERY_STEPS = 2  # the same steps on all ranks, to be compared with each other
PRINT_EVERY_S = 10.0
MIB = 1024 * 1024
Model = TypeVar("Model")


class MetricsLog:
    """Writes the metrics of one rank. `logging_time_s` adds up all the time that training spent in here."""

    def __init__(
        self, run_dir: str, device: torch.device, log_steps: bool = True, tensorboard: bool = False
    ) -> None:
        self.rank = rank_from_env()
        self.world_size = world_size_from_env()
        self.logging_time_s = 0.0
        # Without records nothing holds the host back: it may ask for hundreds of steps ahead of a GPU, and
        # its clock times none of them.
        self.timing = Timing(is_device_s=log_steps or device.type != "cuda")
        self._device = device
        self._log_steps = log_steps
        self._records: list[dict[str, Any]] = []
        self._in_flight: list[_Interval] = []
        self._interval_started = time.perf_counter()
        self._time_reported_s = 0.0
        self._printed = float("-inf")
        self._is_lost = False
        self._step_ended: torch.cuda.Event | None = None
        self._exchange_time: ExchangeTime | None = None
        self._has_reached_target = False
        self._tensorboard = TensorBoard(run_dir) if tensorboard and self.rank == 0 else None
        folder = Path(run_dir) / "metrics"
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / f"rank-{self.rank}.jsonl"
        self._file = open(self._path, "ab", buffering=0)  # noqa: SIM115 - closed by close()
        # A predecessor was killed while it wrote, or the disk was full: the rest of a line must not swallow
        # the next one.
        self._is_torn = _ends_within_a_line(self._path)

    def __enter__(self) -> MetricsLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After an error the last records are the most wanted, but a broken GPU may not give them any more.
        with contextlib.suppress(Exception) if error else contextlib.nullcontext():
            self.close()

    def watch(self, ddp_model: Model) -> Model:
        """Record from now on how long steps wait for the gradients of the other ranks. Returns the model."""
        self._exchange_time = ExchangeTime(ddp_model, self._device.type == "cuda")
        return ddp_model

    def step(self, **record: Any) -> None:
        """Take the record of the step that has just ended. Values may be tensors of one element on the
        device."""
        self.timing.add_step(
            record["step_time_s"],
            record["data_time_s"],
            record["num_samples_global"],
            is_compiling="compile_time_s" in record,
        )
        if not self._log_steps:
            return
        self._stay_near_the_device()
        started = time.perf_counter()
        record["time_s"] = time.time()
        record["logging_time_s"] = (
            self.logging_time_s - self._time_reported_s
        )  # since the step before this one
        self._time_reported_s = self.logging_time_s
        if self._exchange_time and record["step"] % EXCHANGE_EVERY_STEPS == 0:
            comm_time_s = self._exchange_time.read()
            if comm_time_s is not None:
                record["comm_time_s"] = comm_time_s
        self._records.append(record)
        self._write_arrived(wait=False)
        if len(self._records) >= INTERVAL_STEPS or started - self._interval_started >= INTERVAL_S:
            self._end_interval()
        self.logging_time_s += time.perf_counter() - started

    def _stay_near_the_device(self) -> None:
        """Let the host be one step ahead of a GPU and no more: enough for the GPU never to wait, and the
        host's clock then tells its pace.

        Without this the host queues hundreds of steps in the time of one and waits at the epoch's end, where
        no step is measured.
        """
        if self._device.type == "cuda":
            if self._step_ended is not None:
                self._step_ended.synchronize()
            self._step_ended = torch.cuda.Event()
            self._step_ended.record()

    def wait_for_device(self) -> None:
        """Wait for all queued work of a GPU, so that the times of steps add up to the time of their epoch.

        Without records: do nothing.
        """
        if self._log_steps and self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def event(self, event: str, step: int, **fields: Any) -> None:
        """Write an event at once, after the records of the steps before it."""
        if "seconds" in fields:
            self.timing.add_event(event, fields["seconds"])
        self.flush()
        started = time.perf_counter()
        record = {"event": event, "time_s": time.time(), "step": step, **fields}
        self._append(encode_record(record))
        if self._tensorboard:
            self._tensorboard.add(record)
        self.logging_time_s += time.perf_counter() - started

    def reached(self, target_accuracy: float, accuracy: float, step: int) -> None:
        """Record once when an accuracy that was set as the target is reached. The time counts from the first
        step on."""
        if not target_accuracy or accuracy < target_accuracy or self._has_reached_target:
            return
        self._has_reached_target = True
        start_up_s = self.timing.start_up_s or 0.0
        seconds = process_age_s() - start_up_s
        self.event(
            "target",
            step,
            accuracy=accuracy,
            target_accuracy=target_accuracy,
            time_to_target_s=seconds,
            start_up_s=start_up_s,
        )
        print_rank0(f"accuracy {accuracy:.2%} reached after {seconds:.1f} s of training")

    def flush(self) -> None:
        """Write all taken records; wait for the device where needed."""
        started = time.perf_counter()
        if self._records:
            self._end_interval()
        self._write_arrived(wait=True)
        self.logging_time_s += time.perf_counter() - started

    def close(self) -> None:
        if not self._file.closed:
            self.flush()
            self._file.close()
            if self._tensorboard:
                self._tensorboard.close()

    def _end_interval(self) -> None:
        if self._device.type == "cuda":
            # The peak of this interval, which decides if a larger batch would fit.
            self._records[-1]["memory_allocated_mib"] = torch.cuda.max_memory_allocated(self._device) / MIB
            self._records[-1]["memory_reserved_mib"] = torch.cuda.max_memory_reserved(self._device) / MIB
            torch.cuda.reset_peak_memory_stats(self._device)
        self._in_flight.append(_Interval(self._records))
        self._records = []
        self._interval_started = time.perf_counter()
        self._write_arrived(wait=False)

    def _write_arrived(self, wait: bool) -> None:
        while self._in_flight and (wait or self._in_flight[0].has_arrived()):
            records = self._in_flight.pop(0).records()
            self._append(b"".join(encode_record(record) for record in records))
            for record in records if self._tensorboard else ():
                self._tensorboard.add(record)
            self._print_progress(records[-1])

    def _append(self, data: bytes) -> None:
        if self._is_torn:
            data = b"\n" + data
        try:
            while data:  # where the disk becomes full, a part of it is written
                written = self._file.write(data) or 0
                self._is_torn = data[written - 1 : written] != b"\n"
                data = data[written:]
        except OSError as error:  # a full disk or quota must not end a training that could go on
            if not self._is_lost:
                print(
                    f"warning: {self._path}: {error.strerror}; metrics are being lost",
                    file=sys.stderr,
                    flush=True,
                )
            self._is_lost = True

    def _print_progress(self, record: dict[str, Any]) -> None:
        now = time.perf_counter()
        if now - self._printed >= PRINT_EVERY_S:
            self._printed = now
            shown = [f"{key} {record[key]:.4g}" for key in ("epoch", "loss", "step_time_s") if key in record]
            print_rank0("  ".join([f"step {record['step']}", *shown]))


class _Interval:
    """The records of one interval, their tensors on the way to the host."""

    def __init__(self, records: list[dict[str, Any]]) -> None:
        self._records = records
        self._slots = [
            (record, key)
            for record in records
            for key, value in record.items()
            if isinstance(value, torch.Tensor)
        ]
        self._host: torch.Tensor | None = None
        self._copied: torch.cuda.Event | None = None
        if not self._slots:
            return
        on_device = torch.stack([record[key].detach().reshape(()).float() for record, key in self._slots])
        if on_device.device.type != "cuda":
            self._host = on_device
            return
        self._host = torch.empty(on_device.shape, pin_memory=True)
        self._host.copy_(on_device, non_blocking=True)
        self._copied = torch.cuda.Event()
        self._copied.record()

    def has_arrived(self) -> bool:
        return self._copied is None or self._copied.query()

    def records(self) -> list[dict[str, Any]]:
        """The records with plain numbers; waits for those that have not arrived."""
        if self._copied is not None:
            self._copied.synchronize()
        if self._host is not None:
            for (record, key), value in zip(self._slots, self._host.tolist()):  # noqa: B905 - no strict= in Python 3.9
                record[key] = bool(value) if record[key].dtype == torch.bool else value
        return self._records


def encode_record(record: dict[str, Any]) -> bytes:
    """One line of JSON. Numbers that are not finite, which JSON does not have, become the strings NaN,
    Infinity, -Infinity."""
    safe = {
        key: _encode_number(value) if isinstance(value, float) else value for key, value in record.items()
    }
    return json.dumps(safe, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def _encode_number(value: float) -> float | str:
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def _ends_within_a_line(path: Path) -> bool:
    with open(path, "rb") as file:
        if file.seek(0, os.SEEK_END) == 0:
            return False
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"
