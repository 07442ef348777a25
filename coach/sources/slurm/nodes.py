"""Read nodes and partitions: the queries for scontrol, and the parsers of its answers.

`scontrol show nodes` answers for 10,000 nodes in a twentieth of a second, while `sinfo -N` takes seconds; but
it prints `key=value` pairs with free text among them. The needed keys come before the free text, so the first
of two equal keys is the true one. Partitions are the configuration's, with the sums of their nodes. All
functions are pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from coach.model.slurm.cluster import GpuCount, Node, Partition
from coach.sources.io import Query
from coach.sources.slurm.gres import gpu_indices, gpus_in_use, parse_gpus
from coach.sources.slurm.text import BadRow, optional, parse_count, parse_duration, parse_time

NODES_QUERY = Query("nodes", ("scontrol", "-a", "-d", "-o", "show", "nodes"))
PARTITIONS_QUERY = Query("partitions", ("scontrol", "-a", "-o", "show", "partitions"))

_FREE_TEXT = re.compile(r" (Reason|Comment|Extra|InstanceId|InstanceType|ReservationName)=")
"""Keys with free text at the end of a line. The text before the first of them was not written by users."""
_STAMP = re.compile(r" \[(?P<user>[^\s\]@]+)@(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\](?=\s|$)")
_CPU_RANGE = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?", re.ASCII)
_LINE_BREAK_IN_REASON = re.compile(r" {7,}")
_STATES_WITH_WORK_TO_GIVE = frozenset(
    {"idle", "cloud", "powered_down", "power", "dynamic_norm", "dynamic_future"}
)


def nodes_query(cluster: str | None = None) -> Query:
    """All nodes; `cluster` is the name of another cluster in the accounting database."""
    return NODES_QUERY if cluster is None else _of_cluster(NODES_QUERY, cluster)


def partitions_query(cluster: str | None = None) -> Query:
    return PARTITIONS_QUERY if cluster is None else _of_cluster(PARTITIONS_QUERY, cluster)


def _of_cluster(query: Query, cluster: str) -> Query:
    return Query(f"{query.kind} {cluster}", (query.argv[0], f"-M{cluster}", *query.argv[1:]))


def parse_nodes(text: str, cluster: str | None = None) -> tuple[tuple[Node, ...], int]:
    """(nodes, number of malformed lines)."""
    nodes: dict[str, Node] = {}
    num_bad = 0
    for line in text.split("\n"):
        if not line.strip() or line.startswith("No nodes in the system"):
            continue
        try:
            node = _parse_node(line, cluster)
            if node.name in nodes:
                raise BadRow(f"node {node.name!r} twice")
            nodes[node.name] = node
        except BadRow:
            num_bad += 1
    return tuple(nodes.values()), num_bad


def _parse_node(line: str, cluster: str | None) -> Node:
    free_text = _FREE_TEXT.search(line)
    pairs = _parse_pairs(line if free_text is None else line[: free_text.start()])
    has_reason = free_text is not None and free_text[1] == "Reason"
    reason, stamp = _parse_reason(line[free_text.end() :]) if free_text and has_reason else (None, None)
    name, state = pairs.get("NodeName", ""), pairs.get("State", "")
    if not line.startswith("NodeName=") or not name or not state:
        raise BadRow("not a node")
    return Node(
        name=name,
        state=state.lower(),
        reason=reason,
        partitions=_parse_list(pairs.get("Partitions", "")),
        num_cpus=_cpus_for_jobs(pairs),
        num_cpus_allocated=parse_count(pairs.get("CPUAlloc", "")),
        memory_mib=_memory_for_jobs(pairs),
        memory_allocated_mib=parse_count(pairs.get("AllocMem", "")),
        gpus=_parse_node_gpus(pairs.get("Gres", ""), pairs.get("GresUsed", "")),
        reason_user=stamp["user"] if stamp else None,
        reason_time_s=parse_time(stamp["time"]) if stamp else None,
        gpu_indices=gpu_indices(pairs.get("GresUsed", "")),
        owner=optional(pairs.get("Owner", "")),
        features=_parse_list(pairs.get("ActiveFeatures", "")),
        cluster=cluster,
    )


def _cpus_for_jobs(pairs: Mapping[str, str]) -> int | None:
    """CPUEfctv where Slurm prints it (22.05 and newer); else CPUTot without the CPUs kept for the system."""
    effective = parse_count(pairs.get("CPUEfctv", ""))
    total = parse_count(pairs.get("CPUTot", ""))
    if effective is not None or total is None:
        return total if effective is None else effective
    kept = _num_listed(pairs.get("CPUSpecList", ""))
    if kept is None:
        threads = parse_count(pairs.get("ThreadsPerCore", "")) or 1
        kept = (parse_count(pairs.get("CoreSpecCount", "")) or 0) * threads
    return max(0, total - kept)


def _num_listed(text: str) -> int | None:
    """The number of CPUs in `0-3,7`; None if it is no such list."""
    ranges = [_CPU_RANGE.fullmatch(part) for part in text.split(",")]
    if None in ranges:
        return None
    bounds = [(int(each[1]), int(each[2] or each[1])) for each in ranges if each is not None]
    return sum(max(0, last - first + 1) for first, last in bounds)


def _memory_for_jobs(pairs: Mapping[str, str]) -> int | None:
    memory_mib = parse_count(pairs.get("RealMemory", ""))
    kept_mib = parse_count(pairs.get("MemSpecLimit", ""))
    return None if memory_mib is None else max(0, memory_mib - (kept_mib or 0))


def _parse_list(text: str) -> tuple[str, ...]:
    return tuple(part for part in (optional(text) or "").split(",") if part)


def _parse_pairs(text: str) -> dict[str, str]:
    """Key → value. A word without `=` belongs to the value before it: partition names may contain blanks."""
    pairs: dict[str, str] = {}
    last: str | None = None
    for word in text.split(" "):
        key, equals, value = word.partition("=")
        if equals:
            last = key if key not in pairs else None
            pairs.setdefault(key, value)
        elif word and last is not None:
            pairs[last] += f" {word}"
    return pairs


def _parse_reason(text: str) -> tuple[str | None, re.Match[str] | None]:
    """The reason, and the stamp with the user who set it and the time.

    The stamp is in brackets behind the first line; further lines follow, indented, on the same output line.
    """
    stamp = _STAMP.search(text)
    if stamp is not None:
        further_lines = _FREE_TEXT.split(text[stamp.end() :], maxsplit=1)[0]
        text = text[: stamp.start()] + further_lines
    return optional(_LINE_BREAK_IN_REASON.sub("\n", text.rstrip())), stamp


def _parse_node_gpus(gres: str, gres_used: str) -> tuple[GpuCount, ...]:
    totals, used = parse_gpus(gres), gpus_in_use(gres, gres_used)
    if len(totals) == 1:
        # Some versions name the type in only one of the two: `gpu:a100:4` and `gpu:(null):2(IDX:0-1)`.
        ((kind, total),) = totals.items()
        num_used = _sum_known(used.values()) if used else None
        return (GpuCount(kind, total, None if num_used is None else min(total, num_used)),)
    # GPUs in use whose type is not named may be of any type, unless they are all the others.
    num_other = _sum_known(count for kind, count in used.items() if kind not in totals) if used else None
    num_known = _sum_known(used.get(kind, 0) for kind in totals)
    if num_other and num_known is not None and num_known + num_other >= sum(totals.values()):
        used, num_other = totals, 0
    return tuple(
        GpuCount(kind, total, None if num_other != 0 else used.get(kind, 0)) for kind, total in totals.items()
    )


def parse_partitions(
    text: str, nodes: Sequence[Node] | None, cluster: str | None = None
) -> tuple[tuple[Partition, ...], int]:
    """(partitions with the sums of their nodes, number of malformed lines).

    `nodes` is None if the site hides them: there are no sums then.
    """
    members: dict[str, list[Node]] | None = None if nodes is None else {}
    for node in nodes or ():
        assert members is not None
        for name in node.partitions:
            members.setdefault(name, []).append(node)
    partitions: list[Partition] = []
    num_bad = 0
    for line in text.split("\n"):
        if not line.strip() or line.startswith("No partitions in the system"):
            continue
        try:
            partitions.append(_parse_partition(line, members, cluster))
        except BadRow:
            num_bad += 1
    return tuple(partitions), num_bad


def _parse_partition(
    line: str, members: Mapping[str, Sequence[Node]] | None, cluster: str | None
) -> Partition:
    pairs = _parse_pairs(line)
    name = pairs.get("PartitionName", "")
    if not line.startswith("PartitionName=") or not name:
        raise BadRow("not a partition")
    nodes = None if members is None else members.get(name, ())
    sums = _Sums(parse_count(pairs.get("TotalCPUs", ""))) if members is None else _sums(name, members)
    num_nodes = parse_count(pairs.get("TotalNodes", ""))
    return Partition(
        name=name,
        is_default=pairs.get("Default") == "YES",
        state=pairs.get("State", "UNKNOWN").lower(),
        time_limit_s=parse_duration(pairs.get("MaxTime", "")),
        default_time_s=parse_duration(pairs.get("DefaultTime", "")),
        num_nodes=len(nodes or ()) if num_nodes is None else num_nodes,
        num_nodes_idle=sums.num_nodes_idle,
        num_cpus=sums.num_cpus,
        num_cpus_allocated=sums.num_cpus_allocated,
        gpus=sums.gpus,
        num_gpus_per_node=sums.num_gpus_per_node,
        is_exclusive=pairs.get("OverSubscribe", "").startswith("EXCLUSIVE"),
        allow_accounts=_parse_allowed(pairs.get("AllowAccounts", "")),
        allow_qos=_parse_allowed(pairs.get("AllowQos", "")),
        allow_groups=_parse_allowed(pairs.get("AllowGroups", "")),
        deny_accounts=_parse_list(pairs.get("DenyAccounts", "")),
        allow_submit_nodes=_parse_allowed(pairs.get("AllocNodes", "")),
        is_root_only=pairs.get("RootOnly") == "YES",
        needs_reservation=pairs.get("ReqResv") == "YES",
        cluster=cluster,
        is_hidden=pairs.get("Hidden") == "YES",
        max_nodes=parse_count(pairs.get("MaxNodes", "").replace("UNLIMITED", "")),
        default_mem_per_node_mib=parse_count(pairs.get("DefMemPerNode", "").replace("UNLIMITED", "")),
        default_mem_per_cpu_mib=parse_count(pairs.get("DefMemPerCPU", "").replace("UNLIMITED", "")),
        max_mem_per_node_mib=parse_count(pairs.get("MaxMemPerNode", "").replace("UNLIMITED", "")),
    )


@dataclass(frozen=True, slots=True)
class _Sums:
    """The sums over a partition's nodes; all but the CPUs are unknown if the site hides the nodes."""

    num_cpus: int | None
    num_cpus_allocated: int | None = None
    num_nodes_idle: int | None = None
    num_gpus_per_node: int | None = None
    gpus: tuple[GpuCount, ...] = ()


