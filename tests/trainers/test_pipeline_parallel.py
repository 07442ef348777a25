"""A pipeline trains like one device under every schedule, measures the waits of its stages, and stops and
resumes as a whole."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from tests.trainers.conftest import Trainer, event_in, read_records, steps_in
from tests.trainers.test_ddp import read_whole_lines
from tests.waiting import PATIENCE, wait_until

FLAGS: dict[str, Any] = {"num_train_samples": 70, "lr": 0.1, "batch_size": 4}
"""Four steps of 16 samples are an epoch, and 6 samples are left over."""
STEPS = 6


@pytest.fixture(scope="module")
def on_one_device(trainer: Trainer, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The steps of one device with the samples that a pipeline of whole steps takes."""
    run_dir = tmp_path_factory.mktemp("baseline")
    flags = {**FLAGS, "num_train_samples": 64, "gradient_accumulation": 4, "max_steps": STEPS}
    done = trainer.run("baseline.py", run_dir, model="gpt", **flags)
    assert done.returncode == 0, done.stderr
    return steps_in(read_records(run_dir))


def check_steps(run_dir: Path, expected: list[dict[str, Any]], ranks: int = 2) -> None:
    for rank in range(ranks):
        found = steps_in(read_records(run_dir, rank))
        for key in ("step", "epoch", "loss", "grad_norm", "num_samples_global"):
            values = [step[key] for step in expected]
            assert [step[key] for step in found] == pytest.approx(values, rel=1e-6), key
    assert expected[-1]["loss"] < expected[0]["loss"] - 0.3  # it learns


@pytest.mark.train
def test_a_pipe_with_one_micro_batch_at_a_time_is_one_device_with_every_stage_idle_half_of_the_time(
    trainer: Trainer, tmp_path: Path, on_one_device: list[dict[str, Any]]
) -> None:
    flags = {**FLAGS, "schedule": "naive", "max_steps": STEPS}
    done = trainer.run("pipeline_parallel.py", tmp_path, ranks=2, **flags)
    assert done.returncode == 0, done.stderr
    check_steps(tmp_path, on_one_device)
    bubbles = [event_in(read_records(tmp_path, rank), "bubble") for rank in range(2)]
    assert [(bubble["stage"], bubble["expected_share"]) for bubble in bubbles] == [(0, 0.5), (1, 0.5)]
    # Two stages that never compute at the same time wait at least half of it, on any machine.
    assert 0.45 < mean(bubble["idle_share"] for bubble in bubbles) < 1
    assert "expected (p-1)/(m+p-1) = 50%" in done.stdout


@pytest.mark.train
def test_a_full_pipe_is_one_device_and_goes_on_with_another_schedule_and_number_of_stages(
    trainer: Trainer, tmp_path: Path, on_one_device: list[dict[str, Any]]
) -> None:
    flags = {**FLAGS, "schedule": "gpipe", "max_steps": 4, "eval_every_epoch": "true"}
    done = trainer.run("pipeline_parallel.py", tmp_path, ranks=2, **flags)
    assert done.returncode == 0, done.stderr
    first, last = (read_records(tmp_path, rank) for rank in range(2))
    assert event_in(first, "start")["num_parameters"] == event_in(last, "start")["num_parameters"] == 23_392
    assert event_in(first, "eval")["accuracy"] == event_in(last, "eval")["accuracy"] > 0.1
    assert [event_in(records, "bubble")["expected_share"] for records in (first, last)] == [0.2, 0.2]

    done = trainer.run("pipeline_parallel.py", tmp_path, ranks=3, **{**FLAGS, "max_steps": STEPS})
    assert done.returncode == 0, done.stderr
    assert "resumed at step 4" in done.stdout
    assert "3 stages" in done.stdout
    for rank in range(2):  # the third was not there at first
        found = steps_in(read_records(tmp_path, rank))
        assert [step["loss"] for step in found] == pytest.approx([s["loss"] for s in on_one_device], rel=1e-6)


@pytest.mark.train
@pytest.mark.long
def test_a_signal_to_one_stage_lets_all_leave_in_the_same_step_and_the_pipe_goes_on_from_there(
    trainer: Trainer, tmp_path: Path
) -> None:
    metrics = [tmp_path / "metrics" / f"rank-{rank}.jsonl" for rank in range(2)]
    process = trainer.start("pipeline_parallel.py", tmp_path, ranks=2, max_steps=100_000, **FLAGS)
    try:
        wait_until(
            lambda: all(path.exists() and b'"loss"' in path.read_bytes() for path in metrics),
            what="the first steps",
        )
        os.kill(event_in(read_whole_lines(metrics[1]), "start")["pid"], signal.SIGUSR1)
        _, stderr = process.communicate(timeout=60 * PATIENCE)
    finally:
        process.terminate()
    assert process.returncode == 0, stderr
    last = [steps_in(read_records(tmp_path, rank))[-1]["step"] for rank in range(2)]
    assert last[0] == last[1]
    assert [read_records(tmp_path, rank)[-1]["reason"] for rank in range(2)] == ["signal", "signal"]

    # With steps of another size: the samples of a step that was cut otherwise come again.
    flags = {**FLAGS, "microbatches": 2, "batch_size": 16, "max_steps": last[0] + 3}
    done = trainer.run("pipeline_parallel.py", tmp_path, ranks=2, **flags)
    assert done.returncode == 0, done.stderr
    assert [steps_in(read_records(tmp_path, rank))[-1]["step"] for rank in range(2)] == [last[0] + 3] * 2


@pytest.mark.train
@pytest.mark.long
@pytest.mark.parametrize(
    ("ranks", "flags", "said"),
    [
        (2, {"microbatches": 1}, "2 ranks are too many: 4 layers and 1 micro-batches make 1 stages (1f1b)"),
        (2, {"num_train_samples": 10}, "one step needs 16 samples, but there are 10"),
        (5, {}, "5 ranks are too many: 4 layers and 4 micro-batches make 4 stages (1f1b)"),
    ],
)
def test_an_impossible_pipeline_is_refused_in_one_line(
    trainer: Trainer, tmp_path: Path, ranks: int, flags: dict[str, Any], said: str
) -> None:
    done = trainer.run("pipeline_parallel.py", tmp_path, ranks=ranks, max_steps=1, **{**FLAGS, **flags})
    assert done.returncode != 0
    assert f"error: {said}" in done.stderr


@pytest.mark.train
@pytest.mark.long
def test_micro_batches_that_follow_each_other_leave_less_of_the_time_idle(
    trainer: Trainer, tmp_path: Path
) -> None:
    idle = {}
    for schedule in ("naive", "1f1b"):
        run_dir = tmp_path / schedule
        flags = {**FLAGS, "width": 32, "batch_size": 8, "microbatches": 8, "num_train_samples": 0}
        done = trainer.run("pipeline_parallel.py", run_dir, ranks=2, max_steps=12, schedule=schedule, **flags)
        assert done.returncode == 0, done.stderr
        idle[schedule] = mean(
            event_in(read_records(run_dir, rank), "bubble")["idle_share"] for rank in range(2)
        )
    assert idle["1f1b"] < idle["naive"] - 0.1, idle
