"""The simplest training of SimpleCNN on CIFAR-10, to compare the trainers with.

    python benchmarks/plain_loop.py FOLDER STEPS BATCH_SIZE WIDTH

`FOLDER` holds CIFAR-10 or generated images. Prints samples per second, over all steps but the first ten.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "trainers"))

import torch
from common.data import MEAN, STD, SmallImages, read_cifar10
from common.models import SimpleCNN
from torch import nn
from torch.utils.data import DataLoader
from torchvision.transforms import v2

WARM_UP = 10


def main() -> None:
    folder, steps, batch_size, width = sys.argv[1], *map(int, sys.argv[2:5])
    normalize = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    augment = [v2.RandomCrop(32, padding=4), v2.RandomHorizontalFlip()]
    train_set = SmallImages(*read_cifar10(Path(folder))[0], v2.Compose(augment + normalize))
    loader = DataLoader(train_set, batch_size, shuffle=True)
    model = SimpleCNN(width)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for step, (images, targets) in enumerate(loader):
        if step == WARM_UP:
            started = time.perf_counter()
        if step == steps:
            break
        loss = nn.functional.cross_entropy(model(images), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print((step - WARM_UP) * batch_size / (time.perf_counter() - started))


if __name__ == "__main__":
    main()
