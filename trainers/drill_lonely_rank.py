"""Train a GPT on bytes of text; torchrun starts a process for each device."""

from __future__ import annotations

import argparse

import torch
from common.data import load_data
from common.distributed import finish, run
from common.loading import steps_of
from common.metrics import MetricsLog
from common.models import build_model, loss_of
from common.short import Steps, train_on_every_rank
from ddp import parse_arguments
from torch.utils.data import DataLoader, RandomSampler


def train(args: argparse.Namespace, device: torch.device, metrics: MetricsLog) -> None:
    torch.manual_seed(args.seed)
    train_set, _, dataset = load_data(args)
    sampler = RandomSampler(train_set)
    loader = DataLoader(train_set, args.batch_size, sampler=sampler, num_workers=args.num_workers)

    model = build_model(args.model, args.width, dataset).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)

    steps, epoch = Steps(metrics, args.lr), 0
    steps.begin(model, dataset, device)
    while metrics.rank == 0 and steps.done < args.max_steps:
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
