"""A training that was ended and goes on is the one that was never ended: the same losses, gradients and
accuracy, bit for bit, of every trainer that writes checkpoints."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from tests.trainers.as_on_gpu.test_gpu_optimizer_path import NEEDS
from tests.trainers.conftest import SMALL, TRAINERS, Trainer, event_in, read_records, steps_in
from tests.trainers.test_beyond import is_installed
from tests.trainers.test_recipes_match import options_of

pytestmark = [pytest.mark.train, pytest.mark.long]

ENDED_AT, STEPS = 3, 6
FLAGS: dict[str, Any] = {"num_train_samples": 64, "batch_size": 8, "eval_at_end": "true"}
GPT_IN_PARTS: dict[str, Any] = {"num_train_samples": 64, "batch_size": 4, "eval_at_end": "false"}
FLAGS_OF: dict[str, dict[str, Any]] = {
    "amp": {"precision": "bf16"},
    "attention": {"layers": 1, "heads": 2, "embedding": 16, "sequence_length": 32, "width": None},
    "fast": {"compile": "false"},
    "parallel_3d": {**GPT_IN_PARTS, "tp": 2, "pp": 1, "async_checkpoint": "true"},
    "pipeline_parallel": {**GPT_IN_PARTS, "async_checkpoint": "true"},
    "tensor_parallel": GPT_IN_PARTS,
}
OTHERWISE = {"comm_bench", "ring", "mpi_allreduce"}
"""Two train nothing; the third starts its own ranks, which no signal of this test reaches."""

NOT_HERE = {"dali", "horovod_cnn"}
"""One needs a GPU, the other builds with no torch of today."""


def trainers() -> list[str]:
    names = sorted(path.stem for path in TRAINERS.glob("*.py") if not path.stem.startswith("drill_"))
    return [
        name
        for name in names
        if name not in OTHERWISE | NOT_HERE
        and (f"{name}.py" not in NEEDS or is_installed(NEEDS[f"{name}.py"]))
        and "training.start(" in (TRAINERS / f"{name}.py").read_text(encoding="utf-8")
    ]


@pytest.mark.parametrize("name", trainers())
def test_a_resumed_training_is_the_one_that_never_ended_bit_for_bit(
    trainer: Trainer, tmp_path: Path, name: str
) -> None:
    taken = set(options_of(TRAINERS / f"{name}.py"))
    flags = {**FLAGS, **FLAGS_OF.get(name, {})}
    flags |= dict.fromkeys({*SMALL, *flags} - taken)  # which leaves them out
    if name == "compile":
        trainer = dataclasses.replace(trainer, env={**trainer.env, "TORCHDYNAMO_DISABLE": "1"})
    ranks = 2 if "torchrun --standalone" in (TRAINERS / f"{name}.py").read_text(encoding="utf-8") else 1
    flags["max_steps"] = STEPS
    done = trainer.run(f"{name}.py", tmp_path / "whole", ranks=ranks, **flags)
    assert done.returncode == 0, done.stderr
    done = trainer.run_until_signal(ENDED_AT, f"{name}.py", tmp_path / "parts", ranks=ranks, **flags)
    assert done.returncode == 0, done.stderr
    done = trainer.run(f"{name}.py", tmp_path / "parts", ranks=ranks, **flags)
    assert done.returncode == 0, done.stderr
    # Several ranks agree in the step behind the signal.
    assert f"resumed at step {ENDED_AT + (ranks > 1)} from" in done.stdout
    for rank in range(ranks):
        whole, parts = (read_records(tmp_path / folder, rank) for folder in ("whole", "parts"))
        assert [step["step"] for step in steps_in(parts)] == list(range(1, STEPS + 1))
        for one, other in zip(steps_in(whole), steps_in(parts), strict=True):
            assert (one["loss"], one.get("grad_norm")) == (other["loss"], other.get("grad_norm"))
        if flags["eval_at_end"] == "true":
            for key in ("loss", "accuracy"):
                assert event_in(whole, "eval")[key] == event_in(parts, "eval")[key]
