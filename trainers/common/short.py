"""The shared parts of short trainers, so that each of them shows one loop and nothing beside it: the start,
and the record of a step.

They are for exercises: no evaluation, no accumulation, no resuming. A training that is to be kept starts from
baseline.py or ddp.py.
"""

from __future__ import annotations

import argparse
import time
from datetime import timedelta
from typing import Callable

import torch
import torch.distributed as dist
from torch.distributed.constants import default_pg_timeout

from common.data import DatasetInfo
from common.distributed import describe_process, pick_device, print_rank0, require_torchrun
from common.metrics import MetricsLog
from common.models import count_parameters

Train = Callable[[argparse.Namespace, torch.device, MetricsLog], None]


def train_on_every_rank(
    args: argparse.Namespace, train: Train, timeout: timedelta = default_pg_timeout
) -> None:
    """Make the process group that torchrun has prepared, and train in it."""
    require_torchrun()
    device = pick_device(args.gpus_per_node)
    dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo", timeout=timeout)
    with MetricsLog(args.run_dir, device) as metrics:
        train(args, device, metrics)


class Steps:
    """Counts the optimizer steps of one rank and writes their records."""

    def __init__(self, metrics: MetricsLog, lr: float) -> None:
        self.done = 0
        self._metrics, self._lr = metrics, lr
        self._ended = time.perf_counter()

    def begin(self, model: torch.nn.Module, dataset: DatasetInfo, device: torch.device) -> None:
        """Say where and with which data this rank trains; the first step begins."""
        self._metrics.event(
            "start",
            self.done,
            rank=self._metrics.rank,
            world_size=self._metrics.world_size,
            dataset=vars(dataset),
            num_parameters=count_parameters(model),
            **describe_process(device),
        )
        print_rank0(f"model: {count_parameters(model):,} parameters, on {device.type}")
        self._ended = time.perf_counter()

    def end(self, epoch: int, loss: torch.Tensor, num_samples: int, data_time_s: float) -> None:
        """One more step has ended."""
        self.done += 1
        now = time.perf_counter()
        self._metrics.step(
            step=self.done,
            epoch=epoch,
            loss=loss.detach(),
            lr=self._lr,
            num_samples=num_samples,
            num_samples_global=num_samples * self._metrics.world_size,
            data_time_s=data_time_s,
            step_time_s=now - self._ended,
        )
        self._ended = now
