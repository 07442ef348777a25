"""The code around the loop of every trainer: learning rate, clipping, and the end of an epoch."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.trainers.conftest import Trainer, event_in, read_records, steps_in

pytestmark = pytest.mark.train

LEARNING_RATES = """
import argparse, math
from common.optimization import build_schedule, steps_in

def rates(lr_schedule, **said):
    given = {"max_steps": 8, "epochs": 3, "warmup_steps": 2, "lr_schedule": lr_schedule, **said}
    schedule = build_schedule(argparse.Namespace(**given), 1.0, 5)
    return [round(schedule(step), 6) for step in range(9)]

assert rates("constant") == [0.5, *[1.0] * 8]
assert rates("linear") == [0.5, *(round(1 - step / 8, 6) for step in range(1, 9))], rates("linear")
cosine = [round(0.5 * (1 + math.cos(math.pi * step / 6)), 6) for step in range(7)]
assert rates("cosine") == [0.5, 1.0, *cosine], rates("cosine")
# Without max_steps the last of three epochs of five steps is the end.
assert rates("linear", max_steps=0, warmup_steps=0)[-1] == round(1 - 8 / 15, 6)
assert [steps_in(range(7), number) for number in (1, 2, 7, 9)] == [7, 4, 1, 1]
"""

CLIPPING = """
import torch
from torch import nn
from common.optimization import clip_gradients

def gradients(max_norm, norm=None):
    model = nn.Linear(2, 1)
    model.weight.grad, model.bias.grad = torch.tensor([[3.0, 0.0]]), torch.tensor([4.0])
    found = clip_gradients(model, max_norm, norm)
    return found.item(), [*model.weight.grad.flatten().tolist(), *model.bias.grad.tolist()]

assert gradients(0.0) == (5.0, [3.0, 0.0, 4.0])
assert gradients(6.0) == (5.0, [3.0, 0.0, 4.0])
norm, clipped = gradients(1.0)
assert norm == 5.0
assert torch.allclose(torch.tensor(clipped), torch.tensor([0.6, 0.0, 0.8]), atol=1e-5), clipped
# Ranks that share a model hand in the norm of all its parts.
norm, clipped = gradients(1.0, torch.tensor(50.0))
assert torch.allclose(torch.tensor(clipped), torch.tensor([0.06, 0.0, 0.08]), atol=1e-5), clipped
"""


@pytest.mark.parametrize("code", [LEARNING_RATES, CLIPPING], ids=["learning rates", "clipping"])
def test_learning_rates_and_clipping_are_those_of_a_calculation_by_hand(trainer: Trainer, code: str) -> None:
    done = trainer.python(code)
    assert done.returncode == 0, done.stderr


def test_gradients_are_clipped_and_the_learning_rate_falls_to_nothing_at_the_last_step(
    trainer: Trainer, tmp_path: Path
) -> None:
    flags = {"max_steps": 6, "max_grad_norm": 0.01, "lr": 0.1, "lr_schedule": "linear", "weight_decay": 0.1}
    done = trainer.run("baseline.py", tmp_path, optimizer="adam", **flags)
    assert done.returncode == 0, done.stderr
    steps = steps_in(read_records(tmp_path))
    assert [step["lr"] for step in steps] == pytest.approx([0.1 * (1 - step / 6) for step in range(6)])
    assert min(step["grad_norm"] for step in steps) > 0.01  # the recorded norm is the one before clipping


def test_a_part_of_an_epoch_is_not_called_one_and_is_evaluated_only_where_that_is_asked_for(
    trainer: Trainer, tmp_path: Path
) -> None:
    # An epoch has 20 steps.
    done = trainer.run("baseline.py", tmp_path / "cut", max_steps=8, eval_every_epoch="true")
    assert done.returncode == 0, done.stderr
    events = {record["event"] for record in read_records(tmp_path / "cut") if "event" in record}
    assert not events & {"epoch_end", "eval"}
    assert "epoch 0, its first 128 samples: loss " in done.stdout

    done = trainer.run("baseline.py", tmp_path / "asked", max_steps=8, eval_at_end="true")
    assert done.returncode == 0, done.stderr
    assert 0 < event_in(read_records(tmp_path / "asked"), "eval")["accuracy"] <= 1
