"""The communication benchmark: its numbers explain each other, and a wrong one and a slow link are found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.trainers.conftest import TRAINERS, Trainer, read_records

pytestmark = pytest.mark.train

NOT_OPTIONS = {
    "width": None,
    "num_train_samples": None,
    "batch_size": None,
    "num_workers": None,
    "eval_every_epoch": None,
}
BUS_FACTORS = {  # for two and for four ranks, as nccl-tests has them
    "all_reduce": {2: 1, 4: 1.5},
    "all_gather": {2: 0.5, 4: 0.75},
    "reduce_scatter": {2: 0.5, 4: 0.75},
    "broadcast": {2: 1, 4: 1},
    "all_to_all": {2: 0.5, 4: 0.75},
    "send_recv": {2: 1, 4: 1},
}


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.long)])
def test_ranks_time_six_collectives_and_every_link_and_find_nothing_wrong(
    trainer: Trainer, tmp_path: Path, ranks: int
) -> None:
    flags = {"max_steps": 2, "max_mib": 1, "min_kib": 64, "pair_kib": 64}
    done = trainer.run("comm_bench.py", tmp_path, ranks=ranks, **flags, **NOT_OPTIONS)
    assert done.returncode == 0, done.stderr
    assert f"self-check: {ranks} ranks" in done.stdout
    assert "FutureWarning" not in done.stderr
    found = json.loads((tmp_path / "comm_bench.json").read_text())
    assert list(found["collectives"]) == list(BUS_FACTORS)
    for name, factors in BUS_FACTORS.items():
        sizes = found["collectives"][name]["sizes"]
        assert [size["num_bytes"] for size in sizes] == [65_536 * 4**number for number in range(3)]
        for size in sizes:
            bandwidth = size["num_bytes"] / size["call_time_s"] / 1e9
            assert size["algorithm_bandwidth_gb_s"] == pytest.approx(bandwidth)
            assert size["bus_bandwidth_gb_s"] == pytest.approx(bandwidth * factors[ranks])
            assert size["num_wrong"] == 0
        assert found["collectives"][name]["stopped"] is None
        assert found["collectives"][name]["fit"]["num_sizes"] == 3
    links = found["pairs"]["links"]
    assert sorted((one, other) for one, other, _ in links) == [
        (one, other) for one in range(ranks) for other in range(one + 1, ranks)
    ]
    assert all(rate > 0 for _, _, rate in links)
    # Every rank has the same times, those of the slowest.
    first, last = (
        [record for record in read_records(tmp_path, rank) if record["event"] == "collective"]
        for rank in (0, ranks - 1)
    )
    assert [size["call_time_s"] for size in first] == [size["call_time_s"] for size in last]
    assert len(first) == 3 * len(BUS_FACTORS)


EXPLAINED = """
import json
from comm_bench import fit_of, in_words, rounds_of, slow_links

def made(factor):
    return {n: factor(k) * (3e-4 + 1.5 * n / 1.25e9) for k, n in enumerate(1024 * 4**k for k in range(9))}

fits = [
    fit_of(made(lambda k: 1)),
    fit_of(made(lambda k: 1.1 if k % 2 else 0.9)),
    fit_of(made(lambda k: 3 if k % 2 else 0.4)),
    fit_of({1024: 2e-3, 4096: 1e-3, 16384: 5e-4}),
    fit_of({1024: 2e-3, 4096: 3e-3}),
]
# Four nodes of two ranks. One link between nodes is slow; or all links of node d.
nodes = ["a", "a", "b", "b", "c", "c", "d", "d"]
pairs = [(one, other) for one in range(8) for other in range(one + 1, 8)]
def links(slow):
    return [(a, b, (100 if nodes[a] == nodes[b] else 10) / (4 if slow(a, b) else 1)) for a, b in pairs]
def met_in(number):
    return [sorted({tuple(sorted(pair)) for pair in met.items()}) for met in rounds_of(number)]
rounds = {number: met_in(number) for number in (2, 5, 6)}
print(json.dumps({
    "fits": fits,
    "none": slow_links(links(lambda a, b: False), nodes),
    "one": slow_links(links(lambda a, b: (a, b) == (1, 4)), nodes),
    "node": slow_links(links(lambda a, b: nodes[a] != nodes[b] and "d" in (nodes[a], nodes[b])), nodes),
    "rounds": rounds,
}))
"""


def test_latency_and_bandwidth_and_the_slow_link_are_found_again_in_numbers_made_from_them(
    trainer: Trainer,
) -> None:
    done = trainer.python(EXPLAINED)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    exact, noisy, unlike, falling, too_few = found["fits"]
    assert exact["seconds_per_message"] == pytest.approx(3e-4)
    assert exact["seconds_per_byte"] == pytest.approx(1.5 / 1.25e9)
    assert exact["largest_error"] == pytest.approx(0, abs=1e-9)
    assert noisy["seconds_per_message"] == pytest.approx(3e-4, rel=0.15)
    assert 0.05 < noisy["rms_error"] < 0.2
    assert [fit["fits"] for fit in (exact, noisy, unlike, falling)] == [True, True, False, False]
    assert too_few is None  # a line fits any two times

    assert found["none"] == []
    (one,) = found["one"]
    assert (one["what"], one["ratio"]) == ("rank 1 on a and rank 4 on c", pytest.approx(4))
    (node,) = found["node"]
    assert (node["what"], node["ratio"]) == ("every link of node d between nodes", pytest.approx(4))

    for number, rounds in found["rounds"].items():
        ranks = int(number)
        assert len(rounds) == ranks - 1 + ranks % 2
        met = sorted(tuple(pair) for pairs in rounds for pair in pairs)
        assert met == [(a, b) for a in range(ranks) for b in range(a + 1, ranks)]
        for pairs in rounds:  # no rank has two partners at a time
            assert len({rank for pair in pairs for rank in pair}) == 2 * len(pairs)


CORRUPTED = """
import sys
import torch.distributed as dist
import comm_bench

