from __future__ import annotations

import pytest

from coach.analysis.queueing.free_gpus import free_gpus
from coach.model.slurm.cluster import GpuCount, Node
from coach.sources.slurm.nodes import is_idle, parse_nodes, parse_partitions
from tests.sources.scripted_io import captured


def nodes_of(version: str) -> tuple[Node, ...]:
    nodes, num_bad = parse_nodes(captured(f"scontrol-nodes-{version}.txt").decode())
    assert num_bad == 0
    return nodes


def test_a_reason_that_imitates_fields_changes_nothing_but_the_reason() -> None:
    node1, node2, node3 = nodes_of("22.05")
    assert node1.state == "idle+drain"
    assert node1.num_cpus == 16
    assert node1.reason is not None
    assert node1.reason.startswith("bad State=IDLE CPUTot=1\nNodeName=node9 State=IDLE \x1b[31m")
    assert (node2.name, node2.reason) == ("node2", None)
    assert node3.name == "node3"


def test_a_comment_behind_a_node_without_reason_is_not_its_reason() -> None:
    assert [node.reason for node in nodes_of("24.11")] == [None, None]


def test_a_drained_nodes_reason_is_separated_from_its_user_and_time() -> None:
    line = captured("scontrol-nodes-22.05.txt").decode().split("\n")[1]
    (node,), _ = parse_nodes(line + " Reason=plain maintenance [root@2026-11-21T03:52:59] Comment=x y\n")
    assert node.reason == "plain maintenance"


def test_memory_that_the_node_keeps_for_itself_is_not_there_for_jobs() -> None:
    nodes, _ = parse_nodes(
        "NodeName=n1 RealMemory=64000 AllocMem=0 MemSpecLimit=4000 State=IDLE \n"
        "NodeName=n2 RealMemory=64000 AllocMem=0 State=IDLE \n"
    )
    assert [node.memory_mib for node in nodes] == [60000, 64000]


def test_cpus_that_the_node_keeps_for_itself_are_not_there_for_jobs() -> None:
    words = (
        *(
            "CPUEfctv=12 CPUTot=16 CoreSpecCount=4 CPUSpecList=0-3",
            "CPUTot=16 CoreSpecCount=2 CPUSpecList=7,15",
        ),
        *(
            "CPUTot=16 CoreSpecCount=2 ThreadsPerCore=2",
            "CPUTot=16 CPUSpecList=0-3,8",
            "CPUTot=16",
            "State=IDLE",
        ),
    )
    lines = [f"NodeName=n{number} {each} State=IDLE \n" for number, each in enumerate(words)]
    nodes, num_bad = parse_nodes("".join(lines))
    assert ([node.num_cpus for node in nodes], num_bad) == ([12, 14, 12, 11, 16, None], 0)


def test_a_partition_may_limit_the_nodes_of_a_job() -> None:
    line = "PartitionName={} State=UP MaxNodes={} TotalNodes=4\n"
    text = line.format("short", "1") + line.format("long", "UNLIMITED") + "PartitionName=old TotalNodes=4\n"
    assert [each.max_nodes for each in parse_partitions(text, None)[0]] == [1, None, None]


@pytest.mark.parametrize(
    ("words", "sizes"),
    [
        ("DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED", (None, None, None)),
        ("DefMemPerNode=300 MaxMemPerNode=4000", (300, None, 4000)),
        ("DefMemPerCPU=2000 MaxMemPerCPU=4000", (None, 2000, None)),
        ("", (None, None, None)),
    ],
)
def test_a_partition_may_have_a_default_and_a_limit_of_memory(
    words: str, sizes: tuple[int | None, ...]
) -> None:
    ((made,), _) = parse_partitions(f"PartitionName=cpu State=UP TotalNodes=4 {words}\n", None)
    found = (made.default_mem_per_node_mib, made.default_mem_per_cpu_mib, made.max_mem_per_node_mib)
    assert found == sizes


