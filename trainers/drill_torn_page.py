"""Train a GPT on bytes of text with DDP, save it often, and go on where an interruption left it."""

from __future__ import annotations

import argparse
import os
import signal
from pathlib import Path
from typing import BinaryIO

import torch
from common.data import load_data
from common.distributed import finish, run
from common.loading import steps_of
from common.metrics import MetricsLog
from common.models import build_model, loss_of
from common.short import Steps, train_on_every_rank
from ddp import parse_arguments
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

LOST_AT_STEP = 40


class LostNode:
    """Where a checkpoint is written when the node is taken away from the job, as happens at some time or
    other."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file

    def write(self, data: bytes) -> int:
        if len(data) > 100_000:
            self.file.write(data[: len(data) // 2])
            self.file.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        return self.file.write(data)

    def flush(self) -> None:
        self.file.flush()


def train(args: argparse.Namespace, device: torch.device, metrics: MetricsLog) -> None:
    torch.manual_seed(args.seed)
    train_set, _, dataset = load_data(args)
    sampler = DistributedSampler(train_set, seed=args.seed)
    loader = DataLoader(train_set, args.batch_size, sampler=sampler, num_workers=args.num_workers)

    model = metrics.watch(DDP(build_model(args.model, args.width, dataset).to(device)))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)

    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    path = Path(args.run_dir) / "checkpoints" / "newest.pt"
    path.parent.mkdir(exist_ok=True)
    if path.exists():
        model.module.load_state_dict(torch.load(path, map_location="cpu", weights_only=True)["model"])

    steps, epoch = Steps(metrics, args.lr), 0
    steps.begin(model, dataset, device)
    while steps.done < args.max_steps:
        sampler.set_epoch(epoch)
        for [(inputs, targets)], data_time_s in steps_of(loader, 1):
            loss = loss_of(model(inputs.to(device)), targets.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps.end(epoch, loss, len(targets), data_time_s)
            if metrics.rank == 0 and steps.done % args.checkpoint_every == 0:
                is_lost = steps.done == LOST_AT_STEP and attempt == 0
                with open(path, "wb") as file:
                    state = {"step": steps.done, "model": model.module.state_dict()}
                    torch.save(state, LostNode(file) if is_lost else file)
            if steps.done >= args.max_steps:
                break
        epoch += 1
    finish(metrics, steps.done, "max_steps")


if __name__ == "__main__":
    run(lambda: train_on_every_rank(parse_arguments(), train))
