from __future__ import annotations

import dataclasses
import json
import re
import signal
from pathlib import Path

import pytest

from tests.trainers.conftest import Trainer, event_in, read_records, steps_in
from tests.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.train


def test_a_learner_sees_the_loss_fall_and_where_the_numbers_come_from(
    trainer: Trainer, tmp_path: Path
) -> None:
    done = trainer.run("baseline.py", tmp_path, num_workers=1, max_steps=60, eval_every_epoch="true")
    assert done.returncode == 0, done.stderr
    assert "generated stand-in for CIFAR-10" in done.stdout
    assert "results on it are not CIFAR-10 results" in done.stdout

    records = read_records(tmp_path)
    steps = steps_in(records)
    assert [step["step"] for step in steps] == list(range(1, 61))
    losses = [step["loss"] for step in steps]
    assert sum(losses[-10:]) < 0.95 * sum(losses[:10])
    for step in steps:
        assert 0 <= step["data_time_s"] <= step["step_time_s"]
        assert step["grad_norm"] > 0
        assert step["num_samples"] == step["num_samples_global"] == 16

    start = event_in(records, "start")
    assert start["dataset"]["is_synthetic"] is True
    assert (start["rank"], start["world_size"], start["device"]) == (0, 1, "cpu")
    assert 0 < event_in(records, "eval")["accuracy"] <= 1
    assert event_in(records, "checkpoint")["reason"] == "end"
    end = records[-1]
    assert (end["event"], end["reason"], end["exit_code"]) == ("end", "max_steps", 0)
    assert (tmp_path / "checkpoints" / "step-00000060.pt").is_file()


def test_a_run_of_epochs_ends_with_its_last_epoch_and_started_again_does_nothing_more(
    trainer: Trainer, tmp_path: Path
) -> None:
    for _ in range(2):
        assert (
            trainer.run("baseline.py", tmp_path, epochs=2, batch_size=128, gradient_accumulation=2).returncode
            == 0
        )
    records = read_records(tmp_path)
    assert [step["num_samples"] for step in steps_in(records)] == [256, 64, 256, 64]
    assert [step["epoch"] for step in steps_in(records)] == [0, 0, 1, 1]
    assert records[-1]["reason"] == "epochs"


def test_a_run_that_is_requeued_twice_is_the_run_that_was_never_interrupted(
    trainer: Trainer, tmp_path: Path
) -> None:
    straight, requeued = tmp_path / "straight", tmp_path / "requeued"
    assert trainer.run("baseline.py", straight, max_steps=45, num_workers=0).returncode == 0
    # An epoch has 20 steps: the signals come within the first and within the second one. Who loads the data
    # changes nothing.
    for at_step, num_workers in ((9, 2), (31, 0), (0, 2)):
        flags = {"max_steps": 45, "num_workers": num_workers}
        done = trainer.run_until_signal(at_step, "baseline.py", requeued, **flags)
        assert done.returncode == 0, done.stderr
    keys = ("step", "epoch", "loss", "lr", "grad_norm")
    expected, found = (
        [[step[key] for key in keys] for step in steps_in(read_records(run))] for run in (straight, requeued)
    )
    assert found == expected
    records = read_records(requeued)
    assert [record["step"] for record in records if record.get("event") == "resume"] == [9, 31]
    assert [record["reason"] for record in records if record.get("event") == "end"] == [
        "signal",
        "signal",
        "max_steps",
    ]


def test_two_checkpoints_are_kept_and_another_run_can_start_from_one(
    trainer: Trainer, tmp_path: Path
) -> None:
    parent, child = tmp_path / "parent", tmp_path / "child"
    assert trainer.run("baseline.py", parent, max_steps=7, checkpoint_every=2).returncode == 0
    kept = sorted(path.name for path in (parent / "checkpoints").iterdir())
    assert kept == ["step-00000006.pt", "step-00000007.pt"]

    resume_from = parent / "checkpoints" / "step-00000006.pt"
    done = trainer.run("baseline.py", child, max_steps=9, resume_from=resume_from, lr=0.001)
    assert done.returncode == 0, done.stderr
    assert [(step["step"], step["lr"]) for step in steps_in(read_records(child))] == [
        (7, 0.001),
        (8, 0.001),
        (9, 0.001),
    ]

    refused = trainer.run("baseline.py", tmp_path / "other", max_steps=9, resume_from=resume_from, width=4)
    assert refused.returncode == 2
    assert refused.stderr.strip().endswith("was made with width=8, but this run has width=4")


