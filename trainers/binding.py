"""Show the cores of each rank. Time a matrix product and a data loader, on all of these cores and on one.

    torchrun --standalone --nproc-per-node=2 trainers/binding.py

Trains nothing. Slurm chooses the cores of a process by --cpus-per-task and --cpu-bind, torchrun chooses among
them by --numa-binding. Threads and data workers inherit them.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from common.arguments import TrainerParser
from common.distributed import (
    describe_process,
    finish,
    gather,
    pick_device,
    print_rank0,
    require_torchrun,
    run,
)
from common.metrics import MetricsLog
from torch.utils.data import DataLoader, Dataset

VARIABLES = ("SLURM_CPUS_PER_TASK", "SLURM_CPU_BIND", "OMP_NUM_THREADS")
BATCH_SIZE = 64


def parse_arguments() -> argparse.Namespace:
    parser = TrainerParser(__doc__)
    parser.add_argument(
        "--max_steps",
        type=int,
        default=5,
        min=1,
        usual=(3, 100),
        unit="rounds",
        help="Timed rounds of each measurement, after one warm-up round",
    )
    parser.add_shared("num_workers", "seed")
    parser.change("seed", help="Seed of the matrices")
    parser.add_argument(
        "--matrix",
        type=int,
        default=1024,
        min=64,
        usual=(256, 4096),
        unit="rows",
        help="Rows and columns of the matrices",
    )
    parser.add_places()
    parser.change("run_dir", help="the directory of the results")
    parser.change("data_dir", help="not used: nothing is trained")
    parser.change("cache_dir", help="not used")
    parser.change("gpus_per_node", help="GPUs of each node; not used: this measures CPU cores")
    parser.change("resume_from", help="not used: a measurement always starts from the beginning")
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    require_torchrun()
    device = pick_device(args.gpus_per_node)
    dist.init_process_group("gloo")
    with MetricsLog(args.run_dir, device) as metrics:
        measure(args, device, metrics)


class Images(Dataset):
    """Images that cost a data worker some arithmetic, as cropping and normalising do."""

    def __len__(self) -> int:
        return 8 * BATCH_SIZE

    def __getitem__(self, index: int) -> torch.Tensor:
        image = torch.full((3, 64, 64), float(index % 255))
        for shift in range(8):
            image = (image.roll(shift, dims=2) - image.mean()) / (image.std() + 1)
        return image[:, :32, :32].clone()


def measure(args: argparse.Namespace, device: torch.device, metrics: MetricsLog) -> None:
    torch.manual_seed(args.seed)
    cores = sorted(os.sched_getaffinity(0))
    told = {name: os.environ.get(name) for name in VARIABLES}
    # Ranks that share cores share them equally: one thread for each core of this rank's part.
    sharing = ranks_sharing(cores)
    threads = max(1, len(cores) // sharing)
    metrics.event("start", 0, rank=metrics.rank, world_size=metrics.world_size, **describe_process(device))
    seen = {"cores": cores, "numa_nodes": numa_nodes_of(cores), "told": told, "num_sharing": sharing}

    matrix = torch.randn(args.matrix, args.matrix)
    flop = 2 * args.matrix**3
    rates: dict[str, float] = {}
    one = cores[int(os.environ["LOCAL_RANK"]) % len(cores)]  # each rank of the node takes another core
    for place, allowed, num_threads in (("all", cores, threads), ("one", [one], 1)):
        os.sched_setaffinity(0, allowed)  # for this thread, and for the workers that it starts
        torch.set_num_threads(num_threads)
        dist.barrier()  # all ranks work at the same time, as in a training
        rates[f"gflop_per_s_{place}"] = flop / seconds_of(lambda: matrix @ matrix, args.max_steps) / 1e9
        loader = DataLoader(Images(), batch_size=BATCH_SIZE, num_workers=args.num_workers)
        dist.barrier()
        seconds = seconds_of(lambda loader=loader: sum(len(batch) for batch in loader), args.max_steps)
        rates[f"samples_per_s_{place}"] = len(loader.dataset) / seconds  # type: ignore[arg-type]
    os.sched_setaffinity(0, cores)

    metrics.event("binding", args.max_steps, num_threads=threads, **seen, **rates)
    rows = gather((metrics.rank, cores, sharing, threads, rates, told))
    print_rank0(
        "rank  cores  shared by  threads   GFLOP/s: all     one   samples/s: all     one  which cores"
    )
    for rank, own, num_sharing, num_threads, rate, _ in rows:
        print_rank0(
            f"{rank:4} {len(own):6} {num_sharing:10} {num_threads:8} {rate['gflop_per_s_all']:14.1f}"
            f" {rate['gflop_per_s_one']:7.1f} {rate['samples_per_s_all']:16.0f}"
            f" {rate['samples_per_s_one']:7.0f}  {as_ranges(own)}"
        )
    for name, value in told.items():
        print_rank0(f"{name}={value if value is not None else '(not set)'}")
    print_rank0(
        f"this node has {os.cpu_count()} cores; a rank that sees fewer was bound, by Slurm or torchrun"
    )
    finish(metrics, args.max_steps, "max_steps")


def ranks_sharing(cores: list[int]) -> int:
    """The number of ranks on this node, with this one, that may use exactly these cores."""
    place = (os.uname().nodename, cores)
    return gather(place).count(place)


def seconds_of(work: Any, num_rounds: int) -> float:
    """The median time of the rounds, after one warm-up round."""
    rounds = []
    for _ in range(1 + num_rounds):
        started = time.perf_counter()
        work()
        rounds.append(time.perf_counter() - started)
    return median(rounds[1:])


def numa_nodes_of(cores: list[int]) -> list[int]:
    """The NUMA nodes of these cores; empty if the system does not list them."""
    found = []
    for folder in Path("/sys/devices/system/node").glob("node[0-9]*"):
        if any((folder / f"cpu{core}").exists() for core in cores):
            found.append(int(folder.name[4:]))
    return sorted(found)


def as_ranges(numbers: list[int]) -> str:
    """The numbers as ranges: `0-3,8`."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


if __name__ == "__main__":
    run(main)
