"""The shared parts of benches, so that each shows its measurement and nothing beside it: the start, the
clock, a table whose rows are events too, and the end.

A bench trains nothing: it measures row by row. A row that takes long is not cut short. `max_seconds` and
signals are looked at between two rows.
"""

from __future__ import annotations

import argparse
import time
from statistics import median
from types import TracebackType
from typing import Any, Callable, NoReturn

import torch
import torch.distributed as dist

from common.distributed import StopSignal, any_rank, describe_process, finish, print_rank0, why_stopped
from common.metrics import MetricsLog

WARM_UP_ROUNDS = 2


class Bench:
    """One rank's part of a measurement. `step` counts the rounds that were timed."""

    def __init__(self, args: argparse.Namespace, device: torch.device) -> None:
        self.stop = StopSignal(args.max_seconds)
        self.metrics = MetricsLog(args.run_dir, device)
        self.device = device
        self.step = 0
        self.is_cut_short = False
        self._num_rounds = args.max_steps

    def __enter__(self) -> Bench:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.metrics.__exit__(kind, error, trace)

    def start(self, **fields: Any) -> None:
        """Say where this rank measures."""
        self.metrics.event(
            "start",
            0,
            rank=self.metrics.rank,
            world_size=self.metrics.world_size,
            **fields,
            **describe_process(self.device),
        )

    def goes_on(self) -> bool:
        """True if the next row may begin. All ranks call it, and get the same answer."""
        is_asked = self.stop.is_requested
        if dist.is_available() and dist.is_initialized():
            is_asked = any_rank(is_asked)
        self.is_cut_short = self.is_cut_short or is_asked
        return not self.is_cut_short

    def seconds_of(self, call: Callable[[], object]) -> float:
        """Seconds of one call on this rank: the median of `max_steps` rounds, after two that are not timed.

        A GPU works on when the call has returned, so its end is waited for in every round.
        """
        rounds = []
        for _ in range(WARM_UP_ROUNDS + self._num_rounds):
            started = time.perf_counter()
            call()
            self.wait()
            rounds.append(time.perf_counter() - started)
        self.step += self._num_rounds
        return median(rounds[WARM_UP_ROUNDS:])

    def wait(self) -> None:
        """Wait for all queued work of a GPU."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def row(self, event: str, shown: str, **fields: Any) -> None:
        """Print a row of the table, and keep its numbers as an event."""
        self.metrics.event(event, self.step, **fields)
        print_rank0(shown)

    def finish(self) -> NoReturn:
        """End this process when all ranks have come so far."""
        reason = "max_steps"
        if self.is_cut_short:
            reason, why = why_stopped(self.stop)
            print_rank0(f"{why}: the missing rows did not start")
        finish(self.metrics, self.step, reason)


def largest_difference(found: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest error, as a share of the largest number that was expected."""
    difference: float = (
        (found.double() - expected.double()).abs().max() / expected.double().abs().max()
    ).item()
    return difference
