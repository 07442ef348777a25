"""How samples reach the loop: in an order and with an augmentation that a resumed run meets again.

Order and augmentation are functions of seed, epoch and index alone, so that they do not depend on the number
of loading processes or on where a run was interrupted.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import signal
import time
from typing import Any, Iterator, Sized, Tuple

import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from common.checks import is_same_order
from common.distributed import TrainerError, rank_from_env

Batch = Tuple[torch.Tensor, torch.Tensor]
"""Inputs and targets."""


def training_loader(
    train_set: Dataset[Any], sampler: Sampler[int], args: argparse.Namespace, device: torch.device
) -> DataLoader[Any]:
    """Batches of `args.batch_size` in the sampler's order, loaded by `args.num_workers` processes.

    `Training.steps` says where in an epoch it begins.
    """
    return DataLoader(
        SeededSamples(train_set, args.seed),
        batch_size=args.batch_size,
        sampler=ResumableSampler(sampler),
        num_workers=args.num_workers,
        persistent_workers=args.num_workers > 0,
        worker_init_fn=leave_signals_to_trainer,
        generator=torch.Generator(),  # loading takes no number from dropout's generator
        pin_memory=device.type == "cuda",
    )


def evaluation_loader(
    test_set: Dataset[Any], args: argparse.Namespace, device: torch.device, batch_size: int = 256
) -> DataLoader[Any]:
    """Batches of the test set in its own order, loaded by as many processes as the training's."""
    return DataLoader(
        test_set,
        batch_size=batch_size,
        num_workers=args.num_workers,
        worker_init_fn=leave_signals_to_trainer,
        generator=torch.Generator(),
        pin_memory=device.type == "cuda",
    )


class ResumableSampler(Sampler["tuple[int, int]"]):
    """Another sampler's order, from a position within an epoch on: pairs of epoch and index, as SeededSamples
    reads them.

    Raises TrainerError when an epoch has the order of the one before.
    """

    def __init__(self, sampler: Sampler[int]) -> None:
        self.sampler = sampler
        self.epoch, self.start = 0, 0
        self._last_order: list[int] = []

    def begin(self, epoch: int, position: int) -> None:
        """The next pass is this epoch, without the samples before `position`."""
        self.epoch, self.start = epoch, position

    def __iter__(self) -> Iterator[tuple[int, int]]:
        order = list(self.sampler)
        if self.start == 0 and is_same_order(order, self._last_order):
            raise TrainerError(
                f"rank {rank_from_env()} would train in the order of the epoch before: call "
                "set_epoch(epoch), or seed the shuffling generator again, at the start of every epoch"
            )
        self._last_order = order
        epoch = self.epoch
        return ((epoch, index) for index in itertools.islice(order, self.start, None))

    def __len__(self) -> int:
        assert isinstance(self.sampler, Sized)
        return max(0, len(self.sampler) - self.start)


class SeededSamples(Dataset[Any]):
    """Another dataset's samples, each augmented with random numbers that depend on seed, epoch and index
    alone.

    Numbers that run on from sample to sample depend on the samples that a process loaded before. A resumed
    run could not draw them again.
    """

    def __init__(self, samples: Dataset[Any], seed: int) -> None:
        self.samples = samples
        self.seed = seed

    def __len__(self) -> int:
        return len(self.samples)  # type: ignore[arg-type] # it has a length

    def __getitem__(self, epoch_and_index: tuple[int, int]) -> Any:
        epoch, index = epoch_and_index
        digest = hashlib.blake2b(f"{self.seed} {epoch} {index}".encode(), digest_size=8).digest()
        before = torch.get_rng_state()  # without loading processes, dropout draws from the same generator
        torch.default_generator.manual_seed(int.from_bytes(digest, "little"))
        try:
            return self.samples[index]
        finally:
            torch.set_rng_state(before)


def steps_of(
    loader: DataLoader[Any], gradient_accumulation: int
) -> Iterator[tuple[list[tuple[torch.Tensor, torch.Tensor]], float]]:
    """For each optimizer step its micro-batches, and the seconds that training waited for them."""
    started = time.perf_counter()
    batches = iter(loader)
    while True:
        micro_batches = list(itertools.islice(batches, gradient_accumulation))
        if not micro_batches:
            return
        yield micro_batches, time.perf_counter() - started
        started = time.perf_counter()


def leave_signals_to_trainer(worker_id: int) -> None:
    """In a DataLoader worker: Slurm signals every process of a step, and the trainer still needs its workers
    to finish the step."""
    for number in (signal.SIGUSR1, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
