"""The trainers that measure the machine instead of training for a result."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.trainers.conftest import Trainer, event_in, read_records, steps_in

pytestmark = pytest.mark.train

NOT_OPTIONS = {"num_train_samples": None, "eval_every_epoch": None, "num_workers": None}
"""What the fixture passes, and these trainers do not have."""


def training_flop(width: int, batch_size: int) -> int:
    """Of SimpleCNN by hand: forward, and twice that backward, where the images need no gradient."""
    first = 32 * 32 * width * 27
    second, third = 16 * 16 * 2 * width * 9 * width, 8 * 8 * 4 * width * 9 * 2 * width
    linear = 4 * width * 16 * 8 * width + 8 * width * 10
    return 2 * batch_size * (3 * (first + second + third + linear) - first)


def test_a_run_stands_below_the_roof_that_its_own_counts_make(trainer: Trainer, tmp_path: Path) -> None:
    done = trainer.run("roofline.py", tmp_path, width=8, batch_size=4, max_steps=3, matrix=128, **NOT_OPTIONS)
    assert done.returncode == 0, done.stderr
    records = read_records(tmp_path)
    assert len(steps_in(records)) == 3
    told = event_in(records, "roofline")
    assert told["flop"] == training_flop(8, 4)
    assert training_flop(64, 1) == 246_183_936  # counts by others
    assert told["bytes"] > 4 * 4 * 3 * 32 * 32  # the images alone
    assert told["intensity"] == pytest.approx(told["flop"] / told["bytes"])
    roofs = {
        "compute": told["peak_flop_per_s"],
        "memory": told["intensity"] * told["bandwidth_bytes_per_s"],
    }
    assert told["roof_flop_per_s"] == pytest.approx(min(roofs.values()))
    assert told["bound"] == min(roofs, key=lambda name: roofs[name])
    assert told["achieved_flop_per_s"] == pytest.approx(told["flop"] / told["step_time_s"])
    drawn = [line for line in done.stdout.splitlines() if " |" in line]
    assert len(drawn) == 13
    assert sum("o" in line.partition("|")[2] for line in drawn) == 1


def test_ranks_on_another_node_do_not_share_cores_with_the_same_numbers(trainer: Trainer) -> None:
    code = """
import os
import binding

here = os.uname().nodename
binding.gather = lambda place: [place, (here, [0, 1]), (here, [2, 3]), ("another", [0, 1])]
print(binding.ranks_sharing([0, 1]))
"""
    done = trainer.python(code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["2"]


@pytest.mark.long
def test_each_rank_tells_the_cores_that_it_may_use(trainer: Trainer, tmp_path: Path) -> None:
    flags = {**NOT_OPTIONS, "width": None, "batch_size": None, "num_workers": 1}
    done = trainer.run("binding.py", tmp_path, ranks=2, max_steps=1, matrix=64, **flags)
    assert done.returncode == 0, done.stderr
    cores = sorted(os.sched_getaffinity(0))
    for rank in (0, 1):
        told = event_in(read_records(tmp_path, rank), "binding")
        assert (told["cores"], told["num_sharing"]) == (cores, 2)
        assert told["num_threads"] == max(1, len(cores) // 2)
        rates = [value for name, value in told.items() if name.endswith(("_all", "_one"))]
        assert len(rates) == 4
        assert min(rates) > 0
    rows = [line.split() for line in done.stdout.splitlines() if line[:4].strip().isdigit()]
    assert [(row[0], row[1], row[2]) for row in rows] == [(rank, str(len(cores)), "2") for rank in ("0", "1")]
