"""A small training that describes its outputs as it goes on: `python slowing_down.py RUN_DIR {kept,running}`.

`kept` holds on to every output and goes through all of them in each step; `running` keeps a running mean, as
it should be.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[2] / "trainers"))

from common.metrics import MetricsLog

BATCH_SIZE = 64
NUM_STEPS = 480


def main(run_dir: str, how: str) -> None:
    torch.set_num_threads(1)
    body = nn.Sequential(
        nn.Conv2d(3, 64, 5), nn.ReLU(), nn.Conv2d(64, 64, 5), nn.ReLU(), nn.AvgPool2d(4), nn.Flatten()
    )
    head = nn.Linear(64 * 6 * 6, 10)
    optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.01)
    kept: list[torch.Tensor] = []
    running = torch.zeros(())
    with MetricsLog(run_dir, torch.device("cpu")) as metrics:
        start = time.perf_counter()
        for step in range(1, NUM_STEPS + 1):
            images, labels = torch.randn(BATCH_SIZE, 3, 32, 32), torch.randint(10, (BATCH_SIZE,))
            data_time = time.perf_counter() - start
            features = body(images)
            loss = nn.functional.cross_entropy(head(features), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if how == "kept":
                kept.append(features.detach())
                running = torch.cat(kept).std()
            else:
                running = 0.99 * running + 0.01 * features.detach().std()
            now = time.perf_counter()
            metrics.step(
                step=step, epoch=0, loss=loss.detach(), lr=0.01, num_samples=BATCH_SIZE, num_samples_global=BATCH_SIZE,
                data_time_s=data_time, step_time_s=now - start,
            )  # fmt: skip
            start = now


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
