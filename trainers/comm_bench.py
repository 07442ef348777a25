"""Measure what DDP, FSDP and all others pay for: all-reduce over many sizes, and the latency and bandwidth
that explain them.

    torchrun --standalone --nproc-per-node=2 trainers/comm_bench.py --max_mib 4

Trains nothing. A ring all-reduce written with send and receive shows how it is done; its result is checked
against the library's.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from statistics import median
from typing import Any, Callable

import torch
import torch.distributed as dist
from common.arguments import TrainerParser
from common.distributed import (
    STOPPED_EARLY,
    StopSignal,
    TrainerError,
    any_rank,
    describe_process,
    finish,
    gather,
    pick_device,
    print_rank0,
    require_torchrun,
    run,
    self_check,
)
from common.metrics import MetricsLog
from common.models import build_model, count_parameters

KIB, MIB = 1024, 1024 * 1024
WARM_UP_ROUNDS = 2
BYTES_PER_NUMBER = 4  # float32


def parse_arguments() -> argparse.Namespace:
    parser = TrainerParser(__doc__)
    parser.add_argument(
        "--max_steps",
        type=int,
        default=20,
        min=1,
        usual=(5, 1000),
        unit="rounds",
        help="Timed all-reduces of every size, after two that are not timed",
    )
    parser.add_shared("max_seconds")
    parser.change("max_seconds", help="Time after which no further size is begun; 0: however long it takes")
    parser.add_argument(
        "--max_mib",
        type=int,
        default=64,
        min=1,
        usual=(1, 1024),
        unit="MiB",
        help="Largest message; the smallest is 1 KiB, each is four times the one before",
    )
    parser.add_shared("seed")
    parser.change("seed", help="Seed of the numbers that the ring adds up")
    parser.add_places()
    parser.change("run_dir", help="where the results go")
    parser.change("data_dir", help="not used: nothing is trained")
    parser.change("cache_dir", help="not used")
    parser.change("gpus_per_node", help="GPUs allotted; 0: use the CPU; unset: see environment")
    parser.change("resume_from", help="not used: a measurement starts anew")
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    stop = StopSignal(args.max_seconds)
    require_torchrun()
    device = pick_device(args.gpus_per_node)
    dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    with MetricsLog(args.run_dir, device) as metrics:
        measure(args, device, metrics, stop)


def measure(args: argparse.Namespace, device: torch.device, metrics: MetricsLog, stop: StopSignal) -> None:
    world_size = metrics.world_size
    if world_size < 2:
        raise TrainerError("nothing to communicate: 1 rank was started, at least 2 are needed")
    torch.manual_seed(args.seed)
    model = build_model("simplecnn", width=64).to(device)  # whose gradients are a message that one knows
    num_parameters = count_parameters(model)
    self_check(model, device)
    metrics.event(
        "start",
        0,
        rank=metrics.rank,
        world_size=world_size,
        num_parameters=num_parameters,
        backend="nccl" if device.type == "cuda" else "gloo",
        **describe_process(device),
    )

    times: dict[int, float] = {}  # seconds by bytes
    step, reason = 0, "max_steps"
    num_bytes = KIB
    print_rank0(f"all-reduce of {world_size} ranks on {device.type}, median of {args.max_steps}:")
    print_rank0("        bytes   time us   algbw GB/s   busbw GB/s")
    while num_bytes <= args.max_mib * MIB:
        if any_rank(stop.is_requested):
            reason = stop.reason
            break
        zeros = torch.zeros(num_bytes // BYTES_PER_NUMBER, device=device)  # however often they are added
        seconds = time_of(partial(dist.all_reduce, zeros), args.max_steps, device)
        times[num_bytes] = seconds
        step += args.max_steps
        # Every byte has to travel 2 (p-1)/p times at least, so that this bandwidth can be compared with the
        # hardware's at any p.
        bandwidth = num_bytes / seconds
        bus_bandwidth = bandwidth * 2 * (world_size - 1) / world_size
        metrics.event(
            "all_reduce",
            step,
            num_bytes=num_bytes,
            all_reduce_time_s=seconds,
            num_rounds=args.max_steps,
            algorithm_bandwidth_gb_s=bandwidth / 1e9,
            bus_bandwidth_gb_s=bus_bandwidth / 1e9,
        )
        print_rank0(
            f"{num_bytes:13,} {1e6 * seconds:9,.0f} {bandwidth / 1e9:12.3f} {bus_bandwidth / 1e9:12.3f}"
        )
        num_bytes *= 4

    if len(times) >= 2:
        report_fit(times, world_size, num_parameters, step, metrics)
    if reason not in STOPPED_EARLY:
        check_ring(min(MIB, args.max_mib * MIB), args, device, step, metrics)
    else:
        print_rank0(f"{stop.name or 'stop signal'} received: leaving after {len(times)} sizes")
    finish(metrics, step, reason)


def time_of(communicate: Callable[[], Any], num_rounds: int, device: torch.device) -> float:
    """Seconds of one call: the median of the rounds, on the rank where it is longest."""
    rounds = []
    for _ in range(WARM_UP_ROUNDS + num_rounds):
        started = time.perf_counter()
        communicate()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        rounds.append(time.perf_counter() - started)
    return max(gather(median(rounds[WARM_UP_ROUNDS:])))


def report_fit(
    times: dict[int, float], world_size: int, num_parameters: int, step: int, metrics: MetricsLog
) -> None:
    """Explain the times by two numbers: what every message costs, and what every byte costs.

    A ring of p ranks passes p-1 parts on, twice: t = 2 (p-1) alpha + 2 (p-1)/p bytes / B (Thakur,
    Rabenseifner, Gropp 2005). Least squares of the relative errors: of the absolute ones, the largest message
    alone would decide.
    """
    hops = 2 * (world_size - 1)
    rows = torch.tensor([[1.0, num_bytes] for num_bytes in times], dtype=torch.float64)
    measured = torch.tensor(list(times.values()), dtype=torch.float64)
    scale = rows.amax(0)  # both unknowns of one size, or the solver takes the smaller one for nothing
    fitted = torch.linalg.lstsq(rows / scale / measured[:, None], torch.ones_like(measured)).solution / scale
    per_message, per_byte = fitted.tolist()
    errors = (rows @ fitted / measured - 1).abs()
    alpha = per_message / hops if per_message > 0 else None
    bandwidth = hops / world_size / per_byte if per_byte > 0 else None
    num_bytes = BYTES_PER_NUMBER * num_parameters
    predicted = per_message + per_byte * num_bytes
    metrics.event(
        "fit",
        step,
        alpha_s=alpha,
        bandwidth_gb_s=bandwidth and bandwidth / 1e9,
        typical_error=errors.median().item(),
        largest_error=errors.max().item(),
        num_sizes=len(times),
        gradient_bytes=num_bytes,
        gradient_time_s=predicted if alpha and bandwidth else None,
    )
    if alpha is None or bandwidth is None:
        print_rank0(
            (
                "alpha and B: not measured, as the times do not grow with the size; take more rounds or "
                "larger messages"
            )
        )
        return
    print_rank0(
        f"alpha {1e6 * alpha:.1f} us a message, B {bandwidth / 1e9:.3f} GB/s (ring of {world_size} ranks,"
        f" {len(times)} sizes, typical error {errors.median().item():.0%}, largest {errors.max().item():.0%})"
    )
    print_rank0(
        f"so {num_bytes / 1e6:.1f} MB of gradients, as SimpleCNN has, take {1e3 * predicted:.2f} ms of every "
        "step of DDP,"
        " as far as the backward pass does not hide them"
    )


def check_ring(
    num_bytes: int, args: argparse.Namespace, device: torch.device, step: int, metrics: MetricsLog
) -> None:
    """Compare the ring below with the library's all-reduce: the same sums, and how much slower?"""
    rank, world_size = metrics.rank, metrics.world_size
    random = torch.Generator().manual_seed(args.seed + rank)
    mine = torch.randn(num_bytes // BYTES_PER_NUMBER, generator=random).to(device)
    expected = mine.clone()
    dist.all_reduce(expected)
    ring_all_reduce(mine, rank, world_size)
    # The ring adds in another order than the library may do, so that sums differ in their last bits.
    difference = max(gather((mine - expected).abs().max().item()))
    if not difference <= 1e-5 * world_size:
        raise TrainerError(f"the ring's sums differ from the library's by up to {difference:g}")
    zeros = torch.zeros_like(mine)
    ring_s = time_of(partial(ring_all_reduce, zeros, rank, world_size), args.max_steps, device)
    library_s = time_of(partial(dist.all_reduce, zeros), args.max_steps, device)
    metrics.event(
        "ring", step, num_bytes=num_bytes, ring_time_s=ring_s, library_time_s=library_s, difference=difference
    )
    print_rank0(
        f"ring of send and receive, {num_bytes:,} bytes: the library's sums (largest difference "
        f"{difference:.1g}),"
        f" {1e6 * ring_s:,.0f} us against {1e6 * library_s:,.0f} us"
    )


def ring_all_reduce(tensor: torch.Tensor, rank: int, world_size: int) -> None:
    """Sum over all ranks, in place. Every rank talks to its two neighbours only, and all links are busy all
    the time."""
    parts = tensor.tensor_split(world_size)
    received = torch.empty_like(parts[0])

    # Reduce-scatter: each part travels around the ring and collects what every rank adds. Rank r ends with
    # part r+1 complete.
    for turn in range(world_size - 1):
        part = parts[(rank - turn - 1) % world_size]
        pass_on(parts[(rank - turn) % world_size], received[: len(part)], rank, world_size)
        part += received[: len(part)]

    # All-gather: the complete parts travel around once more.
    for turn in range(world_size - 1):
        pass_on(parts[(rank - turn + 1) % world_size], parts[(rank - turn) % world_size], rank, world_size)


def pass_on(sent: torch.Tensor, received: torch.Tensor, rank: int, world_size: int) -> None:
    """Send to the right neighbour while receiving from the left one: one after the other, all would wait for
    each other."""
    send = dist.P2POp(dist.isend, sent, (rank + 1) % world_size)
    receive = dist.P2POp(dist.irecv, received, (rank - 1) % world_size)
    for request in dist.batch_isend_irecv([send, receive]):
        request.wait()


if __name__ == "__main__":
    run(main)
