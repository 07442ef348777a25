"""Shared code of `coach jobs`, `nodes` and `partitions`: their options, the choice of the backend, and one
query to it."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coach.cli.reading_io import slurm_io
from coach.config import BACKENDS, Settings
from coach.late import late
from coach.model.errors import OTHERS_JOBS, UserError, hidden_by_site
from coach.model.reading import JobList, NodeList, PartitionList
from coach.model.slurm.cluster import GpuAllocation, GpuCount, Job, Node, Partition
from coach.sources.base import PollingSource
from coach.sources.machine.user import user_name
from coach.sources.slurm.client import Client, JobsSource, NodesSource, ask_private_kinds
from coach.sources.slurm.nodes import nodes_query, parse_nodes, parse_partitions, partitions_query
from coach.sources.slurm.queue import jobs_query, parse_jobs
from coach.sources.slurm.start_times import ALLOCATIONS_QUERY, parse_allocations
from coach.workflows.backend import resolve_backend

if TYPE_CHECKING:
    from coach.sources.io import Io, Query
    from coach.sources.slurm.client import Answer
    from coach.workflows.judging import targets
else:
    targets = late("coach.workflows.judging", "targets")

ENDED_JOB_HELP = "a job id, a run id, a directory or a log file (default: your job that ended badly last)"
"""Help for JOB, in commands about a single job."""


@dataclass(frozen=True, slots=True)
class Look:
    """The backend's answer; parts that were not requested are empty."""

    jobs: tuple[Job, ...]
    nodes: tuple[Node, ...]
    partitions: tuple[Partition, ...]
    num_bad_rows: int
    hidden: frozenset[str] = frozenset()
    """Those of `jobs` (other users'), `nodes` and `partitions` that the site hides from the user."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=("text", "json"), default="text", help="text (default) or json")
    parser.add_argument("--backend", choices=BACKENDS, help="which cluster to ask (default: auto)")


def backend_of(named: str | None, settings: Settings) -> str:
    """The backend to ask: the one that the command line names, else the config's; `slurm` or `local`."""
    return resolve_backend(named or settings.launch.backend, os.environ)


def add_clusters(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-M",
        "--clusters",
        type=_cluster_names,
        default=(),
        metavar="NAMES",
        help="other clusters of the same accounting database, separated by commas",
    )


def _cluster_names(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(text.split(",")))
    if not all(re.fullmatch(r"[A-Za-z0-9][\w.-]*", name) for name in names):
        raise argparse.ArgumentTypeError(f"{text!r}: expected names of clusters, separated by commas")
    return names


def look(
    settings: Settings,
    backend: str | None,
    *,
    source: str,
    is_all: bool = True,
    clusters: Sequence[str] = (),
) -> Look:
    """Query once for `jobs`, `nodes` or `partitions`. Raises UserError in the backend's own words if it does
    not answer.

    `clusters` are queried by name, one after the other, instead of the local one.
    """
    io = slurm_io(settings)
    is_local = backend_of(backend, settings) == "local"
    if clusters and is_local:
        raise UserError(f"--clusters {','.join(clusters)}: the local backend is this machine alone")
    if clusters:
        return _look_at_clusters(io, clusters, source, None if is_all else user_name())
    polling: PollingSource = NodesSource(io, 0.0)
    if is_local:
        polling = targets.local_queue(settings, io, user_name())
    elif source == "jobs":
        polling = JobsSource(io, user_name(), 0.0, is_all=is_all)
    return _read_all(polling, source)


def _read_all(polling: PollingSource, source: str) -> Look:
    """The answer of a source. Raises UserError in the backend's own words if it does not answer."""
    jobs: tuple[Job, ...] = ()
    nodes: tuple[Node, ...] = ()
    partitions: tuple[Partition, ...] = ()
    hidden: set[str] = set()
    num_bad_rows = 0
    for reading in polling.poll():
        if reading.error is not None:
            raise UserError(reading.error)
        if reading.source == source:
            num_bad_rows = reading.num_bad_rows
        match reading.payload:
            case JobList():
                jobs = reading.payload.jobs
                hidden |= {"jobs"} if reading.payload.are_others_hidden else set()
            case NodeList():
                nodes = reading.payload.nodes
                hidden |= {"nodes"} if reading.payload.is_hidden else set()
            case PartitionList():
                partitions = reading.payload.partitions
                hidden |= {"partitions"} if reading.payload.is_hidden else set()
    return Look(jobs, nodes, partitions, num_bad_rows, frozenset(hidden))


def hidden_as_json(answer: Look) -> dict[str, list[str]]:
    """The JSON key that names the kinds that the site hides; empty if it hides none."""
    return {"hidden": sorted(answer.hidden)} if answer.hidden else {}


def print_hidden(answer: Look) -> None:
    """Report on stderr the kinds that the site hides: an empty table would suggest that there is nothing."""
    for what, words in (("jobs", OTHERS_JOBS), ("nodes", "nodes"), ("partitions", "partitions")):
        if what in answer.hidden:
            print(f"coach: {hidden_by_site(words)}", file=sys.stderr)


def _look_at_clusters(io: Io, clusters: Sequence[str], source: str, user: str | None) -> Look:
    def ask(query: Query) -> Answer:
        answer = Client(io).ask(query)
        if answer.is_denied:
            raise UserError(f"cluster {cluster}: {hidden_by_site(source)}")
        if answer.error is not None:
            raise UserError(f"cluster {cluster}: {answer.error}")
        return answer

    found = Look((), (), (), 0)
    for cluster in clusters:
        if source == "jobs":
            answer = ask(jobs_query(user, cluster))
            jobs, num_bad = parse_jobs(answer.text, answer.query.separator, answer.query.record_end, cluster)
            found = Look((*found.jobs, *jobs), (), (), found.num_bad_rows + num_bad)
            continue
        nodes, num_bad = parse_nodes(ask(nodes_query(cluster)).text, cluster)
        partitions, num_bad_partitions = parse_partitions(ask(partitions_query(cluster)).text, nodes, cluster)
        found = Look(
            (),
            (*found.nodes, *nodes),
            (*found.partitions, *partitions),
            found.num_bad_rows + (num_bad if source == "nodes" else num_bad_partitions),
        )
    return found


def read_allocations(settings: Settings) -> tuple[tuple[GpuAllocation, ...], str | None]:
    """The GPUs of each job, from one query for all jobs, and the error if Slurm did not report them."""
    answer = Client(slurm_io(settings)).ask(ALLOCATIONS_QUERY)
    return ((), answer.error) if answer.error is not None else (parse_allocations(answer.text)[0], None)


def print_if_jobs_are_hidden(settings: Settings) -> None:
    """Report on stderr if the site hides other users' jobs. Queries the configuration."""
    io = slurm_io(settings)
    if "jobs" in (ask_private_kinds(io, user_name()) or ()):
        print(f"coach: {hidden_by_site(OTHERS_JOBS)}", file=sys.stderr)


def count_gpus(gpus: tuple[GpuCount, ...]) -> tuple[int, int | None]:
    """(GPUs in all, allocated GPUs). The second is None if the count of one type is unknown."""
    allocated = 0
    for gpu in gpus:
        if gpu.allocated is None:
            return sum(each.total for each in gpus), None
        allocated += gpu.allocated
    return sum(gpu.total for gpu in gpus), allocated
