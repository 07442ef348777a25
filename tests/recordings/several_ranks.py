"""Make the folders of `ranks/` again: real trainings of several ranks over gloo, each with the fault that its
folder names.

`python tests/recordings/several_ranks.py [NAME…]`. It needs torch, and keeps only the ranks' measurements.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parents[1] / "trainers")]

from coach import runs  # noqa: E402 (found by the line above)


@dataclass(frozen=True)
class Training:
    """The fault; none by default."""

    num_ranks: int = 4
    slow_rank: int | None = None
    """Sleeps in every step, between the batch and the forward pass."""
    slow_loader: int | None = None
    """The rank whose samples take longer to load."""
    stumbles: bool = False
    """Each rank sleeps now and then, none more than another."""
    num_steps: int = 140
    stands_from: int | None = None
    """The step in which rank 1 waits for what never comes."""
    only_rank_0: bool = False
    """The others are started, and do nothing."""
    is_parted: bool = True
    """Whether each rank has its own part of the data; else parts are shared out by the place in a node of
    two."""
    num_epochs: int = 1
    is_shuffled: bool = True
    """Whether each epoch has an order of its own."""
    is_averaged: bool = False
    """Whether the loss is averaged over the ranks before it is written."""


TRAININGS = {
    "straggler": Training(slow_rank=2),
    "straggler-by-data": Training(slow_loader=1),
    "even": Training(),
    "stumbling": Training(stumbles=True),
    "hanging": Training(num_ranks=2, stands_from=120),
    "idle-ranks": Training(only_rank_0=True, num_ranks=2),
    "same-samples": Training(is_parted=False),
    "same-order": Training(num_ranks=2, num_epochs=4, is_shuffled=False),
    "epochs": Training(num_ranks=2, num_epochs=4),
    "averaged": Training(num_ranks=2, is_averaged=True),
}


def train(training: Training, run_dir: str) -> None:
    """One rank."""
    import torch
    import torch.distributed as dist
    from common.metrics import MetricsLog
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel as DDP
    from torch.utils.data import DistributedSampler

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, batch = dist.get_rank(), 16
    torch.manual_seed(0)
    num_steps_of_epoch = training.num_steps // training.num_epochs
    x = torch.randn(batch * num_steps_of_epoch * training.num_ranks, 64)
    y = (x @ torch.randn(64, 10)).argmax(1)
    parts = None if training.is_parted else 2
    sampler = DistributedSampler(x, parts, None if training.is_parted else rank % 2)
    chance = torch.Generator().manual_seed(rank)
    with MetricsLog(run_dir, torch.device("cpu")) as metrics:
        model = metrics.watch(DDP(nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 10))))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        metrics.event("start", 0, rank=rank, world_size=training.num_ranks, node="node1")
        ended, step = time.perf_counter(), 0
        for epoch in range(training.num_epochs):
            if training.is_shuffled:
                sampler.set_epoch(epoch)
            order = list(sampler)
            for start in range(0, batch * num_steps_of_epoch, batch):
                if rank and training.only_rank_0:
                    continue
                step += 1
                if rank == training.slow_loader:
                    time.sleep(0.03)
                samples = order[start : start + batch]
                data_time = time.perf_counter() - ended
                if rank == training.slow_rank:
                    time.sleep(0.03)
                if training.stumbles and torch.rand(1, generator=chance).item() < 0.15:
                    time.sleep(0.06)
                time.sleep(0.05)  # the work of a larger model, which the machine that records need not do
                augmented = x[samples] + 0.2 * torch.randn(batch, 64, generator=chance)
                if rank == 1 and step == training.stands_from:
                    threading.Event().wait()
                trained = model.module if training.only_rank_0 else model
                loss = nn.functional.cross_entropy(trained(augmented), y[samples])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                told = loss.detach().clone()
                if training.is_averaged:
                    dist.all_reduce(told)
                    told /= training.num_ranks
                now = time.perf_counter()
                metrics.step(
                    step=step, epoch=epoch, loss=told, lr=0.05, num_samples=batch,
                    num_samples_global=batch * training.num_ranks, data_time_s=data_time, step_time_s=now - ended,
                )  # fmt: skip
                ended = now
    dist.destroy_process_group()


def record(name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        ranks = str(TRAININGS[name].num_ranks)
        command = ["torch.distributed.run", "--standalone", "--nproc-per-node", ranks, __file__, name, folder]
        subprocess.run([sys.executable, "-m", *command], check=True)
        target = HERE / "ranks" / name
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(Path(folder) / "metrics", target / "metrics")
        record = {
            "schema": 1,
            "run_id": f"20261121-040000-{name}-0000",
            "recipe": "own",
            "remedies": {"rank_per_device": {"recipe": "ddp"}},
            "state": "COMPLETED",
        }
        record |= {"backend": "slurm", "resources": {"num_nodes": 1, "nproc_per_node": int(ranks)}}
        runs.write_json(target / "run.json", record)


def main() -> None:
    if "LOCAL_RANK" in os.environ:
        train(TRAININGS[sys.argv[1]], sys.argv[2])
        return
    for name in sys.argv[1:] or TRAININGS.keys() - {
        "hanging"
    }:  # that one is for make_host_recordings.py to watch
        record(name)
        sys.stdout.write(f"{name}\n")


if __name__ == "__main__":
    main()
