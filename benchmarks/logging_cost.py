"""Measure the cost of logging in a training step: its share, and the difference to a step without it.

    python benchmarks/logging_cost.py [--pairs 40] [--width 64]

The comparison is paired and interleaved: blocks of steps with and without logging alternate in random order
within one process, so other load on the machine affects both. It needs the training environment (torch).
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "trainers"))

from common.metrics import MetricsLog
from common.models import SimpleCNN

STEPS_PER_BLOCK = 10  # one interval of the log: every block pays for one write
BATCH_SIZE = 64


class Training:
    """The baseline's step on images that lie ready, which makes steps as short, and logging as dear, as they
    can be."""

    def __init__(self, width: int, batch_size: int) -> None:
        torch.manual_seed(0)
        self.model = SimpleCNN(width)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.images, self.labels = torch.randn(batch_size, 3, 32, 32), torch.randint(10, (batch_size,))
        self.num_steps = 0

    def block(self, metrics: MetricsLog) -> float:
        """Train one block of steps and return its seconds."""
        started = step_ended = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            self.optimizer.zero_grad()
            loss = F.cross_entropy(self.model(self.images), self.labels)
            loss.backward()
            norm = nn.utils.get_total_norm(p.grad for p in self.model.parameters() if p.grad is not None)
            self.optimizer.step()
            self.num_steps += 1
            now = time.perf_counter()
            metrics.step(
                step=self.num_steps,
                epoch=0,
                loss=loss.detach(),
                lr=0.01,
                num_samples=len(self.labels),
                num_samples_global=len(self.labels),
                data_time_s=0.0,
                step_time_s=now - step_ended,
                grad_norm=norm,
            )
            step_ended = now
        metrics.flush()
        return time.perf_counter() - started


def median_interval(differences: list[float], seed: int = 0) -> tuple[float, float]:
    """The 95 % bootstrap interval of the median."""
    source = random.Random(seed)
    medians = sorted(statistics.median(source.choices(differences, k=len(differences))) for _ in range(5000))
    return medians[int(0.025 * len(medians))], medians[int(0.975 * len(medians))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    source = random.Random(1)
    training = Training(args.width, BATCH_SIZE)
    device = torch.device("cpu")
    with tempfile.TemporaryDirectory() as folder:
        run_dirs = {is_on: str(Path(folder) / f"log-{is_on}") for is_on in (True, False)}
        with (
            MetricsLog(run_dirs[True], device) as on,
            MetricsLog(run_dirs[False], device, log_steps=False) as off,
        ):
            training.block(on)  # warm up
            on.logging_time_s = 0.0
            seconds: dict[bool, list[float]] = {True: [], False: []}
            for _ in range(args.pairs):
                for is_on in source.sample((True, False), 2):
                    seconds[is_on].append(training.block(on if is_on else off) / STEPS_PER_BLOCK)
            total = on.logging_time_s
        lines = (Path(run_dirs[True]) / "metrics" / "rank-0.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines][STEPS_PER_BLOCK:]

    num_steps = args.pairs * STEPS_PER_BLOCK
    shares = [record["logging_time_s"] / record["step_time_s"] for record in records]
    ordered = sorted(shares)
    print(
        f"torch {torch.__version__}, {args.threads} thread(s), SimpleCNN width {args.width}, batch size "
        f"{BATCH_SIZE}, {num_steps} steps each"
    )
    print(f"step time with logging, median: {1000 * statistics.median(seconds[True]):.2f} ms")
    print(
        f"time inside logging calls: {1e6 * total / num_steps:.0f} us per step, "
        f"{total / (sum(seconds[True]) * STEPS_PER_BLOCK):.3%} of the time"
    )
    print(
        f"share of single steps: median {statistics.median(shares):.3%}, 95th percentile "
        f"{ordered[int(0.95 * len(ordered))]:.3%},"
        f" largest {ordered[-1]:.3%}"
    )
    differences = [1e6 * (one - other) for one, other in zip(seconds[True], seconds[False], strict=True)]
    low, high = median_interval(differences)
    median_off = 1e6 * statistics.median(seconds[False])
    print(
        f"on minus off, median of {args.pairs} pairs: {statistics.median(differences):+.0f} us per step"
        f" (95 % interval {low:+.0f} to {high:+.0f} us; {low / median_off:+.2%} to {high / median_off:+.2%})"
    )
    print("no difference beyond the interval" if low <= 0 <= high else "a difference beyond the interval")


if __name__ == "__main__":
    main()