def test_a_node_has_its_allocated_cpus_memory_and_gpus() -> None:
    node = nodes_of("24.11")[0]
    assert node.partitions == ("gpu", "short", "cpu")
    assert node.gpus == (GpuCount("a100", 2, 2),)
    assert (node.memory_mib, node.num_cpus) == (64000, 16)
    assert node.memory_allocated_mib is not None
    assert node.num_cpus_allocated is not None
    assert node.memory_allocated_mib == 100 * node.num_cpus_allocated


@pytest.mark.parametrize(
    ("gres", "used", "expected"),
    [
        ("gpu:a100:4(S:0-1)", "gpu:(null):2(IDX:0-1)", (GpuCount("a100", 4, 2),)),
        ("gpu:a100:4,gpu:h100:2", "gpu:h100:1(IDX:0)", (GpuCount("a100", 4, 0), GpuCount("h100", 2, 1))),
        ("gpu:8", "", (GpuCount(None, 8, None),)),
        ("gpu:a100:4,gpu:h200:4", "gpu:3", (GpuCount("a100", 4, None), GpuCount("h200", 4, None))),
        ("gpu:a100:4,gpu:h200:4", "gpu:0", (GpuCount("a100", 4, 0), GpuCount("h200", 4, 0))),
        ("gpu:a100:4,gpu:h200:4", "gpu:8", (GpuCount("a100", 4, 4), GpuCount("h200", 4, 4))),
        ("gpu:a100:4,gpu:h200:4", "gpu:sxm:1", (GpuCount("a100", 4, None), GpuCount("h200", 4, None))),
        ("gpu:a100:4,gpu:h200:4", "gpu:a100:2,gpu:1", (GpuCount("a100", 4, None), GpuCount("h200", 4, None))),
        ("(null)", "(null)", ()),
    ],
)
def test_gpus_in_use_are_counted_by_type_or_unknown_if_not_reported(
    gres: str, used: str, expected: tuple[GpuCount, ...]
) -> None:
    line = (
        f"NodeName=n1 CPUAlloc=1 CPUTot=2 Gres={gres} GresUsed={used} RealMemory=10 AllocMem=1 State=IDLE "
        "Partitions=a"
    )
    (node,), num_bad = parse_nodes(line)
    assert node.gpus == expected
    assert num_bad == 0


@pytest.mark.parametrize(
    ("gres", "used", "expected"),
    [
        ("gpu:a100:4,shard:a100:16", "gpu:a100:1(IDX:1),shard:a100:2(IDX:0,2),mps:0", {"a100": 3}),
        ("gpu:a100:4,mps:a100:400", "gpu:a100:1(IDX:1),shard:0,mps:a100:1(IDX:0)", {"a100": 2}),
        ("gpu:l4:2,shard:l4:16", "gpu:l4:1(IDX:1),shard:l4:10(10/10,0/10)", {"l4": 2}),
        ("gpu:4,shard:32", "gpu:0(IDX:N/A),shard:9(0/8,8/8,1/8,0/8)", {None: 2}),
        ("gpu:1,shard:8", "gpu:0,shard:3", {None: 1}),
        ("gpu:a100:4,shard:a100:16", "gpu:a100:0,shard:a100:1", {"a100": 1}),
        ("gpu:a100:4,shard:a100:16", "gpu:a100:0,shard:a100:3", {"a100": None}),
        ("gpu:a100:4,shard:a100:16", "gpu:a100:0,shard:a100:16", {"a100": 4}),
        ("gpu:a100:4,mps:a100:400", "gpu:a100:4(IDX:0-3),mps:a100:0(0/100,0/100,0/100,0/100)", {"a100": 4}),
        (
            "gpu:a100:2,gpu:h200:2,shard:a100:8,shard:h200:8",
            "gpu:a100:0(IDX:N/A),gpu:h200:1(IDX:2),shard:a100:5(4/4,1/4),shard:h200:0(0/4,0/4)",
            {"a100": 2, "h200": 1},
        ),
        (
            "gpu:a100:2,gpu:h200:2,shard:8",
            "gpu:a100:0(IDX:N/A),gpu:h200:0(IDX:N/A),shard:2",
            {"a100": None, "h200": None},
        ),
    ],
)
def test_a_gpu_with_shards_or_mps_in_use_is_not_free_for_a_job_that_wants_a_gpu(
    gres: str, used: str, expected: dict[str | None, int | None]
) -> None:
    line = (
        f"NodeName=n1 CPUAlloc=1 CPUTot=8 Gres={gres} GresUsed={used} RealMemory=10 AllocMem=1 State=MIXED "
        "Partitions=a"
    )
    (node,), _ = parse_nodes(line)
    assert {gpu.type: gpu.allocated for gpu in node.gpus} == expected
    free = {gpu.type: gpu.free for gpu in free_gpus([node])}
    totals = {gpu.type: gpu.total for gpu in node.gpus}
    assert free == {kind: None if num is None else totals[kind] - num for kind, num in expected.items()}


