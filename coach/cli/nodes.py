"""`coach nodes`: lists all nodes with their states, the reasons, and their allocated resources; with `--gpus`
the job on each GPU, with `--reserved` the reservations."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from coach.analysis.query.language import in_order
from coach.analysis.query.node_fields import node_vocabulary
from coach.analysis.queueing.free_gpus import NodeGpus, allocation_map, free_gpus
from coach.analysis.queueing.node_state import explain_state
from coach.cli import reserved
from coach.cli.cluster import (
    add_clusters,
    add_options,
    count_gpus,
    hidden_as_json,
    look,
    print_hidden,
    print_if_jobs_are_hidden,
    read_allocations,
)
from coach.cli.listing import add_listing, print_listing, read_listing
from coach.cli.listing import unmistakable as unmistakable
from coach.cli.text import format_mib, format_used, print_bad_rows, print_json, print_table, say
from coach.model.errors import UserError
from coach.model.slurm.cluster import GpuAllocation, Node
from coach.model.training.other_machine import rough_age
from coach.sources.slurm.node_sets import expand_nodes

if TYPE_CHECKING:
    from coach.config import Settings

_Free = Mapping[tuple[str | None, str, str | None], NodeGpus]
"""(cluster, node, GPU type) → its GPUs."""


COLUMNS = "node,state,part,cpus,mem,gpu,free,type,since,reason"


def configure(parser: argparse.ArgumentParser) -> None:
    add_listing(parser, node_vocabulary(lambda node: None, expand_nodes))
    parser.add_argument(
        "--gpus",
        action="store_true",
        help="list each GPU by its index, with the job that holds it (costs 3 more RPCs)",
    )
    parser.add_argument(
        "--reserved",
        action="store_true",
        help="list the reservations instead: who may use which nodes, and when",
    )
    add_clusters(parser)
    add_options(parser)


def run(args: argparse.Namespace, settings: Settings) -> int:
    _check_choices(args)
    if args.reserved:
        return reserved.run(args, settings)
    free: dict[tuple[str | None, str, str | None], NodeGpus] = {}
    vocabulary = node_vocabulary(lambda node: _free_on(node, free)[0] if node.gpus else None, expand_nodes)
    listing = read_listing(args, vocabulary)
    answer = look(settings, args.backend, source="nodes", clusters=args.clusters)
    free |= {
        (each.cluster, each.node, each.type): each for each in free_gpus(answer.nodes, answer.partitions)
    }
    nodes = listing.query.matching(answer.nodes)
    if args.format != "json" or args.gpus:
        print_hidden(answer)
    if "nodes" in answer.hidden and args.format != "json":
        return 0
    if args.gpus:
        return _print_map(args, settings, in_order(nodes, listing.orders), answer.num_bad_rows)
    if args.format == "json":
        as_json = listing.as_json if listing.columns else partial(_as_json, free=free)
        rows = in_order(nodes, listing.orders)
        print_json("nodes", map(as_json, rows), answer.num_bad_rows, hidden_as_json(answer))
        return 0
    now_s = time.time()
    special: Mapping[str, Callable[[Node], str | None]] = {
        "cpus": lambda node: format_used(node.num_cpus_allocated, node.num_cpus),
        "mem": _memory,
        "gpu": _gpus,
        "since": lambda node: _since(node, now_s),
    }
    print_listing(nodes, listing, vocabulary.columns(COLUMNS), special)
    print_bad_rows(answer.num_bad_rows)
    return 0


def _check_choices(args: argparse.Namespace) -> None:
    """Raise UserError for options that cannot stand together."""
    if args.reserved and (args.gpus or args.clusters or args.query or args.sort or args.columns):
        raise UserError("--reserved lists all reservations", "leave out the filter and the other options")
    if args.gpus and args.clusters:
        raise UserError("--gpus and --clusters: only the local cluster reports the job on each GPU")
    if args.gpus and args.columns:
        raise UserError("--gpus and --columns: --gpus has columns of its own")


def _print_map(args: argparse.Namespace, settings: Settings, nodes: Sequence[Node], num_bad_rows: int) -> int:
    allocations: tuple[GpuAllocation, ...] = ()
    if any(node.gpu_indices for node in nodes):
        allocations, error = read_allocations(settings)
        if error is not None:
            say(f"the job on each GPU is not known: {error}")
    slots = allocation_map(nodes, allocations)
    if any(slot.is_used and slot.job_id is None for slot in slots):
        print_if_jobs_are_hidden(settings)
    if args.format == "json":
        print_json("gpus", [asdict(slot) for slot in slots], num_bad_rows)
        return 0
    print_table(
        ("NODE", "GPU", "JOB"),
        [
            (slot.node, str(slot.index), slot.job_id or ("idle" if slot.is_used is False else None))
            for slot in slots
        ],
        "lrl",
    )
    print_bad_rows(num_bad_rows)
    return 0


def _free_on(node: Node, free: _Free) -> tuple[int | None, str | None]:
    """(GPUs that a job could have now, the reason why idle GPUs cannot be used)."""
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


def _memory(node: Node) -> str | None:
    memory = format_mib(node.memory_mib)
    return None if memory is None else f"{format_mib(node.memory_allocated_mib) or '–'}/{memory}"


def _gpus(node: Node) -> str | None:
    num_gpus, num_allocated = count_gpus(node.gpus)
    return format_used(num_allocated, num_gpus)


def _since(node: Node, now_s: float) -> str | None:
    """The author of the reason, and its age."""
    if node.reason_user is None:
        return None
    age = "" if node.reason_time_s is None else f", {rough_age(now_s - node.reason_time_s)} ago"
    return f"{node.reason_user}{age}"
