"""Train a GPT on bytes of text with DDP; the text comes in parts, and some are still packed."""

from __future__ import annotations

import argparse
import lzma
from typing import Any

import torch
from common.data import DatasetInfo
from common.distributed import finish, run
from common.loading import steps_of
from common.metrics import MetricsLog
from common.models import build_model, loss_of
from common.short import Steps, train_on_every_rank
from common.text import SEQUENCE_LENGTH, ByteSequences, standard_library_bytes
from ddp import parse_arguments
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, RandomSampler

PARTS = ["unpacked", "packed"]
NUM_BYTES = 1_000_000


class PackedText(Dataset[Any]):
    """A text as the archive delivers it."""

    def __init__(self, text: ByteSequences) -> None:
        self.packed = lzma.compress(bytes(text.data), preset=0)
        self.length = text.length
        self.num_sequences = len(text)

    def __len__(self) -> int:
        return self.num_sequences

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        data = torch.frombuffer(bytearray(lzma.decompress(self.packed)), dtype=torch.uint8)
        return ByteSequences(data, self.length)[index]


def train(args: argparse.Namespace, device: torch.device, metrics: MetricsLog) -> None:
    torch.manual_seed(args.seed)
    # Every rank has a part of the text for itself.
    part = standard_library_bytes()[metrics.rank * NUM_BYTES :][:NUM_BYTES]
    train_set: Dataset[Any] = ByteSequences(part, SEQUENCE_LENGTH)
    if PARTS[metrics.rank % len(PARTS)] == "packed":
        train_set = PackedText(ByteSequences(part, SEQUENCE_LENGTH))
    dataset = DatasetInfo("standard library", f"part {metrics.rank}", is_synthetic=False)
    sampler = RandomSampler(train_set)
    loader = DataLoader(train_set, args.batch_size, sampler=sampler, num_workers=args.num_workers)

    model = metrics.watch(DDP(build_model(args.model, args.width).to(device)))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)

    steps, epoch = Steps(metrics, args.lr), 0
    steps.begin(model, dataset, device)
    while steps.done < args.max_steps:
        for [(inputs, targets)], data_time_s in steps_of(loader, 1):
            loss = loss_of(model(inputs.to(device)), targets.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps.end(epoch, loss, len(targets), data_time_s)
            if steps.done >= args.max_steps:
                break
        epoch += 1
    finish(metrics, steps.done, "max_steps")


if __name__ == "__main__":
    run(lambda: train_on_every_rank(parse_arguments(), train))