def test_malformed_lines_and_duplicate_nodes_are_counted_as_bad() -> None:
    text = captured("scontrol-nodes-22.05.txt").decode()
    nodes, num_bad = parse_nodes(text + "garbage\n" + text.split("\n")[0] + "\n")
    assert (len(nodes), num_bad) == (3, 2)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("idle", True),
        ("idle+cloud+powered_down", True),
        ("idle+cloud+power", True),
        ("idle+power", True),
        ("idle+power+powering_down", False),
        ("idle+power_down", False),
        ("idle+drain", False),
        ("idle+planned", False),
        ("idle+reserved", False),
        ("mixed", False),
        ("down+not_responding", False),
    ],
)
def test_only_a_node_that_takes_jobs_counts_as_idle(state: str, expected: bool) -> None:
    node = Node("n", state, None, (), 1, 0, 1, 0, (GpuCount(None, 1, 0),))
    assert is_idle(node) is expected
    assert [gpu.free for gpu in free_gpus([node])] == [1 if expected or state == "mixed" else 0]


def test_partitions_combine_their_configuration_with_the_sums_of_their_nodes() -> None:
    text = captured("scontrol-partitions-22.05.txt").decode()
    partitions, num_bad = parse_partitions(text, nodes_of("22.05"))
    gpu, short, cpu, hidden = partitions
    assert num_bad == 0
    assert (gpu.name, gpu.is_default, gpu.state, gpu.time_limit_s, gpu.default_time_s) == (
        "gpu", True, "up", 86400, 600,
    )  # fmt: skip
    assert (gpu.num_nodes, gpu.num_nodes_idle, gpu.num_cpus, gpu.num_gpus_per_node) == (3, 0, 48, 2)
    assert gpu.gpus[0].total == 6
    assert (short.num_nodes, short.time_limit_s, short.default_time_s) == (1, 300, None)
    assert (cpu.time_limit_s, hidden.state) == (None, "down")


def test_the_cpu_side_of_gpu_nodes_offers_no_gpus() -> None:
    partitions, _ = parse_partitions(captured("scontrol-partitions-22.05.txt").decode(), nodes_of("22.05"))
    cpu = next(each for each in partitions if each.name == "cpu")
    assert (cpu.gpus, cpu.num_gpus_per_node) == ((), 0)


def test_a_partition_that_says_cpu_keeps_gpus_that_no_other_offers() -> None:
    line = "NodeName=n1 CPUAlloc=0 CPUTot=2 Gres=gpu:2 GresUsed=gpu:0 State=IDLE Partitions=cpu-gpu"
    nodes, _ = parse_nodes(line)
    (only,), _ = parse_partitions("PartitionName=cpu-gpu Default=NO State=UP TotalNodes=1", nodes)
    assert only.num_gpus_per_node == 2
    assert only.gpus == (GpuCount(None, 2, 0),)
