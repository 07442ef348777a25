"""Bring batches to the GPU in three ways: from ordinary memory, from pinned memory, and by a prefetcher on a
stream of its own, while the GPU computes.

    python trainers/prefetcher.py --max_steps 10

Trains nothing. Without a GPU the same loops run, but there is no way to bring a batch along, so nothing can
overlap.
"""

from __future__ import annotations

import argparse
import time
from contextlib import nullcontext
from functools import partial
from typing import Callable, Iterable, Iterator

import torch
from common.arguments import TrainerParser
from common.bench import Bench
from common.distributed import TrainerError, counted, pick_device, print_rank0, require_single_process, run
from torch import Tensor

BYTES_PER_NUMBER = 4
MIB = 1024 * 1024
WIDTH = 512


class DataPrefetcher:
    """Gives batches on the device, and copies the next one there while the model computes with the last.

    The batches have to lie in pinned memory: from ordinary memory the driver copies in two steps, and the
    host waits. On a CPU it gives the batches as they are.
    """

    def __init__(self, batches: Iterable[Tensor], device: torch.device) -> None:
        self._batches = iter(batches)
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def __iter__(self) -> Iterator[Tensor]:
        coming = self._begin_next()
        while coming is not None:
            if self._stream is not None:
                # The stream that computes waits for the copy, and the host for neither.
                torch.cuda.current_stream().wait_stream(self._stream)
                # The memory belongs to the stream of the copy. Without this the allocator would give it to
                # the next copy while this batch is still in use.
                coming.record_stream(torch.cuda.current_stream())
            batch, coming = coming, self._begin_next()
            yield batch

    def _begin_next(self) -> Tensor | None:
        """Ask for the copy of one more batch; None: there is none."""
        batch = next(self._batches, None)
        if batch is None:
            return None
        with nullcontext() if self._stream is None else torch.cuda.stream(self._stream):
            return batch.to(self._device, non_blocking=True)


def parse_arguments() -> argparse.Namespace:
    parser = TrainerParser(__doc__)
    parser.add_shared("max_steps", "max_seconds", "seed")
    parser.add_argument(
        "--batch_mib",
        type=int,
        default=4,
        min=1,
        usual=(1, 1024),
        unit="MiB",
        help="Size of a batch",
    )
    parser.add_argument(
        "--num_batches",
        type=int,
        default=4,
        min=2,
        usual=(4, 1000),
        unit="batches",
        help="Batches of one round",
    )
    parser.add_argument(
        "--work",
        type=int,
        default=0,
        min=0,
        usual=(0, 1000),
        unit="products",
        help=("Matrix products computed with each batch; 0: as many as take as long as copying a batch"),
    )
    parser.add_places()
    parser.change_shared("bench")
    parser.change("max_steps", default=5, usual=(3, 1000))
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    require_single_process()
    device = pick_device(args.gpus_per_node)
    with Bench(args, device) as bench:
        measure(args, device, bench)


