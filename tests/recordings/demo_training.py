"""A small training that learns: `python demo_training.py SECONDS_PER_SAMPLE LR [NUM_STEPS]`.

The demo's healthy run and the one that waits for its data. Each sample takes a time to load, as from a file
system that is slow. Its ranks meet over gloo, under torchrun or alone.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, os.environ["DEMO_TRAINERS"])

from common.metrics import MetricsLog

BATCH_SIZE = int(os.environ.get("DEMO_BATCH_SIZE", "8"))
NUM_CLASSES = 10
EVALUATE_EVERY = 60
CHECKPOINT_EVERY = 120


class Shapes(Dataset[tuple[torch.Tensor, int]]):
    """Noisy images of ten patterns, each of which takes some time to load."""

    def __init__(self, num_samples: int, seconds: float) -> None:
        self._num_samples = num_samples
        self._seconds = seconds
        made = torch.Generator().manual_seed(1)
        self._patterns = torch.randn(NUM_CLASSES, 3, 24, 24, generator=made)

    def __len__(self) -> int:
        return self._num_samples

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if self._seconds:
            time.sleep(self._seconds)
        noise = torch.Generator().manual_seed(index)
        label = index % NUM_CLASSES
        return 0.1 * self._patterns[label] + torch.randn(3, 24, 24, generator=noise), label


def main(seconds_per_sample: float, lr: float, num_steps: int) -> None:
    torch.set_num_threads(1)
    os.nice(5)  # the others of the story come first
    torch.manual_seed(0)
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    model: nn.Module = nn.Sequential(
        nn.Conv2d(3, 48, 5), nn.ReLU(), nn.Conv2d(48, 32, 5), nn.ReLU(), nn.Flatten(), nn.Linear(8192, 10)
    )
    if world_size > 1:
        dist.init_process_group("gloo")
        model = DistributedDataParallel(model)
    rank = int(os.environ.get("RANK", "0"))
    samples = Shapes(BATCH_SIZE * num_steps * world_size, seconds_per_sample)
    mine = torch.utils.data.Subset(samples, range(rank, len(samples), world_size))
    loader = DataLoader(mine, batch_size=BATCH_SIZE, num_workers=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    run_dir = Path(os.environ["COACH_RUN_DIR"])
    with MetricsLog(str(run_dir), torch.device("cpu")) as metrics:
        start = time.perf_counter()
        for step, (images, labels) in enumerate(loader, 1):
            data_time = time.perf_counter() - start
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            now = time.perf_counter()
            metrics.step(
                step=step, epoch=0, loss=loss.detach(), lr=lr, num_samples=BATCH_SIZE,
                num_samples_global=BATCH_SIZE * world_size, data_time_s=data_time, step_time_s=now - start,
            )  # fmt: skip
            start = now
            if rank == 0:
                keep(step, model, metrics, run_dir)
    if world_size > 1:
        dist.destroy_process_group()


def keep(step: int, model: nn.Module, metrics: MetricsLog, run_dir: Path) -> None:
    """Evaluate, and write a checkpoint, when it is time."""
    if step % EVALUATE_EVERY == 0:
        inner = model.module if isinstance(model, DistributedDataParallel) else model
        held_back = Shapes(100, 0.0)
        images = torch.stack([held_back[index + 50_000][0] for index in range(40)])
        labels = torch.tensor([(index + 50_000) % NUM_CLASSES for index in range(40)])
        with torch.no_grad():
            accuracy = (inner(images).argmax(1) == labels).float().mean().item()
        metrics.event("eval", step, epoch=0, accuracy=accuracy)
    if step % CHECKPOINT_EVERY == 0:
        begin = time.perf_counter()
        folder = run_dir / "checkpoints"
        folder.mkdir(exist_ok=True)
        path = folder / f"step-{step:08}.pt"
        torch.save(model.state_dict(), path)
        metrics.event("checkpoint", step, path=str(path), seconds=time.perf_counter() - begin)


if __name__ == "__main__":
    main(float(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 400)
