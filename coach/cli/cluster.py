"""What `coach jobs`, `nodes` and `partitions` share: their options, which backend answers, and one look at it."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass

from coach.config import BACKENDS, Settings
from coach.model.cluster import GpuCount, Job, Node, Partition
from coach.model.errors import UserError
from coach.model.reading import JobList, NodeList, PartitionList


@dataclass(frozen=True, slots=True)
class Look:
    """What the backend answered; empty for what was not asked."""

    jobs: tuple[Job, ...]
    nodes: tuple[Node, ...]
    partitions: tuple[Partition, ...]
    num_bad_rows: int


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--format",
        choices=("text", "json"),
        default="text",
        help="json: one object on stdout (default: text)",
    )
    parser.add_argument("--backend", choices=BACKENDS, help="which cluster to ask (default: auto)")


def look(settings: Settings, backend: str | None, *, source: str, is_all: bool = True) -> Look:
    """Ask once for `jobs`, `nodes` or `partitions`. Raises UserError in the backend's own words when it does not answer."""
    from coach.sources.base import PollingSource
    from coach.sources.io import SystemIo, scrubbed_environment
    from coach.sources.user import user_name
    from coach.workflows.backend import resolve_backend

    io = SystemIo(scrubbed_environment(os.environ))
    asked: PollingSource
    if resolve_backend(backend or settings.launch.backend, os.environ) == "local":
        from coach.sources.local_cluster import LocalClusterSource

        asked = LocalClusterSource(io, settings.runs_root, user_name())
    else:
        from coach.sources.slurm import JobsSource, NodesSource

        if source == "jobs":
            asked = JobsSource(io, user_name(), 0.0, is_all=is_all)
        else:
            asked = NodesSource(io, 0.0)
    jobs: tuple[Job, ...] = ()
    nodes: tuple[Node, ...] = ()
    partitions: tuple[Partition, ...] = ()
    num_bad_rows = 0
    for reading in asked.poll():
        if reading.error is not None:
            raise UserError(reading.error)
        if reading.source == source:
            num_bad_rows = reading.num_bad_rows
        match reading.payload:
            case JobList():
                jobs = reading.payload.jobs
            case NodeList():
                nodes = reading.payload.nodes
            case PartitionList():
                partitions = reading.payload.partitions
    return Look(jobs, nodes, partitions, num_bad_rows)


def count_gpus(gpus: tuple[GpuCount, ...]) -> tuple[int, int | None]:
    """GPUs in all, and how many are allocated; None when one type does not say."""
    allocated = 0
    for gpu in gpus:
        if gpu.allocated is None:
            return sum(each.total for each in gpus), None
        allocated += gpu.allocated
    return sum(gpu.total for gpu in gpus), allocated
