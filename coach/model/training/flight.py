"""Dumps of torch's flight recorder: the collectives that one rank called, by process group."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Call:
    number: int
    """Sequence number within the process group: a collective has the same number on all ranks."""
    operation: str
    """Such as `nccl:all_reduce`."""
    sizes: tuple[tuple[int, ...], ...]
    """Sizes of its inputs."""
    place: str = ""
    """The line of the program that called it, as `train.py:41 main()`; "" if its stack was not recorded."""


@dataclass(frozen=True, slots=True)
class FlightRecord:
    """One rank's newest calls in one process group, oldest first."""

    rank: int
    group: str
    members: tuple[int, ...]
    """Ranks of the group; empty if the dump does not name them."""
    calls: tuple[Call, ...]
    file: str
    first_unfinished: int | None = None
    """Number of the oldest call that was not completed; None if all were, or the dump does not say."""
    written_s: float | None = None
    """When its file was written, in epoch seconds."""
