"""Train a GPT on bytes of text with DDP; after each pass all ranks wait for each other."""

from __future__ import annotations

import argparse
from datetime import timedelta

import torch
import torch.distributed as dist
from common.data import load_data
from common.distributed import finish, run
from common.loading import steps_of
from common.metrics import MetricsLog
from common.models import build_model, loss_of
from common.short import Steps, train_on_every_rank
from ddp import parse_arguments
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, RandomSampler, Subset


def train(args: argparse.Namespace, device: torch.device, metrics: MetricsLog) -> None:
    torch.manual_seed(args.seed)
    train_set, _, dataset = load_data(args)
    # Every rank takes every n-th sample of n ranks, from its own number on.
    own_part = Subset(train_set, range(metrics.rank, len(train_set), metrics.world_size))
    shuffle = torch.Generator()
    sampler = RandomSampler(own_part, generator=shuffle)
    loader = DataLoader(own_part, args.batch_size, sampler=sampler, num_workers=args.num_workers)

    model = metrics.watch(DDP(build_model(args.model, args.width, dataset).to(device)))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)

    steps, epoch = Steps(metrics, args.lr), 0
    steps.begin(model, dataset, device)
    while steps.done < args.max_steps:
        shuffle.manual_seed(args.seed + epoch)
        for [(inputs, targets)], data_time_s in steps_of(loader, 1):
            loss = loss_of(model(inputs.to(device)), targets.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps.end(epoch, loss, len(targets), data_time_s)
            if steps.done >= args.max_steps:
                break
        dist.barrier()
        epoch += 1
    finish(metrics, steps.done, "max_steps")


if __name__ == "__main__":
    run(lambda: train_on_every_rank(parse_arguments(), train, timedelta(seconds=40)))
