"""`coach nodes`: every node with its state, why, and what is allocated of it."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from coach.cli.cluster import add_options, count_gpus, look
from coach.cli.text import format_mib, format_used, print_bad_rows, print_json, print_table
from coach.config import Settings
from coach.model.cluster import Node


def configure(parser: argparse.ArgumentParser) -> None:
    add_options(parser)


def run(args: argparse.Namespace, settings: Settings) -> int:
    answer = look(settings, args.backend, source="nodes")
    if args.format == "json":
        print_json("nodes", [_as_json(node) for node in answer.nodes], answer.num_bad_rows)
        return 0
    print_table(
        ("NODE", "STATE", "PARTITIONS", "CPUS", "MEMORY", "GPUS", "TYPE", "REASON"),
        [_row(node) for node in answer.nodes],
        "lllrrrll",
    )
    print_bad_rows(answer.num_bad_rows)
    return 0


def _as_json(node: Node) -> dict[str, Any]:
    num_gpus, num_allocated = count_gpus(node.gpus)
    return {**asdict(node), "num_gpus": num_gpus, "num_gpus_allocated": num_allocated}


def _row(node: Node) -> tuple[str | None, ...]:
    num_gpus, num_allocated = count_gpus(node.gpus)
    memory = format_mib(node.memory_mib)
    return (
        node.name,
        node.state,
        ",".join(node.partitions),
        format_used(node.num_cpus_allocated, node.num_cpus),
        None if memory is None else f"{format_mib(node.memory_allocated_mib) or '–'}/{memory}",
        format_used(num_allocated, num_gpus),
        ",".join(gpu.type for gpu in node.gpus if gpu.type) or None,
        node.reason,
    )
