"""Measure one update of the optimizers by each path that torch has: fused (one kernel), foreach (one kernel
for each operation, over all parameters) and one parameter at a time.

    python benchmarks/optimizer_paths.py [--small]

The parameters are those of ResNet-50 and of a GPT of 12 layers; with --small, of SimpleCNN. Each number is
the median of several blocks of updates, without the first updates.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "trainers"))

from common.models import GPT, SimpleCNN, build_model

PATHS = {"fused": {"fused": True}, "foreach": {"foreach": True}, "one by one": {"foreach": False}}
NUM_BLOCKS = 5
UPDATES = 20
WARM_UP = 5


def update_s(optimizer: torch.optim.Optimizer, device: torch.device) -> float:
    """Seconds of one update: the median of the blocks."""

    def block(num_updates: int) -> float:
        start_s = time.perf_counter()
        for _ in range(num_updates):
            optimizer.step()
        if device.type == "cuda":
            torch.cuda.synchronize()
        return (time.perf_counter() - start_s) / num_updates

    block(WARM_UP)
    return statistics.median(block(UPDATES) for _ in range(NUM_BLOCKS))


def models(*, is_small: bool) -> Iterator[tuple[str, torch.nn.Module]]:
    if is_small:
        yield "SimpleCNN", SimpleCNN(width=8)
        return
    yield "ResNet-50", build_model("resnet50", 64)
    yield "GPT, 12 layers", GPT(768, 12, 12, 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="one small model, to try it on CPUs")
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    for name, model in models(is_small=args.small):
        parameters = list(model.to(device).parameters())
        for parameter in parameters:
            parameter.grad = torch.randn_like(parameter) * 1e-3
        for kind in (torch.optim.SGD, torch.optim.AdamW):
            seconds = {
                path: update_s(kind(parameters, lr=1e-4, **options), device)
                for path, options in PATHS.items()
            }
            told = ", ".join(f"{path} {1e6 * value:.0f} µs" for path, value in seconds.items())
            ratio = seconds["foreach"] / seconds["fused"]
            print(f"{name}, {len(parameters)} tensors, {kind.__name__}: {told}; fused {ratio:.2f} × foreach")


if __name__ == "__main__":
    main()