def _sums(name: str, members: Mapping[str, Sequence[Node]]) -> _Sums:
    nodes = members.get(name, ())
    gpus = () if _is_cpu_side_of_gpu_nodes(name, members) else sum_gpus(nodes)
    per_node = max((sum(gpu.total for gpu in node.gpus) for node in nodes), default=0) if gpus else 0
    return _Sums(
        _sum_known(node.num_cpus for node in nodes),
        _sum_known(node.num_cpus_allocated for node in nodes),
        sum(is_idle(node) for node in nodes),
        per_node,
        gpus,
    )


def _parse_allowed(text: str) -> tuple[str, ...] | None:
    """None: everybody."""
    return None if text in ("", "ALL") else _parse_list(text)


def is_idle(node: Node) -> bool:
    """True if a whole node is free for a job. A powered-down node is free; a drained, reserved or planned one
    is not."""
    flags = node.state.split("+")
    return flags[0] == "idle" and _STATES_WITH_WORK_TO_GIVE.issuperset(flags)


def sum_gpus(nodes: Iterable[Node]) -> tuple[GpuCount, ...]:
    """GPUs of several nodes by type; `allocated` is None if one node does not report it."""
    sums: dict[str | None, GpuCount] = {}
    for gpu in (gpu for node in nodes for gpu in node.gpus):
        known = sums.get(gpu.type, GpuCount(gpu.type, 0, 0))
        allocated = None
        if known.allocated is not None and gpu.allocated is not None:
            allocated = known.allocated + gpu.allocated
        sums[gpu.type] = GpuCount(gpu.type, known.total + gpu.total, allocated)
    return tuple(sums.values())


def _is_cpu_side_of_gpu_nodes(name: str, members: Mapping[str, Sequence[Node]]) -> bool:
    """True for a partition with the spare CPUs of GPU nodes: it has cpu in its name, and another partition
    has the same GPUs."""
    if not _says_cpu(name):
        return False
    elsewhere = {
        node.name for other, nodes in members.items() if not _says_cpu(other) for node in nodes if node.gpus
    }
    return all(node.name in elsewhere for node in members.get(name, ()) if node.gpus)


def _says_cpu(name: str) -> bool:
    return not {"cpu", "cpus"}.isdisjoint(re.split(r"[^a-z]+", name.lower()))


def _sum_known(values: Iterable[int | None]) -> int | None:
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total
