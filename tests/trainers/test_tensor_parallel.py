"""The ranks that share every layer of the GPT train it like one device, and other numbers of ranks go on from
their checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.trainers.conftest import Trainer, event_in, read_records, steps_in
from tests.trainers.test_equivalence import alone

FLAGS: dict[str, Any] = {"num_train_samples": 64, "lr": 0.1}
"""Four steps of 16 samples are an epoch."""


@pytest.mark.train
def test_ranks_that_share_every_layer_follow_one_device_and_one_rank_goes_on_from_there(
    trainer: Trainer, tmp_path: Path
) -> None:
    done = trainer.run("baseline.py", tmp_path / "one", model="gpt", max_steps=8, **FLAGS)
    assert done.returncode == 0, done.stderr
    done = trainer.run("tensor_parallel.py", tmp_path, ranks=2, max_steps=6, eval_every_epoch="true", **FLAGS)
    assert done.returncode == 0, done.stderr
    assert "every sample on 2 ranks that compute it together" in done.stdout
    first, second = (read_records(tmp_path, rank) for rank in range(2))
    # All ranks compute the same samples together and know the same loss, norm and accuracy, of the whole
    # model.
    for one, other in zip(steps_in(first), steps_in(second), strict=True):
        assert one["num_samples"] == one["num_samples_global"] == other["num_samples_global"] == 16
        assert (one["loss"], one["grad_norm"]) == (other["loss"], other["grad_norm"])
    assert event_in(first, "eval")["accuracy"] == event_in(second, "eval")["accuracy"]
    newest = tmp_path / "checkpoints" / "step-00000006"
    sizes = [(newest / f"__{rank}_0.distcp").stat().st_size for rank in range(2)]
    assert (
        sizes[0] > sizes[1] > 0.4 * sizes[0]
    )  # each rank wrote its half of the split tensors; the first also wrote the common ones

    # One rank reads the halves of both.
    done = alone(trainer).run("tensor_parallel.py", tmp_path, max_steps=8, **FLAGS)
    assert done.returncode == 0, done.stderr
    assert f"resumed at step 6 from {newest}" in done.stdout
    expected, found = read_records(tmp_path / "one"), read_records(tmp_path)
    assert event_in(found, "start")["num_parameters"] == event_in(expected, "start")["num_parameters"]
    for key in ("step", "epoch", "loss", "grad_norm"):
        values = [step[key] for step in steps_in(expected)]
        assert [step[key] for step in steps_in(found)] == pytest.approx(values, rel=1e-6)
    assert steps_in(found)[-1]["loss"] < steps_in(found)[0]["loss"] - 0.5  # it learns


@pytest.mark.train
@pytest.mark.long
def test_heads_that_cannot_be_shared_evenly_are_refused_in_one_line(trainer: Trainer, tmp_path: Path) -> None:
    done = trainer.run("tensor_parallel.py", tmp_path, ranks=3, max_steps=1, **FLAGS)
    assert done.returncode != 0
    assert "error: 4 heads cannot be split evenly over 3 ranks" in done.stderr
