"""ddp_amp: several ranks multiply in 16 bits, and stay equal."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.trainers.conftest import Trainer, event_in, read_records, steps_in

pytestmark = pytest.mark.train


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_two_ranks_average_the_gradients_of_products_in_16_bits(
    trainer: Trainer, tmp_path: Path, precision: str
) -> None:
    flags = {"max_steps": 6, "batch_size": 8, "num_train_samples": 64, "checkpoint_every": 3}
    done = trainer.run("ddp_amp.py", tmp_path / "amp", ranks=2, precision=precision, **flags)
    assert done.returncode == 0, done.stderr
    ranks = [steps_in(read_records(tmp_path / "amp", rank)) for rank in (0, 1)]
    assert len(ranks[0]) == len(ranks[1]) == 6
    for one, other in zip(*ranks, strict=True):
        assert (one["grad_norm"], one["loss_scale"]) == (other["grad_norm"], other["loss_scale"])
        assert one["loss"] != other["loss"]  # each has samples of its own
    assert (ranks[0][0]["loss_scale"] > 1) == (precision == "fp16")
    saved = torch.load(tmp_path / "amp" / "checkpoints" / "step-00000003.pt", weights_only=True)
    assert {value.dtype for value in saved["model"].values()} == {torch.float32, torch.int64}
    assert saved["made_with"]["precision"] == precision
    plain = trainer.run("ddp.py", tmp_path / "ddp", ranks=2, **flags)
    assert plain.returncode == 0, plain.stderr
    first = [steps_in(read_records(tmp_path / name))[0]["loss"] for name in ("amp", "ddp")]
    assert first[0] == pytest.approx(first[1], rel=0.02)
    assert first[0] != first[1]  # else no product was rounded


def test_a_resumed_training_keeps_its_precision(trainer: Trainer, tmp_path: Path) -> None:
    flags = {"batch_size": 8, "num_train_samples": 64, "precision": "fp16"}
    done = trainer.run("ddp_amp.py", tmp_path, ranks=2, max_steps=2, **flags)
    assert done.returncode == 0, done.stderr
    done = trainer.run("ddp_amp.py", tmp_path, ranks=2, max_steps=4, **flags)
    assert done.returncode == 0, done.stderr
    records = read_records(tmp_path)
    assert event_in(records, "resume")["step"] == 2
    assert [step["step"] for step in steps_in(records)] == [1, 2, 3, 4]
    done = trainer.run("ddp_amp.py", tmp_path, ranks=2, max_steps=6, **{**flags, "precision": "bf16"})
    assert done.returncode != 0
    assert "was made with precision=fp16, but this run has precision=bf16" in done.stderr
