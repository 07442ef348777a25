"""`coach nodes`: every node with its state, why, and what is allocated of it; with `--gpus`, which job has which GPU."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from coach.analysis.free_gpus import NodeGpus, allocation_map, free_gpus
from coach.analysis.node_state import explain_state
from coach.cli.cluster import Look, add_clusters, add_options, count_gpus, look, read_allocations
from coach.cli.text import (
    format_count,
    format_mib,
    format_used,
    print_bad_rows,
    print_json,
    print_table,
    printable,
)
from coach.config import Settings
from coach.model.cluster import GpuAllocation, Node
from coach.model.elsewhere import rough_age
from coach.model.errors import UserError

_Free = Mapping[tuple[str | None, str, str | None], NodeGpus]
"""By cluster, node and type."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--gpus",
        action="store_true",
        help="each GPU by its index, with the job that has it (dear: 3 RPCs more)",
    )
    add_clusters(parser)
    add_options(parser)


def run(args: argparse.Namespace, settings: Settings) -> int:
    if args.gpus and args.clusters:
        raise UserError("--gpus and --clusters: which job has which GPU is told by the cluster at hand alone")
    answer = look(settings, args.backend, source="nodes", clusters=args.clusters)
    free = {(each.cluster, each.node, each.type): each for each in free_gpus(answer.nodes, answer.partitions)}
    if args.gpus:
        return _print_map(args, answer)
    if args.format == "json":
        print_json("nodes", [_as_json(node, free) for node in answer.nodes], answer.num_bad_rows)
        return 0
    print_table(
        ("NODE", "STATE", "PARTITIONS", "CPUS", "MEMORY", "GPUS", "FREE", "TYPE", "SINCE", "REASON"),
        [_row(node, free, time.time()) for node in answer.nodes],
        "lllrrrrlll",
    )
    print_bad_rows(answer.num_bad_rows)
    return 0


def _print_map(args: argparse.Namespace, answer: Look) -> int:
    allocations: tuple[GpuAllocation, ...] = ()
    if any(node.gpu_indices for node in answer.nodes):
        allocations, error = read_allocations()
        if error is not None:
            print(f"coach: which job has which GPU is not told: {printable(error)}", file=sys.stderr)
    slots = allocation_map(answer.nodes, allocations)
    if args.format == "json":
        print_json("gpus", [asdict(slot) for slot in slots], answer.num_bad_rows)
        return 0
    print_table(
        ("NODE", "GPU", "JOB"),
        [(slot.node, str(slot.index), slot.job_id or (None if slot.is_used else "idle")) for slot in slots],
        "lrl",
    )
    print_bad_rows(answer.num_bad_rows)
    return 0


def _free_on(node: Node, free: _Free) -> tuple[int | None, str | None]:
    """How many GPUs a job could have now, and why none of the idle ones."""
    found = [each for gpu in node.gpus if (each := free.get((node.cluster, node.name, gpu.type))) is not None]
    counts = [each.free for each in found]
    total = None if None in counts else sum(count for count in counts if count is not None)
    return total, next((each.why_not for each in found if each.why_not is not None), None)


def _as_json(node: Node, free: _Free) -> dict[str, Any]:
    num_gpus, num_allocated = count_gpus(node.gpus)
    num_free, why_not = _free_on(node, free)
    state = explain_state(node.state)
    return {
        **asdict(node),
        "num_gpus": num_gpus,
        "num_gpus_allocated": num_allocated,
        "num_gpus_free": num_free,
        "gpus_not_free_because": why_not,
        "state_meaning": state.meaning,
        "takes_jobs": state.takes_jobs,
    }


def _row(node: Node, free: _Free, now_s: float) -> tuple[str | None, ...]:
    num_gpus, num_allocated = count_gpus(node.gpus)
    memory = format_mib(node.memory_mib)
    return (
        node.name,
        node.state,
        ",".join(node.partitions),
        format_used(node.num_cpus_allocated, node.num_cpus),
        None if memory is None else f"{format_mib(node.memory_allocated_mib) or '–'}/{memory}",
        format_used(num_allocated, num_gpus),
        format_count(_free_on(node, free)[0]) if node.gpus else None,
        ",".join(gpu.type for gpu in node.gpus if gpu.type) or None,
        _since(node, now_s),
        node.reason,
    )


def _since(node: Node, now_s: float) -> str | None:
    """Who gave the reason, and how long ago."""
    if node.reason_user is None:
        return None
    age = "" if node.reason_time_s is None else f", {rough_age(now_s - node.reason_time_s)} ago"
    return f"{node.reason_user}{age}"
