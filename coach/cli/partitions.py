"""`coach partitions`: the partitions that a job can use, and their free resources."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from coach.analysis.queueing.free_gpus import TypeGpus, free_by_partition
from coach.cli.cluster import (
    add_clusters,
    add_options,
    count_gpus,
    hidden_as_json,
    look,
    print_hidden,
)
from coach.cli.text import (
    UNKNOWN,
    format_count,
    format_used,
    print_bad_rows,
    print_json,
    print_table,
)
from coach.config import Settings
from coach.model.slurm.cluster import Partition
from coach.render.text import clock


def configure(parser: argparse.ArgumentParser) -> None:
    add_clusters(parser)
    add_options(parser)


def run(args: argparse.Namespace, settings: Settings) -> int:
    answer = look(settings, args.backend, source="partitions", clusters=args.clusters)
    free = free_by_partition(answer.nodes, answer.partitions)
    if args.format == "json":
        print_json(
            "partitions",
            [_as_json(each, free.get((each.cluster, each.name), ())) for each in answer.partitions],
            answer.num_bad_rows,
            hidden_as_json(answer),
        )
        return 0
    print_hidden(answer)
    if "partitions" in answer.hidden:
        return 0
    print_table(
        (
            "PARTITION",
            "STATE",
            "LIMIT",
            "DEFAULT",
            "NODES",
            "IDLE",
            "CPUS",
            "GPUS",
            "FREE",
            "PER NODE",
            "TYPE",
        ),
        [_row(each, free.get((each.cluster, each.name), ())) for each in answer.partitions],
        "llrrrrrrrrl",
    )
    print_bad_rows(answer.num_bad_rows)
    return 0


def _as_json(partition: Partition, free: tuple[TypeGpus, ...]) -> dict[str, Any]:
    num_gpus, num_allocated = count_gpus(partition.gpus)
    return {
        **asdict(partition),
        "num_gpus": num_gpus,
        "num_gpus_allocated": num_allocated,
        "free_gpus": [asdict(each) for each in free],
    }


def _row(partition: Partition, free: tuple[TypeGpus, ...]) -> tuple[str | None, ...]:
    num_gpus, num_allocated = count_gpus(partition.gpus)
    return (
        partition.name + ("*" if partition.is_default else ""),
        f"{partition.state} hidden" if partition.is_hidden else partition.state,
        clock(partition.time_limit_s),
        clock(partition.default_time_s),
        format_count(partition.num_nodes),
        format_count(partition.num_nodes_idle),
        format_used(partition.num_cpus_allocated, partition.num_cpus),
        format_used(num_allocated, num_gpus),
        ",".join(UNKNOWN if each.free is None else str(each.free) for each in free) or None,
        format_count(partition.num_gpus_per_node),
        ",".join(gpu.type for gpu in partition.gpus if gpu.type) or None,
    )
