from __future__ import annotations

import math
from dataclasses import replace

import pytest

from coach.lookback.history import History
from coach.model.judging.finding import Severity
from coach.model.snapshot import TargetSnapshot
from coach.rules.engine import Engine
from coach.rules.registry import build
from tests.rules.examples import (
    causes,
    diagnose_log,
    diagnose_whole,
    history,
    judge,
    run,
    scan,
    steps,
    tail_of,
)
from tests.rules.recorded import diagnose

LR = {"lr": {"default": 0.05, "usual": [1e-4, 1.0]}}


def test_a_run_with_an_absurd_learning_rate_is_caught_with_the_step_as_evidence() -> None:
    finding = diagnose("nan").findings[0]
    assert (finding.cause, finding.is_primary, finding.severity) == ("nan_loss", True, Severity.CRITICAL)
    assert "since step 2" in finding.summary
    evidence = {item.text: item.value for item in finding.evidence}
    assert evidence["first step of rank 0 without a finite loss"] == 2
    assert math.isfinite(evidence["last finite loss, at step 1"] or math.nan)
    assert evidence["learning rate at that step"] == 1e20


def test_the_fix_for_a_learning_rate_above_the_usual_range_is_the_recipes_default() -> None:
    fix = diagnose("nan").findings[0].fixes[0]
    assert fix.changes == {"lr": 0.05}
    assert fix.changes_learning


@pytest.mark.parametrize("info", [LR, {}])
def test_a_usual_learning_rate_is_divided_by_ten_and_warmed_up(info: dict[str, object]) -> None:
    launched = run({"lr": 0.3, "warmup_steps": 0}, parameter_info=info)
    fix = judge(steps([1.0, math.nan, math.nan]), run=launched).findings[0].fixes[0]
    assert fix.changes == {"lr": 0.03, "warmup_steps": 100}
    assert fix.changes_learning


def test_a_long_break_is_told_also_where_only_each_second_step_has_a_loss() -> None:
    told = steps([1.0] * 20 + [math.nan] * 5 + [1.0] * 20)
    both = [each for step in told for each in (step, replace(step, loss=None))]
    numbered = [replace(step, step=number) for number, step in enumerate(both, 1)]
    (finding,) = [each for each in judge(numbered, run=run()).findings if each.rule == "NUM001"]
    assert finding.severity is Severity.INFO
    assert finding.summary == "The loss was not finite from step 41 to 49 and is finite again"


def test_the_same_line_number_of_another_log_proves_nothing() -> None:
    broken = "".join(f"step {step} G_loss: {'nan' if step > 3 else 0.5}\n" for step in range(1, 9))
    other = "".join(f"step {step} loss: 0.{step}\n" for step in range(1, 9))
    hits = (*scan(broken), *(replace(hit, file="other.log") for hit in scan(other)))
    snapshot = TargetSnapshot("runs", None, log_hits=hits)
    finding = Engine(build()).diagnose(snapshot, History()).findings[0]
    assert (finding.cause, finding.severity) == ("nan_loss", Severity.CRITICAL)


def test_one_bad_step_while_the_run_lives_is_not_yet_a_finding() -> None:
    assert not causes(judge(steps([1.0, math.inf]), run=run()))


def test_one_bad_step_is_a_finding_if_the_run_ended_there() -> None:
    assert causes(judge(steps([1.0, math.inf]), run=run(state="COMPLETED"))) == ["nan_loss"]


def test_a_loss_that_became_finite_again_is_only_info() -> None:
    findings = judge(steps([1.0, math.nan, math.nan, 1.0, 0.9])).findings
    assert [finding.severity for finding in findings] == [Severity.INFO]


def test_a_nan_on_one_rank_of_two_names_the_rank() -> None:
    finding = judge([*steps([1.0] * 4), *steps([1.0, 1.0, math.nan, math.nan], rank=1)]).findings[0]
    assert finding.subject.rank == 1


@pytest.mark.parametrize(
    "log",
    [
        "step 1 loss: 2.3\nstep 2 loss: nan\nstep 3 loss: nan\n",
        "{'loss': nan, 'lr': 0.1}\n{'loss': nan, 'lr': 0.1}\n",
        "train_loss=nan\ntrain_loss=nan\n",
        " 10%|# | 1/9 [00:01<00:14, 1.2it/s, loss=nan]\r 20%|# | 2/9 [00:02<00:14, 1.2it/s, loss=nan]\r",
        "iter 10: loss nan, time 30ms\niter 20: loss nan, time 30ms\n",
        "Loss is nan, stopping training\n",
        "RuntimeError: Function 'MulBackward0' returned nan values in its 0th output.\n",
        "epoch 1 loss: 0.9\nepoch 2 loss: inf\n",
        "step 30 loss 0.5 lr 0.1\nstep 31 loss nan lr 0.1\nstep 32 loss nan lr 0.1\n",
        "loss nan step 31 lr 1e-3\nloss nan step 32 lr 1e-3\n",
        "3 loss: nan grad_norm nan\n4 loss: nan grad_norm nan\n",
        "iter 10 loss nan time 30ms\niter 20 loss nan time 31ms\n",
        "loss nan\ttok/s\t12345\nloss nan\ttok/s\t12345\n",
        "loss nan step 31 elapsed 0:12:13\nloss nan step 32 elapsed 0:12:14\n",
        "epoch 3 train loss nan val loss nan\nepoch 4 train loss nan val loss nan\n",
    ],
)
def test_a_loss_that_is_not_finite_is_found_in_every_spelling(log: str) -> None:
    assert causes(diagnose_log(log)) == ["nan_loss"]


