"""Train a GPT on bytes of text with DDP; the ranks meet at an address of their own."""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from common.data import load_data
from common.distributed import finish, pick_device, rank_from_env, run, world_size_from_env
from common.loading import steps_of
from common.metrics import MetricsLog
from common.models import build_model, loss_of
from common.short import Steps
from ddp import parse_arguments
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

MEET_AT = ("127.0.0.1", 29500)


def main() -> None:
    args = parse_arguments()
    device = pick_device(args.gpus_per_node)
    rank, world_size = rank_from_env(), world_size_from_env()
    store = dist.TCPStore(*MEET_AT, world_size, is_master=rank == 0)
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=world_size)
    with MetricsLog(args.run_dir, device) as metrics:
        train(args, device, metrics)


def train(args: argparse.Namespace, device: torch.device, metrics: MetricsLog) -> None:
    torch.manual_seed(args.seed)
    train_set, _, dataset = load_data(args)
    sampler = DistributedSampler(train_set, seed=args.seed)
    loader = DataLoader(train_set, args.batch_size, sampler=sampler, num_workers=args.num_workers)

    model = metrics.watch(DDP(build_model(args.model, args.width, dataset).to(device)))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)

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
            if steps.done >= args.max_steps:
                break
        epoch += 1
    finish(metrics, steps.done, "max_steps")


if __name__ == "__main__":
    run(main)
