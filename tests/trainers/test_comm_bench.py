"""The communication benchmark: its numbers explain each other, and the ring by hand adds up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.trainers.conftest import Trainer, event_in, read_records

pytestmark = pytest.mark.train

NOT_OPTIONS = {
    "width": None,
    "num_train_samples": None,
    "batch_size": None,
    "num_workers": None,
    "eval_every_epoch": None,
}


def test_three_ranks_time_all_sizes_and_their_ring_by_hand_has_the_sums_of_the_library(
    trainer: Trainer, tmp_path: Path
) -> None:
    # Three ranks cannot share a power of two equally: one part of the ring is shorter than the others.
    done = trainer.run("comm_bench.py", tmp_path, ranks=3, max_steps=4, max_mib=1, **NOT_OPTIONS)
    assert done.returncode == 0, done.stderr
    assert "self-check: 3 ranks" in done.stdout
    assert "the library's sums" in done.stdout

    records = read_records(tmp_path)
    sizes = [record for record in records if record.get("event") == "all_reduce"]
    assert [size["num_bytes"] for size in sizes] == [1024 * 4**number for number in range(6)]
    for size in sizes:
        bandwidth = size["num_bytes"] / size["all_reduce_time_s"] / 1e9
        assert size["algorithm_bandwidth_gb_s"] == pytest.approx(bandwidth)
        assert size["bus_bandwidth_gb_s"] == pytest.approx(bandwidth * 4 / 3)
        assert size["num_rounds"] == 4
    fit = event_in(records, "fit")
    assert fit["num_sizes"] == 6
    assert fit["gradient_bytes"] == 4 * 2_474_506
    ring = event_in(records, "ring")
    assert 0 <= ring["difference"] < 1e-5
    assert ring["ring_time_s"] > 0
    assert records[-1]["reason"] == "max_steps"
    # Every rank has the same times, those of the slowest.
    others = [record for record in read_records(tmp_path, rank=2) if record.get("event") == "all_reduce"]
    assert [size["all_reduce_time_s"] for size in others] == [size["all_reduce_time_s"] for size in sizes]


def test_latency_and_bandwidth_are_found_again_in_times_that_were_made_from_them(trainer: Trainer) -> None:
    code = """
import json
from comm_bench import report_fit

class Events:
    def event(self, name, step, **fields):
        print(json.dumps(fields))

alpha, bandwidth, ranks = 3e-4, 1.25e9, 4
def made(factor):
    return {n: factor(k) * (6 * alpha + 6 / 4 * n / bandwidth) for k, n in enumerate(1024 * 4**k for k in range(9))}

report_fit(made(lambda k: 1), ranks, 1000, 0, Events())
report_fit(made(lambda k: 1.1 if k % 2 else 0.9), ranks, 1000, 0, Events())
report_fit({1024: 2e-3, 4096: 1e-3, 16384: 5e-4}, ranks, 1000, 0, Events())
"""
    done = trainer.python(code)
    assert done.returncode == 0, done.stderr
    exact, noisy, falling = (json.loads(line) for line in done.stdout.splitlines() if line[0] == "{")
    assert exact["alpha_s"] == pytest.approx(3e-4)
    assert exact["bandwidth_gb_s"] == pytest.approx(1.25)
    assert exact["largest_error"] == pytest.approx(0, abs=1e-9)
    assert exact["gradient_time_s"] == pytest.approx(6 * 3e-4 + 1.5 * 4000 / 1.25e9)
    assert noisy["alpha_s"] == pytest.approx(3e-4, rel=0.15)
    assert noisy["bandwidth_gb_s"] == pytest.approx(1.25, rel=0.15)
    assert 0.05 < noisy["typical_error"] < 0.2
    assert falling["bandwidth_gb_s"] is None  # times that fall with the size give no bandwidth
    assert falling["gradient_time_s"] is None
    assert "not measured" in done.stdout


def test_one_rank_alone_is_told_that_there_is_nothing_to_measure(trainer: Trainer, tmp_path: Path) -> None:
    done = trainer.run("comm_bench.py", tmp_path, **NOT_OPTIONS)
    assert done.returncode == 2
    assert "torchrun --standalone --nproc-per-node=2" in done.stderr