@pytest.mark.parametrize(
    "line",
    [
        "x = torch.nan_to_num(loss)",
        "no nan values found",
        "detect_anomaly=False, loss checked for nan",
        "{'loss': 0.7, 'grad_norm': nan, 'epoch': 0.0}",
        "epoch 0 val_loss: nan",
        "epoch 0 train loss: 0.7 val loss: nan accuracy: nan",
        "Validation | loss: nan",
        "best_loss: inf",
        "loss scale: inf",
        "number of skipped iterations:   0 | number of nan iterations:   0 |",
        "loss is nan after 2.5 hours without warm-up, says the paper",
        "if the loss becomes nan lower the rate",
        "a loss is nan in 3 ms",
    ],
)
def test_words_that_fool_a_matcher_stay_silent(line: str) -> None:
    assert not diagnose_log(f"{line}\n{line}\n").findings


@pytest.mark.parametrize(
    ("losses", "norms", "is_told"),
    [
        ([2.1] * 39, "nan " * 39, True),
        ([2.1] * 39, "inf " * 39, True),
        ([2.1 - 0.005 * i for i in range(80)], "1.1 " * 20 + "nan " * 60, True),
        ([2.1 - 0.005 * i for i in range(80)], "nan " * 80, False),
        ([2.1 - 0.005 * i for i in range(80)], "1.1 " * 71 + "nan " * 9, True),
        ([2.1 - 0.005 * i for i in range(80)], "1.1 " * 71 + "inf " * 9, False),
        ([2.1 - 0.005 * i for i in range(80)], "1.1 1.2 1.1 nan " * 20, True),
        ([2.1 - 0.005 * i for i in range(80)], "1.1 1.2 1.1 inf " * 20, False),
        ([2.1] * 40, "nan " * 39 + "1.1 ", False),
    ],
)
def test_printed_gradients_that_stay_not_finite_are_told(
    losses: list[float], norms: str, is_told: bool
) -> None:
    """The numbers of a log are also its metrics."""
    pairs = list(zip(losses, norms.split(), strict=True))
    text = "".join(f"{{'loss': {loss}, 'grad_norm': {norm}, 'epoch': 0.1}}\n" for loss, norm in pairs)
    measured = [
        replace(step, grad_norm=float(norm)) for step, (_, norm) in zip(steps(losses), pairs, strict=True)
    ]
    snapshot = TargetSnapshot("train.log", None, log_hits=scan(text), log_tails=(tail_of(text),))
    found = Engine(build()).diagnose(snapshot, history(measured)).findings
    assert ("NUM003" in [each.rule for each in found if each.severity >= 2]) is is_told


def test_a_log_whose_only_loss_is_nan_is_told_unless_its_job_runs() -> None:
    text = "scaler: overflow in this step\nloss = nan, skipping this step\n"
    (finding,) = diagnose_whole(text).findings
    assert (finding.rule, finding.severity, finding.evidence[0].line) == ("NUM001", Severity.CRITICAL, 2)
    assert not causes(diagnose_log(text, run(state="RUNNING")))


@pytest.mark.parametrize("line", ["<{n:05}> objective={x} ema~{x} (0.1s)", "Iter {n}: cost = {x}, acc = 0.5"])
def test_an_objective_of_another_name_is_told_once_it_stays_nan(line: str) -> None:
    lines = [line.format(n=n, x="nan" if n > 76 else f"{4 / n:.4f}") for n in range(1, 120)]
    (finding,) = diagnose_whole("\n".join([*lines, "done, saved model.pt", ""])).findings
    assert (finding.rule, finding.severity, finding.evidence[0].line) == ("NUM001", Severity.CRITICAL, 77)
    assert "is NaN in its newest 43 values" in finding.summary


def table(broken: str, num_broken: int, header: str = "epoch   train      valid     time") -> str:
    rows = [f"{n:5}   {4 / n:.4f}   {5 / n:.4f}   3.2s" for n in range(1, 12)]
    rows += [f"{n:5}   {broken}   3.2s" for n in range(12, 12 + num_broken)]
    return "\n".join([header, *rows, ""])


def test_the_training_column_of_a_bare_table_is_told_once_it_stays_nan() -> None:
    (finding,) = diagnose_whole(table("nan   nan", 18)).findings
    assert (finding.rule, finding.evidence[0].line) == ("NUM001", 13)


