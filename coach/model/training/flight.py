"""What torch's flight recorder kept of one rank: the collectives that it called, by process group."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Call:
    number: int
    """Counts the collectives of one process group: the same call has the same number on all its ranks."""
    operation: str
    """`nccl:all_reduce`."""
    sizes: tuple[tuple[int, ...], ...]
    """Of its inputs."""


@dataclass(frozen=True, slots=True)
class FlightRecord:
    """One rank's newest calls in one process group, oldest first."""

    rank: int
    group: str
    members: tuple[int, ...]
    """Ranks of the group; empty where the dump does not tell."""
    calls: tuple[Call, ...]
    file: str
