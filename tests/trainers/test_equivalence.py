"""Parallel training equals single-device training: several ranks compute the same as one device with the same
data in the same order.

The GPT has neither batch norm nor dropout, so no result depends on the division of a batch. A sampler deals
samples to ranks in turn: steps of 8 samples on each of two ranks together equal steps of 16 on one.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from tests.trainers.conftest import Trainer, event_in, read_records, steps_in

STEPS = 8
GPT: dict[str, Any] = {
    "model": "gpt",
    "lr": 0.1,
    "max_steps": STEPS,
    "num_train_samples": 64,
    "gradient_accumulation": 2,
}
"""Four steps of 16 samples, in two micro-batches, are an epoch; there are two epochs."""


def alone(trainer: Trainer) -> Trainer:
    """As torchrun would start one rank, without the seconds that torchrun takes."""
    ranks = {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "0",
    }
    return dataclasses.replace(trainer, env={**trainer.env, **ranks})


def losses(run_dir: Path, ranks: int = 1) -> list[float]:
    """The loss of every step over all its samples."""
    by_rank = [[step["loss"] for step in steps_in(read_records(run_dir, rank))] for rank in range(ranks)]
    return [sum(of_step) / ranks for of_step in zip(*by_rank, strict=True)]


@pytest.fixture(scope="module")
def on_one_device(trainer: Trainer, tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    run_dir = tmp_path_factory.mktemp("baseline")
    done = trainer.run("baseline.py", run_dir, **GPT, batch_size=8)
    assert done.returncode == 0, done.stderr
    found = losses(run_dir)
    assert len(found) == STEPS
    assert found[-1] < found[0] - 0.5  # it learns: equal losses are no matter of nothing happening
    return found


@pytest.mark.train
@pytest.mark.parametrize(
    ("parent", "child", "model"),
    [("baseline", "ddp", "simplecnn"), ("baseline", "ddp", "gpt"), ("amp", "ddp_amp", "simplecnn")],
)
def test_ddp_on_one_rank_is_its_parent_bit_for_bit(
    trainer: Trainer, tmp_path: Path, parent: str, child: str, model: str
) -> None:
    flags = {**GPT, "model": model, "lr": 0.01, "max_steps": 4, "eval_every_epoch": model == "simplecnn"}
    for name, starter in ((parent, trainer), (child, alone(trainer))):
        done = starter.run(f"{name}.py", tmp_path / name, **flags)
        assert done.returncode == 0, done.stderr
    baseline, ddp = (read_records(tmp_path / name) for name in (parent, child))
    for one, other in zip(steps_in(baseline), steps_in(ddp), strict=True):
        assert (one["loss"], one["grad_norm"]) == (other["loss"], other["grad_norm"])
    if model == "simplecnn":  # the GPT takes its time to be evaluated
        assert event_in(baseline, "eval")["loss"] == event_in(ddp, "eval")["loss"]


@pytest.mark.train
def test_ddp_on_two_ranks_follows_one_device(
    trainer: Trainer, tmp_path: Path, on_one_device: list[float]
) -> None:
    done = trainer.run("ddp.py", tmp_path, ranks=2, **GPT, batch_size=4)
    assert done.returncode == 0, done.stderr
    assert losses(tmp_path, ranks=2) == pytest.approx(on_one_device, rel=1e-6)


@pytest.mark.train
def test_fsdp_follows_one_device_also_when_the_number_of_ranks_changes_on_the_way(
    trainer: Trainer, tmp_path: Path, on_one_device: list[float]
) -> None:
    in_background, off_device = {"async_checkpoint": "true"}, {"offload": "cpu"}
    legs = [(2, 3, trainer, in_background), (1, 6, alone(trainer), {}), (2, STEPS, trainer, off_device)]
    assert follow(tmp_path, legs) == pytest.approx(on_one_device, rel=1e-6)


@pytest.mark.long
@pytest.mark.train
def test_fsdp_goes_on_with_twice_as_many_ranks_each_time(
    trainer: Trainer, tmp_path: Path, on_one_device: list[float]
) -> None:
    in_background = {"async_checkpoint": "true", "offload": "cpu"}
    legs = [
        (1, 3, alone(trainer), in_background),
        (2, 6, trainer, in_background),
        (4, STEPS, trainer, in_background),
    ]
    assert follow(tmp_path, legs) == pytest.approx(on_one_device, rel=1e-6)


def follow(tmp_path: Path, legs: list[tuple[int, int, Trainer, dict[str, str]]]) -> list[float]:
    """The losses of fsdp.py in several legs; each leg resumes from the checkpoint of the leg before it."""
    found: list[float] = []
    for ranks, until, starter, options in legs:
        leg = tmp_path / f"until-{until}"
        flags = {**GPT, "batch_size": 8 // ranks, "max_steps": until, **options}
        if found:
            flags["resume_from"] = tmp_path / f"until-{len(found)}" / "checkpoints" / f"step-{len(found):08d}"
        done = starter.run("fsdp.py", leg, ranks=ranks, **flags)
        assert done.returncode == 0, done.stderr
        found += losses(leg, ranks)
    return found


@pytest.mark.long
@pytest.mark.train
def test_fsdp_with_two_copies_of_the_model_follows_one_device_and_goes_on_as_one(
    trainer: Trainer, tmp_path: Path, on_one_device: list[float]
) -> None:
    for ranks, replicas, until in ((4, 2, 5), (2, 1, STEPS)):
        flags = {**GPT, "batch_size": 8 // ranks, "replicas": replicas, "max_steps": until}
        done = trainer.run("fsdp.py", tmp_path, ranks=ranks, **flags)
        assert done.returncode == 0, done.stderr
        if until == 5:
            found = losses(tmp_path, ranks)
    assert "resumed at step 5" in done.stdout
    found += losses(tmp_path, 2)[5:]
    assert found == pytest.approx(on_one_device, rel=1e-6)


@pytest.mark.train
@pytest.mark.parametrize("stage", [pytest.param(1, marks=pytest.mark.long), 2])
def test_zero_on_two_ranks_follows_one_device(
    trainer: Trainer, tmp_path: Path, on_one_device: list[float], stage: int
) -> None:
    done = trainer.run("deepspeed_zero.py", tmp_path, ranks=2, **GPT, batch_size=4, stage=stage)
    assert done.returncode == 0, done.stderr
    assert losses(tmp_path, ranks=2) == pytest.approx(on_one_device, rel=1e-6)


@pytest.mark.train
def test_zero_with_everything_sharded_and_offloaded_follows_one_device_also_when_started_again(
    trainer: Trainer, tmp_path: Path, on_one_device: list[float]
) -> None:
    for until in (5, STEPS):
        flags = {**GPT, "batch_size": 4, "stage": 3, "offload": "cpu", "max_steps": until}
        done = trainer.run("deepspeed_zero.py", tmp_path, ranks=2, **flags)
        assert done.returncode == 0, done.stderr
    assert "resumed at step 5" in done.stdout
    assert losses(tmp_path, ranks=2) == pytest.approx(on_one_device, rel=1e-6)