@pytest.mark.parametrize(
    "log",
    [
        table("nan   nan", 4),
        table("0.3   nan", 18),
        table("nan   nan", 18, "epoch   a      b     time"),
        "epoch   train   valid\n" + "".join(f"{n}   nan   0.5\n" for n in range(18)),
        "step 1 cost = nan\n" * 4,
        "step 1 cost = nan\n" * 9 + "step 2 cost = 0.5\n",
        "step 1 loss = 0.5 cost = nan\n" * 9,
        "epoch 1 validation cost = nan\n" * 9,
        "step 1 best_cost: nan, val_objective=nan\n" * 9,
        "the objective: nan values are skipped, acc 0.5\n" * 2,
        "step 1 speedup = nan, opportunity cost-benefit=nan\n" * 9,
    ],
)
def test_an_objective_of_another_name_is_no_alarm_unless_it_stays_nan(log: str) -> None:
    assert causes(diagnose_whole(log)) == []


def test_a_log_that_recovered_from_one_bad_value_is_silent() -> None:
    assert not diagnose_log("loss: 2.3\nloss: nan\nloss: 2.2\nloss: 2.1\n").findings


def test_a_log_gives_the_line_and_the_last_finite_loss() -> None:
    finding = diagnose_log("loss: 2.5\nloss: 2.25\nloss: nan\nloss: nan\n").findings[0]
    assert (finding.evidence[0].file, finding.evidence[0].line) == ("train.log", 3)
    assert "2.25" in finding.evidence[1].text


def vanishing(norm: float, losses: list[float], precision: str = "fp32") -> list[tuple[str, str]]:
    launched = run({"precision": precision})
    found = judge(steps(losses, grad_norm=norm), run=launched).findings
    return [(finding.rule, finding.cause) for finding in found if finding.rule == "NUM009"]


def test_vanishing_gradients_under_fp16_are_reported_as_fp16_underflow() -> None:
    assert vanishing(0.0, [2.3] * 150) == [("NUM009", "vanishing_gradients")]
    assert vanishing(1e-8, [2.3] * 150, "fp16") == [("NUM009", "fp16_underflow")]


def test_vanishing_gradients_are_seen_if_only_some_steps_have_a_norm() -> None:
    records = [
        replace(step, grad_norm=step.grad_norm if place % 2 == 0 else None)
        for place, step in enumerate(steps([2.3] * 300, grad_norm=0.0))
    ]
    assert "NUM009" in {finding.rule for finding in judge(records, run=run({})).findings}


def test_small_gradients_of_a_loss_that_falls_or_is_low_are_convergence() -> None:
    assert not vanishing(1e-8, [2.3 / (1 + number / 50) for number in range(150)])
    assert not vanishing(1e-8, [1e-5] * 150)
    assert not vanishing(1e-3, [2.3] * 150)
    assert not vanishing(1e-8, [2.3] * 50)
    assert not vanishing(0.0, [2.3] * 15)


def test_norms_of_exactly_zero_need_few_steps() -> None:
    assert vanishing(0.0, [2.3] * 25) == [("NUM009", "vanishing_gradients")]


FALLING = "".join(f"step {step} loss: {2 / (step + 1):.3f}\n" for step in range(80))
MONITORED = (
    "Monitored metric val_loss = nan is not finite. Previous best value was 0.5. Signaling Trainer to stop.\n"
)


def test_a_validation_loss_that_stops_the_trainer_is_not_told_as_the_training_loss() -> None:
    (finding,) = diagnose_whole(FALLING + MONITORED).findings
    assert (finding.rule, finding.severity) == ("NUM001", Severity.WARNING)
    assert finding.summary == (
        "val_loss is not finite, and the trainer stopped early; the training loss is finite"
    )
    assert "held-out samples" in finding.fixes[0].title
    (unknown,) = diagnose_whole(MONITORED).findings
    assert (unknown.severity, unknown.summary) == (
        Severity.CRITICAL,
        "val_loss is not finite, and the trainer stopped early",
    )
    broken = "".join(f"step {step} loss: nan\n" for step in range(5))
    assert "The training loss is NaN" in diagnose_whole(broken + MONITORED).findings[0].summary


def test_a_trial_that_stopped_at_a_nan_is_no_finding_if_the_program_trains_on() -> None:
    stopped = "trial 1\nstep 1 loss: 3.2\nLoss is nan, stopping training\n"
    assert causes(diagnose_whole(stopped)) == ["nan_loss"]
    assert causes(diagnose_whole(f"{stopped}trial 2\n{FALLING}")) == []


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("Loss is nan, stopping training", "The training loss is NaN (first in line"),
        (
            "RuntimeError: The total norm of order 2.0 for gradients from `parameters` is non-finite, so it "
            "cannot be clipped.",
            "The gradients are not finite, and the program stopped",
        ),
        (
            "RuntimeError: Function 'MulBackward0' returned nan values in its 0th output.",
            "The gradients are not finite, and the program stopped",
        ),
        (
            "RuntimeError: probability tensor contains either `inf`, `nan` or element < 0",
            "A value of the model is not finite, and the program stopped",
        ),
    ],
)
def test_only_a_line_about_the_loss_is_told_as_the_loss(line: str, words: str) -> None:
    finding = diagnose_whole(f"step 1 loss: 2.0\n{line}\n").findings[0]
    assert finding.rule == "NUM001"
    assert finding.summary.startswith(words)
