"""The judgement of a distributed training's self-check: over plain values that every rank has said, so that
all come to the same verdict.

Each verdict names a rank and a cause. A wrong sampler, in particular, raises no error by itself: the loss
falls, on half the data.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from torch.utils.data import DataLoader


def what_is_wrong(ranks: list[dict[str, Any]], num_samples: int | None) -> str | None:
    """The first fault in the values of all ranks; None when all is well.

    `num_samples` is the size of the training set; None: there is none, and no rank has said anything of its
    order.
    """
    trouble = _what_is_shared(ranks) or _what_differs(ranks)
    if trouble or num_samples is None:
        return trouble
    orders, shards = [theirs["order"] for theirs in ranks], [theirs["shard"] for theirs in ranks]
    return why_shards_are_wrong(orders, shards, num_samples) or _what_is_repeated(ranks)


def _what_is_shared(ranks: list[dict[str, Any]]) -> str | None:
    for key, what in (("place", "local rank"), ("device", "device")):
        places = [theirs[key] for theirs in ranks]
        for rank, place in enumerate(places):
            if places.index(place) != rank:
                return f"ranks {places.index(place)} and {rank} share one {what}: {place[1]} on {place[0]}"
    return None


def _what_differs(ranks: list[dict[str, Any]]) -> str | None:
    for key, what in (
        ("torch", "torch version"),
        ("python", "Python version"),
        ("parameters", "parameters after start"),
    ):
        for rank, theirs in enumerate(ranks):
            if theirs[key] != ranks[0][key]:
                return (
                    f"rank {rank} on {theirs['place'][0]} differs from rank 0 on {ranks[0]['place'][0]} in "
                    f"its {what}:"
                    f" {theirs[key]} instead of {ranks[0][key]}"
                )
    return None


def why_shards_are_wrong(orders: list[torch.Tensor], shards: list[int], num_samples: int) -> str | None:
    """The fault in the sharing of samples, by rank; None when every sample belongs to exactly one shard.

    A sampler may repeat or leave out fewer samples than there are shards, so that all shards are equally
    long.
    """
    for rank, (order, shard) in enumerate(zip(orders, shards)):  # noqa: B905 - no strict= in Python 3.9
        first = shards.index(shard)
        if not torch.equal(order, orders[first]):
            return f"ranks {first} and {rank} hold parts of one model, but read different samples"
    firsts = sorted({shards.index(shard) for shard in shards})  # one rank of every shard
    times = torch.bincount(torch.cat([orders[rank] for rank in firsts]), minlength=num_samples)
    num_repeated = int((times - 1).clamp(min=0).sum())
    if num_repeated >= len(firsts):
        for rank in firsts:
            for other in firsts[: firsts.index(rank)]:
                num_common = int(torch.isin(orders[rank], orders[other]).sum())
                if num_common >= len(firsts):
                    return (
                        f"rank {rank} trains on samples of rank {other}: {num_common} of its "
                        f"{len(orders[rank])};"
                        " the sampler needs num_replicas=WORLD_SIZE and rank=RANK (not LOCAL_RANK, which is "
                        "the same on every node)"
                    )
        return f"{num_repeated} of {num_samples} samples come more than once in an epoch"
    num_missing = int((times == 0).sum())
    if num_missing >= len(firsts):
        return (
            f"no rank trains on {num_missing} of {num_samples} samples; the sampler's num_replicas must be "
            "the number of ranks,"
            f" {len(firsts)}"
        )
    return None


def _what_is_repeated(ranks: list[dict[str, Any]]) -> str | None:
    for rank, theirs in enumerate(ranks):
        if theirs["is_repeated"]:
            return (
                f"on rank {rank}, the next epoch has the same order as this one: the sampler needs "
                "shuffle=True"
            )
    return None


def order_of_epoch(train_loader: DataLoader[Any]) -> tuple[torch.Tensor, bool]:
    """The samples of this rank in an epoch, in order, and whether the next epoch has the same order."""
    sampler: Any = getattr(train_loader.sampler, "sampler", train_loader.sampler)
    if not hasattr(sampler, "set_epoch"):
        return torch.tensor(list(sampler)), False
    epoch = sampler.epoch
    orders = []
    for number in (epoch, epoch + 1):
        sampler.set_epoch(number)
        orders.append(list(sampler))
    sampler.set_epoch(epoch)
    return torch.tensor(orders[0]), is_same_order(orders[0], orders[1])


def is_same_order(one: list[int], other: list[int]) -> bool:
    """True if two epochs have one order; chance gives that only to a handful of samples."""
    return len(one) >= 10 and one == other


def cores_of_process() -> frozenset[int]:
    """The numbers of the cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def cores_per_rank(ranks: list[tuple[str, frozenset[int]]]) -> list[float]:
    """Cores of each rank, from its node and the cores it may run on. A core that several ranks of a node may
    use counts for each in part."""
    return [
        sum(1 / sum(node == theirs and core in usable for theirs, usable in ranks) for core in cores)
        for node, cores in ranks
    ]
