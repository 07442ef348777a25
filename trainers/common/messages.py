"""Collectives to be timed and checked: the numbers that each sends, the right result, and its memory.

Sizes, times and bandwidths are those of nccl-tests (github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md), so
that figures from here can stand beside its own. The numbers that travel are small whole ones that follow from
rank and place: their sums are exact in float32, and a wrong one is counted, not guessed.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Iterator

import torch
import torch.distributed as dist

from common.distributed import gather

BYTES_PER_NUMBER = 4  # float32
NUM_WARM_UP = 5  # calls before the clock starts: the first ones open connections
NUM_AT_ONCE = 4 * 1024 * 1024
"""Numbers that are made or compared together, so that a check takes little memory."""


@dataclass
class Collective:
    """One collective of this rank at one size.

    `result` is where it writes; `sent` where it reads, which may be the same place. `expected` makes the
    numbers of `result` from the first place to before the second.
    """

    call: Callable[[], Any]
    sent: torch.Tensor
    result: torch.Tensor
    expected: Callable[[int, int], torch.Tensor]

    def num_wrong(self, rank: int) -> int:
        """Fill in known numbers, call once, and count the wrong results, on all ranks together."""
        self.result.fill_(-1)
        for start, end in _pieces(self.sent):
            self.sent[start:end] = numbers_of(rank, start, end, self.sent.device)
        self.call()
        return sum(gather(count_wrong(self.result, self.expected)))


def numbers_of(rank: int, start: int, end: int, device: torch.device) -> torch.Tensor:
    """The numbers that this rank sends from place `start` to before `end`."""
    base, factor = _pattern(start, end, device)
    return base + (rank + 1) * factor


def sum_of_numbers(ranks: int, start: int, end: int, device: torch.device) -> torch.Tensor:
    """The sum of the numbers of all ranks. Exact for as many as 2,000 of them."""
    base, factor = _pattern(start, end, device)
    return ranks * base + ranks * (ranks + 1) // 2 * factor


def _pattern(start: int, end: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    places = torch.arange(start, end, device=device)
    return (places % 251).float(), (places % 7 + 1).float()


def count_wrong(result: torch.Tensor, expected: Callable[[int, int], torch.Tensor]) -> int:
    return sum(
        int((result[start:end] != expected(start, end)).sum().item()) for start, end in _pieces(result)
    )


def _pieces(tensor: torch.Tensor) -> Iterator[tuple[int, int]]:
    for start in range(0, len(tensor), NUM_AT_ONCE):
        yield start, min(start + NUM_AT_ONCE, len(tensor))


def _all_reduce(num: int, rank: int, ranks: int, device: torch.device) -> Collective:
    buffer = torch.zeros(num, device=device)  # zeros: however often they are added up
    return Collective(
        lambda: dist.all_reduce(buffer), buffer, buffer, lambda a, b: sum_of_numbers(ranks, a, b, device)
    )


def _all_gather(num: int, rank: int, ranks: int, device: torch.device) -> Collective:
    share, whole = torch.zeros(num // ranks, device=device), torch.zeros(num, device=device)

    # torch 2.13 has other names for two collectives, and warns of the old ones.
    gather_in_one = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor

    def expected(start: int, end: int) -> torch.Tensor:
        return _parts(start, end, len(share), device, lambda part, a, b: numbers_of(part, a, b, device))

    return Collective(lambda: gather_in_one(whole, share), share, whole, expected)


def _reduce_scatter(num: int, rank: int, ranks: int, device: torch.device) -> Collective:
    share, whole = torch.zeros(num // ranks, device=device), torch.zeros(num, device=device)
    first = rank * len(share)
    scatter_in_one = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    return Collective(
        lambda: scatter_in_one(share, whole),
        whole,
        share,
        lambda a, b: sum_of_numbers(ranks, first + a, first + b, device),
    )


def _broadcast(num: int, rank: int, ranks: int, device: torch.device) -> Collective:
    buffer = torch.zeros(num, device=device)
    return Collective(
        lambda: dist.broadcast(buffer, src=0), buffer, buffer, lambda a, b: numbers_of(0, a, b, device)
    )


def _all_to_all(num: int, rank: int, ranks: int, device: torch.device) -> Collective:
    sent, result = torch.zeros(num, device=device), torch.zeros(num, device=device)
    part = num // ranks

    def expected(start: int, end: int) -> torch.Tensor:
        first = rank * part  # the part of every rank's buffer that is for this one
        return _parts(start, end, part, device, lambda of, a, b: numbers_of(of, first + a, first + b, device))

    return Collective(lambda: dist.all_to_all_single(result, sent), sent, result, expected)


def _send_recv(num: int, rank: int, ranks: int, device: torch.device) -> Collective:
    sent, result = torch.zeros(num, device=device), torch.zeros(num, device=device)
    left, right = (rank - 1) % ranks, (rank + 1) % ranks
    return Collective(
        lambda: exchange(sent, right, result, left),
        sent,
        result,
        lambda a, b: numbers_of(left, a, b, device),
    )


def _parts(
    start: int, end: int, length: int, device: torch.device, of: Callable[[int, int, int], torch.Tensor]
) -> torch.Tensor:
    """Places `start` to `end` of parts of equal length behind each other; `of` makes a piece of one part."""
    found = []
    for part in range(start // length, (end - 1) // length + 1):
        first = part * length
        found.append(of(part, max(start, first) - first, min(end, first + length) - first))
    return torch.cat(found)


def exchange(sent: torch.Tensor, to: int, received: torch.Tensor, of: int) -> None:
    """Send to one rank while receiving from one: one after the other, all would wait for each other."""
    sending = dist.P2POp(dist.isend, sent, to)
    receiving = dist.P2POp(dist.irecv, received, of)
    for request in dist.batch_isend_irecv([sending, receiving]):
        request.wait()


@dataclass(frozen=True)
class Kind:
    """A collective of any size. `bus_factor` is the share of its bytes that every rank's link has to carry at
    least; `copies` how many times its size it needs in memory."""

    build: Callable[[int, int, int, torch.device], Collective]
    bus_factor: Callable[[int], float]
    copies: Callable[[int], float]


KINDS: dict[str, Kind] = {
    "all_reduce": Kind(_all_reduce, lambda n: 2 * (n - 1) / n, lambda n: 1),
    "all_gather": Kind(_all_gather, lambda n: (n - 1) / n, lambda n: 1 + 1 / n),
    "reduce_scatter": Kind(_reduce_scatter, lambda n: (n - 1) / n, lambda n: 1 + 1 / n),
    "broadcast": Kind(_broadcast, lambda n: 1, lambda n: 1),
    "all_to_all": Kind(_all_to_all, lambda n: (n - 1) / n, lambda n: 2),
    "send_recv": Kind(_send_recv, lambda n: 1, lambda n: 2),
}
"""By their names. A size is the larger of the bytes that a rank gives and gets, as nccl-tests counts."""


def time_of(call: Callable[[], Any], num_calls: int, device: torch.device) -> float:
    """Seconds of one call, on the rank where it is longest. All ranks call it."""
    return max(gather(own_time_of(call, num_calls, device)))


def own_time_of(call: Callable[[], Any], num_calls: int, device: torch.device) -> float:
    """Seconds of one call on this rank. All ranks call it, as they begin together.

    The calls are asked for one behind the other and waited for once, as nccl-tests does: a GPU then has the
    next one before it is done with this one. gloo's calls return when they are done.
    """
    for _ in range(NUM_WARM_UP):
        call()
    synchronize(device)
    dist.barrier()
    synchronize(device)
    started = time.perf_counter()
    for _ in range(num_calls):
        call()
    synchronize(device)
    return (time.perf_counter() - started) / num_calls


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def free_memory(device: torch.device) -> int:
    """Bytes that this rank can still take: of its device, or its share of the memory that the node, and the
    job's limit there, leave."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        return int(torch.cuda.mem_get_info(device)[0])
    return free_host_memory() // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def free_host_memory(root: Path = Path("/")) -> int:
    """The memory that the kernel calls available, or less where a control group of this process allows less.
    The file cache counts as free in both, because the kernel gives it up first."""
    lines = (root / "proc/meminfo").read_text().splitlines()
    free = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")]
    for line in (root / "proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        names = ("limit_in_bytes", "usage_in_bytes") if controllers else ("max", "current")
        cache_name = "total_inactive_file" if controllers else "inactive_file"
        top = root / "sys/fs/cgroup" / controllers
        place = top / path.lstrip("/")
        for group in (place, *place.parents):
            if group == top.parent:
                break
            limit, used = (_number_in(group / f"memory.{name}") for name in names)
            if limit is not None and used is not None:
                free.append(max(0, limit - used + _file_cache(group / "memory.stat", cache_name)))
    return min(free)


def _file_cache(path: Path, name: str) -> int:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith(f"{name} "))


def _number_in(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # no such limit, or "max"
        return None