def test_the_signal_before_the_time_limit_saves_a_checkpoint_and_ends_well(
    trainer: Trainer, tmp_path: Path
) -> None:
    process = trainer.start("baseline.py", tmp_path, max_steps=100_000)
    metrics = tmp_path / "metrics" / "rank-0.jsonl"
    try:
        wait_until(lambda: metrics.exists() and b'"loss"' in metrics.read_bytes(), what="the first step")
        process.send_signal(signal.SIGUSR1)
        stdout, stderr = process.communicate(timeout=30 * PATIENCE)
    finally:
        process.kill()
    assert process.returncode == 0, stderr
    records = read_records(tmp_path)
    step = steps_in(records)[-1]["step"]
    assert f"SIGUSR1 received: leaving at step {step}" in stdout
    assert event_in(records, "checkpoint")["reason"] == records[-1]["reason"] == "signal"
    assert (tmp_path / "checkpoints" / f"step-{step:08d}.pt").is_file()


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_loss_that_is_not_finite_is_written_and_training_goes_on(
    trainer: Trainer, tmp_path: Path, optimizer: str
) -> None:
    done = trainer.run("baseline.py", tmp_path, lr=1e20, max_steps=6, optimizer=optimizer)
    assert done.returncode == 0, done.stderr
    losses = [step["loss"] for step in steps_in(read_records(tmp_path))]
    assert isinstance(losses[0], float)
    assert losses[1:] == ["NaN"] * 5


def test_allotted_gpus_that_cannot_be_used_stop_the_training_with_the_cause(
    trainer: Trainer, tmp_path: Path
) -> None:
    broken = Trainer(trainer.cache_dir, {**trainer.env, "CUDA_VISIBLE_DEVICES": "31"})
    done = broken.run("baseline.py", tmp_path, gpus_per_node=1, max_steps=1)
    assert done.returncode == 78
    assert done.stderr.startswith("coach: cuda_unavailable: GPUs were allotted on ")
    assert re.search(r"torch \d+\.\d+\S*.* was built ", done.stderr)
    assert "NVIDIA driver there" in done.stderr
    assert done.stderr.count("\n") == 1


def test_real_data_that_are_not_there_stop_the_training_with_the_command_that_fetches_them(
    trainer: Trainer, tmp_path: Path
) -> None:
    done = trainer.run("baseline.py", tmp_path, data_dir=tmp_path / "none", max_steps=1)
    assert done.returncode == 78
    assert done.stderr.startswith(
        f"coach: file_not_found: no complete cifar-10-batches-py in {tmp_path}/none"
    )
    assert "download=True" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_baseline_on_two_ranks_is_refused(trainer: Trainer, tmp_path: Path) -> None:
    mistaken = dataclasses.replace(trainer, env={**trainer.env, "WORLD_SIZE": "2", "RANK": "0"})
    done = mistaken.run("baseline.py", tmp_path, max_steps=1)
    assert done.returncode == 2
    assert "use ddp.py" in done.stderr


def test_the_learning_rate_warms_up_and_a_torn_line_of_a_killed_predecessor_swallows_no_record(
    trainer: Trainer, tmp_path: Path
) -> None:
    (tmp_path / "metrics").mkdir()
    (tmp_path / "metrics" / "rank-0.jsonl").write_text('{"step":1,"lo')
    assert trainer.run("baseline.py", tmp_path, lr=0.4, warmup_steps=4, max_steps=6).returncode == 0
    torn, *lines = (tmp_path / "metrics" / "rank-0.jsonl").read_text().splitlines()
    assert torn == '{"step":1,"lo'
    lrs = [record["lr"] for record in map(json.loads, lines) if "event" not in record]
    assert lrs == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.4, 0.4])