def corrupt(tensor):
    summed(tensor)
    if dist.get_rank() == 1:
        tensor[-1] += 1

summed, dist.all_reduce = dist.all_reduce, corrupt
comm_bench.any_rank = lambda is_true: False  # which would ask by all_reduce
comm_bench.free_memory = lambda device: 3 * 2**20
sys.argv[0] = "comm_bench.py"
comm_bench.run(comm_bench.main)
"""


def test_a_wrong_number_fails_the_run_and_a_size_without_memory_is_not_begun(
    trainer: Trainer, tmp_path: Path
) -> None:
    code = tmp_path / "program.py"
    code.write_text(f"import sys; sys.path[:0] = {[str(TRAINERS)]!r}\n{CORRUPTED}")
    flags = {"collectives": "all_reduce", "max_steps": 1, "min_kib": 256, "max_mib": 4, "pair_kib": 0}
    command = trainer.command("comm_bench.py", tmp_path, 2, **flags, **NOT_OPTIONS)
    command[command.index(str(TRAINERS / "comm_bench.py"))] = str(code)
    done = trainer.call(command, trainer.env)
    assert done.returncode != 0
    assert "error: 1 results are wrong" in done.stderr
    assert "all_reduce: stopped: the next size takes 0.00293 GiB of memory, rank 0 on" in done.stdout
    sizes = json.loads((tmp_path / "comm_bench.json").read_text())["collectives"]["all_reduce"]["sizes"]
    assert [size["num_wrong"] for size in sizes] == [1]


def test_memory_is_the_node_s_or_the_lower_limit_of_a_control_group(trainer: Trainer, tmp_path: Path) -> None:
    for path, text in {
        "proc/meminfo": "MemTotal: 9000 kB\nMemAvailable: 4000 kB\n",
        "proc/self/cgroup": "0::/job/step\n",
        "sys/fs/cgroup/job/memory.max": "2000000\n",
        "sys/fs/cgroup/job/memory.current": "500000\n",
        "sys/fs/cgroup/job/memory.stat": "anon 400000\ninactive_file 100000\nactive_file 7\n",
        "sys/fs/cgroup/job/step/memory.max": "max\n",
        "sys/fs/cgroup/job/step/memory.current": "400000\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    code = """
import sys
from pathlib import Path
from common.messages import free_host_memory
root = Path(sys.argv[1])
print(free_host_memory(root), free_host_memory() > 0)
(root / "sys/fs/cgroup/job/memory.max").write_text("max")
print(free_host_memory(root))
(root / "proc/self/cgroup").write_text("5:memory:/slurm/job\\n2:cpu,cpuacct:/slurm/job\\n")
for name, value in (
    ("limit_in_bytes", 900000),
    ("usage_in_bytes", 300000),
    ("stat", "inactive_file 1\\ntotal_inactive_file 50000"),
):
    file = root / f"sys/fs/cgroup/memory/slurm/memory.{name}"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(str(value))
print(free_host_memory(root))
"""
    done = trainer.python(code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1600000", "True", str(4000 * 1024), "650000"]


def test_one_rank_alone_prints_that_there_is_nothing_to_measure(trainer: Trainer, tmp_path: Path) -> None:
    for name in ("comm_bench.py", "ring.py"):
        done = trainer.run(name, tmp_path, **NOT_OPTIONS)
        assert done.returncode == 2
        assert "torchrun --standalone --nproc-per-node=2" in done.stderr


def test_a_ring_sends_as_little_as_can_be_and_has_the_sums_of_the_library(
    trainer: Trainer, tmp_path: Path
) -> None:
    # Three ranks cannot share a power of two equally: one part of the ring is shorter than the others.
    ranks, size = 3, 512 * 1024
    done = trainer.run("ring.py", tmp_path, ranks=ranks, max_steps=2, size_kib=512, **NOT_OPTIONS)
    assert done.returncode == 0, done.stderr
    sent: dict[str, list[int]] = {}
    for rank in range(ranks):
        for way in (record for record in read_records(tmp_path, rank) if record["event"] == "way"):
            assert (way["num_wrong"], way["num_bytes"]) == (0, size)
            assert way["call_time_s"] > 0
            sent.setdefault(way["way"], []).append(way["bytes_sent"])
            # The bytes that Linux counted: the numbers, and gloo's small messages with them.
            if way["bytes_sent"] is not None:
                assert way["bytes_sent"] <= way["bytes_on_the_wire"] < 1.05 * way["bytes_sent"]
            else:
                assert way["bytes_on_the_wire"] < 1.05 * 2 * (ranks - 1) / ranks * size
    assert sent["by rank 0"] == [2 * size, size, size]
    assert sent["ring"] == pytest.approx([2 * (ranks - 1) / ranks * size] * ranks, abs=16)
    assert sent["library"] == [None] * ranks
