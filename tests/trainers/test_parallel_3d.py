"""Eight ranks on a mesh of three directions train the GPT like one device, and other meshes go on from their
checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.trainers.conftest import Trainer, event_in, read_records, steps_in

FLAGS: dict[str, Any] = {"num_train_samples": 64, "lr": 0.1, "batch_size": 4}


def losses_and_norms(run_dir: Path, rank: int = 0) -> list[float]:
    return [step[key] for step in steps_in(read_records(run_dir, rank)) for key in ("loss", "grad_norm")]


@pytest.mark.train
def test_eight_ranks_in_three_directions_follow_one_device(trainer: Trainer, tmp_path: Path) -> None:
    flags = {**FLAGS, "gradient_accumulation": 4, "max_steps": 3}
    done = trainer.run("baseline.py", tmp_path / "one", model="gpt", **flags)
    assert done.returncode == 0, done.stderr
    done = trainer.run("parallel_3d.py", tmp_path, ranks=8, **FLAGS, microbatches=2, max_steps=3)
    assert done.returncode == 0, done.stderr
    assert "mesh: 2 (dp) x 2 (tp) x 2 (pp)" in done.stdout
    assert "rank 3: dp 1, tp 1, pp 0, on" in done.stdout
    assert "every sample on 4 ranks that compute it together" in done.stdout
    expected = losses_and_norms(tmp_path / "one")
    places = []
    for rank in range(8):
        records = read_records(tmp_path, rank)
        places.append(tuple(event_in(records, "mesh")[name] for name in ("dp", "tp", "pp")))
        assert losses_and_norms(tmp_path, rank) == pytest.approx(expected, rel=1e-6)
        assert [(step["num_samples"], step["num_samples_global"]) for step in steps_in(records)] == [
            (8, 16)
        ] * 3
    # Neighbours share layers, and the two halves of the ranks are the stages.
    assert places[:4] == [(0, 0, 0), (0, 1, 0), (1, 0, 0), (1, 1, 0)]
    assert places[4:] == [(0, 0, 1), (0, 1, 1), (1, 0, 1), (1, 1, 1)]
    assert len(list((tmp_path / "checkpoints" / "step-00000003").glob("*.distcp"))) == 8


@pytest.mark.train
@pytest.mark.long
def test_a_job_goes_on_with_another_mesh_and_with_another_trainer_of_the_same_model(
    trainer: Trainer, tmp_path: Path
) -> None:
    flags = {**FLAGS, "gradient_accumulation": 4, "max_steps": 12, "optimizer": "adamw", "lr": 0.001}
    done = trainer.run("baseline.py", tmp_path / "one", model="gpt", eval_every_epoch="true", **flags)
    assert done.returncode == 0, done.stderr
    common = {**FLAGS, "optimizer": "adamw", "lr": 0.001, "eval_every_epoch": "true"}
    legs = [
        (4, {"microbatches": 2, "tp": 1, "pp": 2}),
        (2, {"microbatches": 4, "tp": 2, "pp": 1}),
        (4, {"microbatches": 4, "tp": 2, "pp": 2}),
    ]
    for i, (ranks, mesh) in enumerate(legs):
        done = trainer.run("parallel_3d.py", tmp_path, ranks=ranks, **common, **mesh, max_steps=3 * i + 3)
        assert done.returncode == 0, done.stderr
    done = trainer.run("tensor_parallel.py", tmp_path, ranks=2, **{**common, "batch_size": 16}, max_steps=12)
    assert done.returncode == 0, done.stderr
    assert losses_and_norms(tmp_path) == pytest.approx(losses_and_norms(tmp_path / "one"), rel=1e-4)
    found, expected = (event_in(read_records(folder), "eval") for folder in (tmp_path, tmp_path / "one"))
    assert found["loss"] == pytest.approx(expected["loss"], rel=1e-4)


@pytest.mark.train
@pytest.mark.long
@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"tp": 2, "pp": 2}, "2 ranks cannot be shared out evenly: start a multiple of --tp 2 x --pp 2"),
        ({"tp": 1, "pp": 2, "microbatches": 1}, "--pp must be at most 4 layers and 1 micro-batches"),
    ],
)
def test_an_impossible_mesh_is_refused_in_one_line(
    trainer: Trainer, tmp_path: Path, flags: dict[str, Any], said: str
) -> None:
    done = trainer.run("parallel_3d.py", tmp_path, ranks=2, max_steps=1, **FLAGS, **flags)
    assert done.returncode != 0
    assert said in done.stderr
