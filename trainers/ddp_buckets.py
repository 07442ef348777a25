"""Sweep the size of DDP's gradient buckets, and compare the time of a step with a model of it.

    torchrun --standalone --nproc-per-node=2 trainers/ddp_buckets.py --max_steps 5

Trains nothing: the same batch goes forward and backward again and again. The model knows when each gradient
is ready, and the cost of a message; both are measured alone.
"""

from __future__ import annotations

import argparse
import copy
import time
from functools import partial
from typing import Callable

import torch
import torch.distributed as dist
from common.arguments import TrainerParser
from common.bench import Bench
from common.distributed import (
    TrainerError,
    gather,
    pick_device,
    print_rank0,
    require_torchrun,
    run,
    self_check,
)
from common.models import build_model, count_parameters, loss_of
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel as DDP

MIB = 1024 * 1024
CAPS_MB = [0.0001, 0.25, 1, 4, 16, 1000000]  # each gradient alone, ..., all in one bucket
MESSAGE_BYTES = [1024 * 8**number for number in range(6)]  # up to 32 MiB


def parse_arguments() -> argparse.Namespace:
    parser = TrainerParser(__doc__)
    parser.add_shared("model", "width", "batch_size", "max_steps", "max_seconds", "seed")
    parser.add_places()
    parser.change_shared("bench")
    parser.change("model", default="gpt", choices=["simplecnn", "gpt"])
    parser.change(
        "width", default=128, help="Channels of the first convolution, or half the embedding of the GPT"
    )
    parser.change("batch_size", default=2, usual=(1, 4096), help="Samples of one step on each rank")
    parser.change("max_steps", default=10, usual=(5, 1000))
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    require_torchrun()
    device = pick_device(args.gpus_per_node)
    dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    with Bench(args, device) as bench:
        measure(args, device, bench)


def measure(args: argparse.Namespace, device: torch.device, bench: Bench) -> None:
    if bench.metrics.world_size < 2:
        raise TrainerError("no gradients to exchange: 1 rank was started, at least 2 are needed")
    torch.manual_seed(args.seed)
    model = build_model(args.model, args.width).to(device)
    self_check(model, device)
    bench.start(num_parameters=count_parameters(model), backend="nccl" if device.type == "cuda" else "gloo")
    if args.model == "gpt":
        inputs = torch.randint(256, (args.batch_size, 128), device=device)
        targets = inputs
    else:
        inputs = torch.randn(args.batch_size, 3, 32, 32, device=device)
        targets = torch.randint(10, (args.batch_size,), device=device)

    # The model needs two measurements: when each gradient is ready, and the cost of a message.
    ready, alone_s = times_of_gradients(model, partial(step, model, inputs, targets), args.max_steps, bench)
    costs = cost_of_messages(bench)
    num_bytes = 4 * count_parameters(model)
    print_rank0(
        f"{num_bytes / 1e6:.1f} MB of gradients; one rank alone needs {1e3 * alone_s:.1f} ms for a step"
    )
    if costs is None:
        print_rank0("no model: the times of messages do not grow with their size; take more rounds")
    else:
        print_rank0(f"a message costs {1e3 * costs[0]:.2f} ms, and {1e9 * costs[1]:.2f} ms for each MB")
    print_rank0("  cap MB  buckets largest MiB  step ms  model ms  exposed ms")

    found: list[tuple[int, float, float]] = []
    for cap_mb in CAPS_MB:
        if not bench.goes_on():
            break
        buckets, seconds = step_with_buckets(model, inputs, targets, cap_mb, device, bench)
        found.append((len(buckets), cap_mb, seconds))
        modelled = None if costs is None else model_of_step(buckets, ready, alone_s, *costs)
        exposed_s = max(0.0, seconds - alone_s)
        largest = max(size for _, size in buckets) / MIB
        shown = "        –" if modelled is None else f"{1e3 * modelled:9.1f}"
        bench.row(
            "buckets",
            f"{cap_mb:8g} {len(buckets):8} {largest:11.2f} {1e3 * seconds:8.1f} {shown}"
            f" {1e3 * exposed_s:11.1f}",
            cap_mb=cap_mb,
            bucket_bytes=[size for _, size in buckets],
            bucket_step_s=seconds,
            modelled_step_s=modelled,
            exposed_s=exposed_s,
        )
    if found:
        print_rank0(f"fastest: {fastest(found)}")
    bench.finish()


def fastest(found: list[tuple[int, float, float]]) -> str:
    """In words, of the number of buckets, the cap and the seconds of each row: caps that make as many buckets
    are one way, and differ by chance alone."""
    num_buckets, _, _ = min(found, key=lambda row: row[2])
    cap_mb = min(cap_mb for num, cap_mb, _ in found if num == num_buckets)
    return "all in one bucket" if num_buckets == 1 else f"{num_buckets} buckets, bucket_cap_mb={cap_mb:g}"


