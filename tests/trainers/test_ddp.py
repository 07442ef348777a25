from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.trainers.conftest import Trainer, event_in, read_records, steps_in
from tests.waiting import PATIENCE, wait_until

SHARDS = """
from torch.utils.data import DistributedSampler
from common.loading import ResumableSampler
shards = []
for rank in range(2):
    sampler = DistributedSampler(range(320), num_replicas=2, rank=rank)
    sampler.set_epoch(3)
    resumable = ResumableSampler(sampler)
    resumable.begin(3, 0)
    whole = list(resumable)
    resumable.begin(3, 100)
    assert list(resumable) == whole[100:] and len(resumable) == 60
    assert {epoch for epoch, _ in whole} == {3}
    shards += [index for _, index in whole]
assert sorted(shards) == list(range(320))
"""


@pytest.mark.train
def test_two_ranks_share_the_work_and_stay_equal(trainer: Trainer, tmp_path: Path) -> None:
    done = trainer.run(
        "ddp.py", tmp_path, ranks=2, epochs=2, gradient_accumulation=3, eval_every_epoch="true", num_workers=1
    )
    assert done.returncode == 0, done.stderr
    assert "self-check: 2 ranks on 1 node(s)" in done.stdout
    by_rank = [read_records(tmp_path, rank) for rank in range(2)]
    first, second = (steps_in(records) for records in by_rank)
    assert len(first) == len(second) == 2 * 4  # 160 samples of each rank, at most 48 of them a step
    for one, other in zip(first, second, strict=True):
        assert (
            one["num_samples"] + other["num_samples"]
            == one["num_samples_global"]
            == other["num_samples_global"]
        )
        # The norm is taken after gradients were averaged, so equal norms mean equal gradients; the data
        # differ.
        assert one["grad_norm"] == pytest.approx(other["grad_norm"], rel=1e-5)
        assert one["loss"] != other["loss"]
    for epoch in range(2):
        assert sum(step["num_samples_global"] for step in first if step["epoch"] == epoch) == 320
    assert event_in(by_rank[0], "eval")["accuracy"] == event_in(by_rank[1], "eval")["accuracy"]
    assert [records[-1]["reason"] for records in by_rank] == ["epochs", "epochs"]
    assert [len([r for r in records if r.get("event") == "checkpoint"]) for records in by_rank] == [1, 0]


@pytest.mark.train
def test_every_sample_belongs_to_one_rank_and_a_resumed_epoch_goes_on_behind_the_last_one(
    trainer: Trainer,
) -> None:
    done = trainer.python(SHARDS)
    assert done.returncode == 0, done.stderr


@pytest.mark.train
def test_a_signal_to_the_job_lets_all_ranks_leave_in_the_same_step_and_the_job_goes_on_from_there(
    trainer: Trainer, tmp_path: Path
) -> None:
    metrics = [tmp_path / "metrics" / f"rank-{rank}.jsonl" for rank in range(2)]
    process = trainer.start("ddp.py", tmp_path, ranks=2, max_steps=100_000)
    try:
        wait_until(
            lambda: all(path.exists() and b'"loss"' in path.read_bytes() for path in metrics),
            what="the first steps",
        )
        # Only one rank gets the signal; the other one learns of it by their agreement.
        pid = event_in(read_whole_lines(metrics[1]), "start")["pid"]
        os.kill(pid, signal.SIGUSR1)
        _, stderr = process.communicate(timeout=30 * PATIENCE)
    finally:
        process.terminate()
    assert process.returncode == 0, stderr
    last = [steps_in(read_records(tmp_path, rank))[-1]["step"] for rank in range(2)]
    assert last[0] == last[1]
    assert (tmp_path / "checkpoints" / f"step-{last[0]:08d}.pt").is_file()
    assert [read_records(tmp_path, rank)[-1]["reason"] for rank in range(2)] == ["signal", "signal"]

    done = trainer.run("ddp.py", tmp_path, ranks=2, max_steps=last[0] + 3)
    assert done.returncode == 0, done.stderr
    assert [steps_in(read_records(tmp_path, rank))[-1]["step"] for rank in range(2)] == [last[0] + 3] * 2


@pytest.mark.train
def test_ddp_without_torchrun_says_how_to_start_it(trainer: Trainer, tmp_path: Path) -> None:
    done = trainer.run("ddp.py", tmp_path, max_steps=1)
    assert done.returncode == 2
    assert "start with `torchrun --standalone --nproc-per-node=2" in done.stderr


def read_whole_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


@pytest.mark.long
@pytest.mark.train
@pytest.mark.parametrize("name", ["ddp.py", "fsdp.py"])
def test_a_job_of_two_ranks_that_is_requeued_twice_is_the_job_that_was_never_interrupted(
    trainer: Trainer, tmp_path: Path, name: str
) -> None:
    straight, requeued = tmp_path / "straight", tmp_path / "requeued"
    assert trainer.run(name, straight, ranks=2, max_steps=25, num_workers=0).returncode == 0
    # An epoch has 10 steps. One rank gets the signal, and both leave at the end of the next step.
    for at_step, num_workers in ((3, 2), (16, 0), (0, 2)):
        flags = {"max_steps": 25, "num_workers": num_workers}
        done = trainer.run_until_signal(at_step, name, requeued, ranks=2, to_rank=1, **flags)
        assert done.returncode == 0, done.stderr
    for rank in range(2):
        expected, found = (
            [[step[key] for key in ("step", "epoch", "loss", "grad_norm")] for step in steps_in(records)]
            for records in (read_records(straight, rank), read_records(requeued, rank))
        )
        assert found == expected
    resumed = [record["step"] for record in read_records(requeued) if record.get("event") == "resume"]
    assert resumed == [4, 17]
