"""Build the all-reduce that DDP rests on from nothing but send and receive, and count the bytes that every
rank sends.

    torchrun --standalone --nproc-per-node=4 trainers/ring.py --size_kib 1024

Trains nothing. Three ways to add up the same numbers: rank 0 collects and hands out, the ring, and the
library's all-reduce, whose sums the others must have.
"""

from __future__ import annotations

import argparse
import os
import socket
import stat
import struct
from functools import partial
from typing import Callable

import torch
import torch.distributed as dist
from common.arguments import TrainerParser
from common.bench import Bench
from common.distributed import TrainerError, gather, pick_device, print_rank0, require_torchrun, run
from common.messages import BYTES_PER_NUMBER, count_wrong, numbers_of, sum_of_numbers, time_of

KIB = 1024
BYTES_SENT, BYTES_AGAIN = 200, 208
"""Where struct tcp_info, which all Linux since 4.19 has alike, tells how many bytes a connection has sent,
and how many of them again, because the other side was slow to answer."""


def parse_arguments() -> argparse.Namespace:
    parser = TrainerParser(__doc__)
    parser.add_argument(
        "--max_steps",
        type=int,
        default=20,
        min=1,
        usual=(5, 1000),
        unit="rounds",
        help="Timed calls of each way, after five that are not timed",
    )
    parser.add_shared("max_seconds")
    parser.change("max_seconds", help="Time after which no further way starts; 0: no limit")
    parser.add_argument(
        "--size_kib",
        type=int,
        default=4096,
        min=1,
        usual=(1, 262144),
        unit="KiB",
        help="Data of each rank, which all ranks add up",
    )
    parser.add_shared("seed")
    parser.change("seed", help="Not used: the numbers are known, so that the sums can be checked")
    parser.add_places()
    parser.change("run_dir", help="the directory of the results")
    parser.change("data_dir", help="not used: nothing is trained")
    parser.change("cache_dir", help="not used")
    parser.change("gpus_per_node", help="GPUs allotted; 0: use the CPU; unset: see environment")
    parser.change("resume_from", help="not used: a measurement always starts from the beginning")
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    require_torchrun()
    device = pick_device(args.gpus_per_node)
    is_gpu = device.type == "cuda"
    dist.init_process_group("cpu:gloo,cuda:nccl" if is_gpu else "gloo", device_id=device if is_gpu else None)
    with Bench(args, device) as bench:
        compare(args, device, bench)


def compare(args: argparse.Namespace, device: torch.device, bench: Bench) -> None:
    rank, ranks = bench.metrics.rank, bench.metrics.world_size
    if ranks < 2:
        raise TrainerError("nothing to communicate: 1 rank was started, at least 2 are needed")
    bench.start(num_parameters=0)
    num = args.size_kib * KIB // BYTES_PER_NUMBER
    size = num * BYTES_PER_NUMBER
    print_rank0(f"{ranks} ranks add up {size:,} bytes each; at the least each must send 2 (n-1)/n of them:")
    print_rank0(
        f"{2 * (ranks - 1) / ranks * size:,.0f} bytes. What is sent, of all ranks the one that sends most:"
    )
    print_rank0("                     sent   of S  on the wire  time us  #wrong")

    for name, way in WAYS.items():
        if not bench.goes_on():
            break
        mine = numbers_of(rank, 0, num, device)
        before = bytes_on_the_wire()
        counted = way(mine, rank, ranks)
        dist.barrier()  # by now all have received: nothing waits in this process to be sent
        after = bytes_on_the_wire()
        num_wrong = sum(gather(count_wrong(mine, partial(sum_of_numbers, ranks, device=device))))
        seconds = time_of(partial(way, torch.zeros_like(mine), rank, ranks), args.max_steps, device)
        bench.step += args.max_steps
        sent = gather((counted, None if after is None or before is None else after - before))
        most = max((one for one, _ in sent if one is not None), default=None)
        wire = max((one for _, one in sent if one), default=None)
        bench.row(
            "way",
            f"{name:12} {as_text(most):>12} {'–' if most is None else format(most / size, '.2f'):>6} "
            f"{as_text(wire):>12} {1e6 * seconds:8,.0f} {num_wrong:7,}",
            way=name,
            num_bytes=size,
            bytes_sent=sent[rank][0],
            bytes_on_the_wire=sent[rank][1],
            call_time_s=seconds,
            num_wrong=num_wrong,
        )
        if num_wrong:
            raise TrainerError(f"{name}: {num_wrong:,} sums are wrong")
    bench.finish()