def measure(args: argparse.Namespace, device: torch.device, bench: Bench) -> None:
    torch.manual_seed(args.seed)
    bench.start()
    rows = args.batch_mib * MIB // BYTES_PER_NUMBER // WIDTH
    ordinary = [torch.randn(rows, WIDTH) for _ in range(args.num_batches)]
    weights = torch.randn(WIDTH, WIDTH, device=device) / WIDTH**0.5
    ways: dict[str, Callable[[], Iterable[Tensor]]] = {
        "ordinary": lambda: (batch.to(device) for batch in ordinary),
    }
    if device.type == "cuda":
        pinned = [batch.pin_memory() for batch in ordinary]
        ways["pinned"] = lambda: (batch.to(device, non_blocking=True) for batch in pinned)
        ways["prefetcher"] = lambda: DataPrefetcher(pinned, device)
        copy_s = show_bandwidths(ordinary[0], pinned[0], device, bench)
    else:
        ways["prefetcher"] = lambda: DataPrefetcher(ordinary, device)
        copy_s = show_memory(ordinary[0], bench)

    resident = [batch.to(device) for batch in ordinary]
    one_s = bench.seconds_of(partial(products, resident[0], weights, 1))
    num_products = args.work or max(1, round(copy_s / one_s))  # the most that can be hidden: half of the time
    compute = partial(products, weights=weights, num_products=num_products)
    computing_s = bench.seconds_of(lambda: consume(resident, compute)) / args.num_batches
    expected = consume(resident, compute).item()
    print_rank0(
        f"{args.num_batches} batches of {args.batch_mib} MiB; {counted(num_products, 'product')} with one "
        f"that is there: {1e3 * computing_s:.2f} ms"
    )
    print_rank0("batches by     ms a batch  of which the copy shows")
    for way, batches in ways.items():
        if not bench.goes_on():
            break
        found = consume(batches(), compute).item()
        if not abs(found - expected) <= 1e-4 * abs(expected):
            raise TrainerError(
                f"{way}: the batches add up to {found:g}, not to {expected:g}: they were overwritten"
            )
        seconds = bench.seconds_of(lambda batches=batches: consume(batches(), compute)) / args.num_batches
        exposed_s = max(0.0, seconds - computing_s)
        bench.row(
            "way",
            f"{way:12} {1e3 * seconds:12.2f} {1e3 * exposed_s:12.2f} ms",
            way=way,
            batch_time_s=seconds,
            computing_time_s=computing_s,
            exposed_copy_s=exposed_s,
        )
    if device.type != "cuda":
        print_rank0(
            "no GPU: batches are in the right memory already, so there is no copy to hide; pinned memory: "
            "not measured"
        )
    bench.finish()


def products(batch: Tensor, weights: Tensor, num_products: int) -> Tensor:
    """In place of a model: products of matrices, and one number that depends on all of the batch."""
    for _ in range(num_products):
        batch = batch @ weights
    return batch.abs().mean()


def consume(batches: Iterable[Tensor], compute: Callable[[Tensor], Tensor]) -> Tensor:
    """One round, as a training has it: nothing is read from the device before its end."""
    return torch.stack([compute(batch) for batch in batches]).sum()


def show_bandwidths(ordinary: Tensor, pinned: Tensor, device: torch.device, bench: Bench) -> float:
    """How fast one batch travels over the bus. Returns the seconds from pinned memory."""
    place = torch.empty_like(ordinary, device=device)
    print_rank0("copy to the GPU     GB/s  until the host goes on")
    for name, batch in (("ordinary", ordinary), ("pinned", pinned)):
        seconds = bench.seconds_of(partial(place.copy_, batch, non_blocking=True))
        started = time.perf_counter()
        place.copy_(batch, non_blocking=True)
        host_s = time.perf_counter() - started
        bench.wait()
        bandwidth = batch.nbytes / seconds / 1e9
        bench.row(
            "copy",
            f"{name:16} {bandwidth:8.1f} {1e6 * host_s:12,.0f} of {1e6 * seconds:,.0f} us",
            way=name,
            num_bytes=batch.nbytes,
            copy_time_s=seconds,
            host_time_s=host_s,
            bandwidth_gb_s=bandwidth,
        )
    return seconds


def show_memory(batch: Tensor, bench: Bench) -> float:
    """Without a bus: how fast a batch is copied within the host's memory. Returns the seconds."""
    place = torch.empty_like(batch)
    seconds = bench.seconds_of(partial(place.copy_, batch))
    bandwidth = batch.nbytes / seconds / 1e9
    bench.row(
        "copy",
        f"copy within the host's memory: {bandwidth:.1f} GB/s",
        way="host",
        num_bytes=batch.nbytes,
        copy_time_s=seconds,
        bandwidth_gb_s=bandwidth,
    )
    return seconds


if __name__ == "__main__":
    run(main)
