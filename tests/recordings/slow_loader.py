"""A small training whose data set takes a given time per sample: `python slow_loader.py RUN_DIR
SECONDS_PER_SAMPLE`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).parents[2] / "trainers"))

from common.metrics import MetricsLog

BATCH_SIZE = 16
NUM_STEPS = 80


class SlowImages(Dataset[tuple[torch.Tensor, int]]):
    """Random images that take some time each, as decoding does."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __len__(self) -> int:
        return BATCH_SIZE * NUM_STEPS

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        time.sleep(self._seconds)
        return torch.randn(3, 32, 32), index % 10


def main(run_dir: str, seconds_per_sample: float) -> None:
    torch.set_num_threads(1)
    model = nn.Sequential(
        nn.Conv2d(3, 64, 5), nn.ReLU(), nn.Conv2d(64, 64, 5), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10)
    )
    loader = DataLoader(SlowImages(seconds_per_sample), batch_size=BATCH_SIZE, num_workers=1)
    model(torch.zeros(1, 3, 32, 32))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with MetricsLog(run_dir, torch.device("cpu")) as metrics:
        start = time.perf_counter()
        for step, (images, labels) in enumerate(loader, 1):
            data_time = time.perf_counter() - start
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            now = time.perf_counter()
            metrics.step(
                step=step, epoch=0, loss=loss.detach(), lr=0.01, num_samples=BATCH_SIZE, num_samples_global=BATCH_SIZE,
                data_time_s=data_time, step_time_s=now - start,
            )  # fmt: skip
            start = now


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