def step(model: nn.Module, inputs: Tensor, targets: Tensor) -> None:
    """Forward and backward. With DDP around the model, the backward pass ends with averaged gradients."""
    model.zero_grad()
    loss_of(model(inputs), targets).backward()


def times_of_gradients(
    model: nn.Module, step: Callable[[], None], num_rounds: int, bench: Bench
) -> tuple[dict[int, float], float]:
    """Seconds from the begin of a step until each gradient is ready, by the parameter's number, and until its
    end: medians, without any exchange. Means over the ranks, so that all have the same."""
    moments: dict[int, Moment] = {}
    hooks = [
        parameter.register_post_accumulate_grad_hook(
            lambda _, number=number: moments.update({number: Moment(bench.device)})
        )
        for number, parameter in enumerate(model.parameters())
    ]
    rounds: list[list[float]] = []
    for _ in range(2 + num_rounds):
        dist.barrier()  # as in DDP, all compute at the same time
        began = Moment(bench.device)
        step()
        ended = Moment(bench.device)
        bench.wait()
        rounds.append([moments[number].since(began) for number in sorted(moments)] + [ended.since(began)])
    for hook in hooks:
        hook.remove()
    mine = torch.tensor(rounds[2:]).median(0).values
    *ready, end = torch.tensor(gather(mine.tolist())).mean(0).tolist()
    return dict(zip(sorted(moments), ready)), end  # noqa: B905 - no strict= in Python 3.9


class Moment:
    """Now, on the clock of the device: a GPU is there later than the host."""

    def __init__(self, device: torch.device) -> None:
        self._event = torch.cuda.Event(enable_timing=True) if device.type == "cuda" else None
        if self._event is not None:
            self._event.record()
        self._now = time.perf_counter()

    def since(self, earlier: Moment) -> float:
        if self._event is not None and earlier._event is not None:
            return earlier._event.elapsed_time(self._event) / 1e3
        return self._now - earlier._now


def cost_of_messages(bench: Bench) -> tuple[float, float] | None:
    """Seconds for each all-reduce, and for each byte of it, by least squares of the relative errors.

    None: they do not explain the times. `comm_bench` looks at them closely.
    """
    times = []
    for num_bytes in MESSAGE_BYTES:
        zeros = torch.zeros(num_bytes // 4, device=bench.device)
        times.append(max(gather(bench.seconds_of(partial(dist.all_reduce, zeros)))))
    measured = torch.tensor(times, dtype=torch.float64)
    rows = torch.tensor([[1.0, num_bytes / MIB] for num_bytes in MESSAGE_BYTES], dtype=torch.float64)
    fitted = torch.linalg.lstsq(rows / measured[:, None], torch.ones_like(measured)).solution
    alpha, per_mib = fitted.tolist()
    bench.metrics.event(
        "messages", bench.step, num_bytes=MESSAGE_BYTES, times_s=times, alpha_s=alpha, per_mib_s=per_mib
    )
    return (alpha, per_mib / MIB) if alpha > 0 and per_mib > 0 else None


def step_with_buckets(
    model: nn.Module, inputs: Tensor, targets: Tensor, cap_mb: float, device: torch.device, bench: Bench
) -> tuple[list[tuple[list[int], int]], float]:
    """The buckets that DDP makes below this size, in the order in which they leave: their parameters'
    numbers, and their bytes. And the seconds of a step, on the slowest rank."""
    model = copy.deepcopy(model)  # DDP leaves hooks in a model
    numbers = {id(parameter): number for number, parameter in enumerate(model.parameters())}
    buckets: list[tuple[list[int], int]] = []

    def remember(_, bucket):  # DDP compares annotations with its own, and texts are none of them
        if bucket.index() == 0:
            buckets.clear()  # of the step before: in its first step DDP learns the order, and cuts anew
        tensor = bucket.buffer()
        buckets.append(
            (
                [numbers[id(parameter)] for parameter in bucket.parameters()],
                tensor.numel() * tensor.element_size(),
            )
        )
        return allreduce_hook(dist.group.WORLD, bucket)  # DDP does this without a hook

    ddp_model = DDP(
        model,
        device_ids=[device] if device.type == "cuda" else None,
        bucket_cap_mb=cap_mb,
        gradient_as_bucket_view=True,
    )
    ddp_model.register_comm_hook(None, remember)
    seconds = max(gather(bench.seconds_of(partial(step, ddp_model, inputs, targets))))
    return list(buckets), seconds


def model_of_step(
    buckets: list[tuple[list[int], int]],
    ready: dict[int, float],
    alone_s: float,
    alpha: float,
    per_byte: float,
) -> float:
    """A bucket leaves when all of its gradients are ready and the bucket before it has arrived. The step ends
    when the last has arrived."""
    arrived = 0.0
    for numbers, num_bytes in buckets:
        leaves = max([arrived, *(ready[number] for number in numbers)])
        arrived = leaves + alpha + per_byte * num_bytes
    return max(arrived, alone_s)


if __name__ == "__main__":
    run(main)