def as_text(num_bytes: int | None) -> str:
    return "–" if num_bytes is None else f"{num_bytes:,}"


def by_rank_0(tensor: torch.Tensor, rank: int, ranks: int) -> int:
    """The obvious way: rank 0 collects all, adds them up and hands the sum to each. Returns the bytes that
    this rank has sent. Rank 0 sends and receives n-1 times the size, while the others wait."""
    if rank != 0:
        dist.send(tensor, 0)
        dist.recv(tensor, 0)
        return tensor.nbytes
    received = torch.empty_like(tensor)
    for other in range(1, ranks):
        dist.recv(received, other)
        tensor += received
    for other in range(1, ranks):
        dist.send(tensor, other)
    return (ranks - 1) * tensor.nbytes


def ring(tensor: torch.Tensor, rank: int, ranks: int) -> int:
    """Every rank talks to its two neighbours only, and all links are busy all the time. Returns the bytes
    that this rank has sent."""
    parts = tensor.tensor_split(ranks)
    received = torch.empty_like(parts[0])
    num_sent = 0

    # Reduce-scatter: each part travels around the ring and collects what every rank adds. Rank r ends with
    # part r+1 complete.
    for turn in range(ranks - 1):
        part = parts[(rank - turn - 1) % ranks]
        num_sent += pass_on(parts[(rank - turn) % ranks], received[: len(part)], rank, ranks)
        part += received[: len(part)]

    # All-gather: the complete parts travel around once more.
    for turn in range(ranks - 1):
        num_sent += pass_on(parts[(rank - turn + 1) % ranks], parts[(rank - turn) % ranks], rank, ranks)
    return num_sent


def pass_on(sent: torch.Tensor, received: torch.Tensor, rank: int, ranks: int) -> int:
    """Send to the right neighbour while receiving from the left one: one after the other, all would wait for
    each other. Returns the bytes that were sent."""
    send = dist.P2POp(dist.isend, sent, (rank + 1) % ranks)
    receive = dist.P2POp(dist.irecv, received, (rank - 1) % ranks)
    for request in dist.batch_isend_irecv([send, receive]):
        request.wait()
    return sent.nbytes


def library(tensor: torch.Tensor, rank: int, ranks: int) -> None:
    """The way of NCCL or gloo, which neither of them tells."""
    dist.all_reduce(tensor)


WAYS: dict[str, Callable[[torch.Tensor, int, int], int | None]] = {
    "by rank 0": by_rank_0,
    "ring": ring,
    "library": library,
}


def bytes_on_the_wire() -> int | None:
    """The bytes that all TCP connections of this process have sent so far, through which gloo sends; None
    where the system does not tell. NCCL sends by NVLink, shared memory or InfiniBand, which this does not
    see."""
    total = 0
    try:
        for name in os.listdir("/proc/self/fd"):
            number = int(name)
            try:
                is_socket = stat.S_ISSOCK(os.fstat(number).st_mode)
            except OSError:  # the one that listed them is closed
                continue
            if is_socket:
                total += _bytes_sent(number)
    except OSError:
        return None
    return total


def _bytes_sent(descriptor: int) -> int:
    with socket.socket(fileno=os.dup(descriptor)) as connection:
        is_tcp = connection.family in (socket.AF_INET, socket.AF_INET6)
        if not is_tcp or connection.type != socket.SOCK_STREAM:
            return 0
        said = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, BYTES_AGAIN + 8)
    sent, again = struct.unpack_from("QQ", said, BYTES_SENT) if len(said) > BYTES_AGAIN else (0, 0)
    return int(sent - again)


if __name__ == "__main__":
    run(main)
