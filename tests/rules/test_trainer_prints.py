"""Findings from the losses, rates and norms that transformers' Trainer and plain programs print."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from coach.model.judging.finding import Diagnosis
from coach.model.training.run import Run
from tests.rules.examples import diagnose_log, judge, of_a_whole_log, run, steps

TRAINER = Path(__file__).parents[1] / "recordings" / "trainer"
ILL = {
    "nan-shown-as-zero": ("NUM001", "nan_loss", "Loss 0.0 hides NaN"),
    "nan-shown-as-zero-without-norms": ("NUM001", "nan_loss", "Loss 0.0 hides NaN"),
    "nan-in-the-summary": ("NUM001", "nan_loss", "The training loss is NaN"),
    "rate-far-too-high": ("NUM006", "loss_divergence", "at a learning rate of 2.89"),
    "rate-of-zero": ("NUM008", "not_learning", "The learning rate is 0"),
}


def test_each_recording_of_the_trainer_is_judged_here() -> None:
    names = {path.stem for path in TRAINER.iterdir()}
    assert {name for name in names if not name.startswith("healthy-")} == ILL.keys()


@pytest.mark.parametrize("name", ILL)
def test_bad_trainings_are_found_from_the_numbers_that_the_trainer_prints(name: str) -> None:
    rule, cause, words = ILL[name]
    finding = diagnose_log((TRAINER / f"{name}.log").read_text()).findings[0]
    assert (finding.rule, finding.cause) == (rule, cause)
    assert words in finding.summary
    assert "loss is NaN (" not in finding.summary or name == "nan-in-the-summary"


@pytest.mark.parametrize("path", sorted(TRAINER.glob("healthy-*")), ids=lambda path: path.stem)
def test_a_training_that_learns_or_comes_to_a_true_zero_is_silent(path: Path) -> None:
    assert not diagnose_log(path.read_text()).findings


def printed(losses: Sequence[float], rate: float | str = 5e-5, **more: object) -> list[str]:
    """As the Trainer prints them, without norms of gradients where none is given."""
    return [
        str({"loss": loss, **more, "learning_rate": rate, "epoch": place / 10})
        for place, loss in enumerate(losses, 1)
    ]


def test_a_loss_of_zero_in_the_trainers_state_hides_nan_as_well() -> None:
    hidden = steps([0.0] * 6, grad_norm=math.nan)
    finding = judge([*steps([2.3, 2.2], grad_norm=1.0), *hidden[2:]]).findings[0]
    assert (finding.rule, finding.cause) == ("NUM001", "nan_loss")
    assert finding.summary.startswith("Loss 0.0 hides NaN since step 3")
    assert not judge([*steps([2.3, 2.2], grad_norm=1.0), *hidden[2:3]]).findings
    assert not judge(steps([2.3, *[0.0] * 6], grad_norm=0.0)).findings
    assert not judge(steps([2.3, *[0.0] * 6])).findings


FALLING = [2.0, 1.0, 0.5, 0.1, 0.02, 0.004, 0.0006]


@pytest.mark.parametrize(
    "lines",
    [
        printed([*FALLING, *[0.0] * 20]),
        printed([2.0, 1.9, *[0.0] * 8], grad_norm=1e-4),
        printed([2.0, 1.9, *[0.0] * 8], grad_norm=0.0),
        printed([0.0, 0.0, 0.0, 2.0, 1.9]),
        printed([*[0.4, 0.0] * 10], reward=0.3),
        printed([0.3, *[0.0] * 8], reward=0.3),
        [f"epoch {number} loss: 0.0" for number in range(20)],
    ],
)
def test_a_true_loss_of_zero_is_no_nan(lines: list[str]) -> None:
    assert "nan_loss" not in of_a_whole_log(*lines)


@pytest.mark.parametrize(
    "lines",
    [
        printed([2.2] * 60, "0.0000"),
        printed([2.3 - 0.02 * number for number in range(60)], 0.0),
        [*printed([2.3] * 10, 0.0), *printed([2.3] * 10, 5e-5)],
        [f"step {number} loss: 2.2 lr_backbone: 0.0 lr: 0.001" for number in range(60)],
        [*printed([2.3] * 60, 0.0), "mean reward 0.2"],
    ],
)
def test_a_rate_that_is_rounded_or_warms_up_or_learns_is_no_rate_of_zero(lines: list[str]) -> None:
    assert not of_a_whole_log(*lines)


def test_a_rate_of_zero_is_seen_in_metrics_and_in_plain_lines() -> None:
    assert judge(steps([2.3] * 40, lr=0.0)).findings[0].summary.startswith("The learning rate is 0")
    assert of_a_whole_log(*(f"step {n} loss: 2.3{n % 7} lr: 0.0" for n in range(40))) == ["not_learning"]
    assert not judge(steps([2.3] * 40, lr=1e-4)).findings


@pytest.mark.parametrize(
    "lines",
    [
        printed([950.0, 800.0, 700.0, 650.0, 600.0, 580.0], 1.0),
        printed([2.5, 2.4, 2.3, 2.2, 2.1, 2.0], 3.0),
        printed([950.0, 800.0, 700.0, 650.0, 600.0, 580.0], 1e-4),
        [f"step {number} loss: {950 - number} lr: 3.0" for number in range(20)],
        printed([950.0, 18.0, 9.0, 5.0, 4.0, 3.0], 2.0),
    ],
)
def test_a_large_loss_or_a_large_rate_alone_is_no_divergence(lines: list[str]) -> None:
    assert not of_a_whole_log(*lines)


@pytest.mark.parametrize(("norm", "cause"), [("nan", "nan_loss"), ("inf", "amp_overflow")])
def test_norms_that_are_never_finite_beside_a_flat_loss_are_reported(norm: str, cause: str) -> None:
    lines = [f"step {number} loss 2.3{number % 3} grad_norm {norm} lr 1e-3" for number in range(20)]
    assert of_a_whole_log(*lines) == [cause]
    assert of_a_whole_log(*printed([2.31, 2.3] * 10, grad_norm=math.inf)) == ["amp_overflow"]


@pytest.mark.parametrize(
    "lines",
    [
        [f"step {n} loss {2.3 - n / 20:.3f} grad_norm nan" for n in range(20)],
        [f"step {n} loss 2.3 grad_norm {'nan' if n < 19 else '1.5'}" for n in range(20)],
        [f"step {n} loss 2.3 grad_norm {'nan' if n % 5 else '1.5'}" for n in range(20)],
        [f"step {n} loss 2.3 grad_norm nan" for n in range(8)],
        [f"step {n} loss 2.3 nan_grad_count 0 weight_norm nan" for n in range(20)],
    ],
)
def test_a_norm_that_settles_or_a_loss_that_falls_is_no_broken_gradient(lines: list[str]) -> None:
    assert not of_a_whole_log(*lines)


def guessing(of: int, line: Callable[[int, float], str], count: int = 60) -> list[str]:
    return [line(number, math.log(of) * (1 + 0.002 * math.sin(number))) for number in range(1, count)]


def test_guessing_is_seen_if_the_log_names_the_epochs_or_the_number_of_classes() -> None:
    epochs = guessing(10, lambda number, loss: f"Epoch {number}/60 loss: {loss:.4f}")
    assert of_a_whole_log(*epochs) == ["not_learning"]
    rows = guessing(37, lambda number, loss: f"step {number * 10} loss: {loss:.4f}")
    assert of_a_whole_log("Namespace(num_classes=37, lr=0.1)", *rows) == ["not_learning"]
    assert not of_a_whole_log(*rows)
    assert not of_a_whole_log(*guessing(10, lambda n, loss: f"Epoch {n // 30} loss: {loss:.4f}"))


@pytest.mark.parametrize("launched", [run({"num_classes": "many"}), run({"num_classes": -3}), None])
def test_classes_that_are_no_number_are_left_out(launched: Run | None) -> None:
    found: Diagnosis = judge(steps([3.0] * 700), run=launched)
    assert not [finding for finding in found.findings if finding.rule == "NUM008"]
