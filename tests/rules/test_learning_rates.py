"""Learning rates that are used up, or that a warm-up does not move: told from metrics and from logs, and left
alone where a schedule does as it was planned."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from coach.model.judging.finding import Finding, Severity
from tests.rules.examples import diagnose_whole, judge, run, steps

NUM_STEPS = 180
TRANSFORMERS = "{{'loss': {loss:.4f}, 'learning_rate': {rate!r}, 'epoch': {epoch}}}"
PLAIN = "step {step} loss: {loss:.4f} lr: {rate:.3e}"


def learned(share: float) -> float:
    """A loss that falls for half of the training."""
    return 0.4 + 2.0 * math.exp(-12 * min(share, 0.5)) + 0.001 * math.sin(1000 * share)


def printed(rate: Callable[[float], float], line: str = PLAIN, count: int = NUM_STEPS) -> str:
    """A log with a learning rate that is a function of the finished share of the steps."""
    return "".join(
        line.format(
            step=number, loss=learned(number / count), rate=rate(number / count), epoch=3 * number / count
        )
        + "\n"
        for number in range(1, count + 1)
    )


def told(rule: str, text: str) -> list[Finding]:
    return [finding for finding in diagnose_whole(text).findings if finding.rule == rule]


def linear(until: float) -> Callable[[float], float]:
    return lambda share: max(0.0, 5e-5 * (1 - share / until))


@pytest.mark.parametrize("line", [PLAIN, TRANSFORMERS])
def test_a_learning_rate_of_0_for_the_last_third_is_found_in_a_running_log(line: str) -> None:
    (finding,) = told("NUM011", printed(linear(0.66), line))
    assert (finding.cause, finding.severity) == ("lr_decayed_early", Severity.WARNING)
    assert finding.summary.startswith("The learning rate was 0 for the last 3")
    assert [item.line is not None for item in finding.evidence] == [True, True]
    assert [fix.title for fix in finding.fixes] == ["Give the scheduler the real number of optimizer steps"]


def test_a_learning_rate_of_0_is_reported_while_the_training_goes_on() -> None:
    course = [
        replace(step, lr=linear(0.6)(step.step / NUM_STEPS))
        for step in steps([learned(number / NUM_STEPS) for number in range(NUM_STEPS)])
    ]
    found = [f.rule for f in judge(course, run=run()).findings]
    assert found == ["NUM011"]


DECAYS = {
    "linear to the end": printed(linear(1.0), TRANSFORMERS),
    "cosine to the end": printed(lambda share: 5e-5 * (1 + math.cos(math.pi * share)) / 2),
    "constant": printed(lambda share: 1e-3),
    "a step decay in few digits": printed(
        lambda share: 0.1 if share < 0.5 else 0.01, "step {step} loss: {loss:.4f} lr: {rate:.1f}"
    ),
    "warm restarts": printed(lambda share: 1e-3 * (1 - (5 * share) % 1)),
    "a rate of a log without digits": printed(linear(0.5), "step {step} loss: {loss:.4f} lr: {rate:.5f}"),
    "a hundredth of the peak while it runs": printed(lambda share: 1e-3 if share < 0.5 else 1e-6),
    "a short course": printed(linear(0.5), count=45),
}


@pytest.mark.parametrize("name", DECAYS)
def test_a_schedule_that_ends_with_the_training_is_left_alone(name: str) -> None:
    assert not told("NUM011", DECAYS[name])


def test_a_loss_that_still_falls_needs_no_rate_that_is_told() -> None:
    lines: Iterable[str] = (
        f"step {number} loss: {3 - number / 100:.4f} lr: {linear(0.5)(number / NUM_STEPS):.3e}\n"
        for number in range(1, NUM_STEPS + 1)
    )
    assert not told("NUM011", "".join(lines))


def unstepped(
    rate: float, line: str = PLAIN, said: str = "warmup_steps: 100\n", count: int = NUM_STEPS
) -> str:
    return said + printed(lambda share: rate, line, count)


def test_a_warm_up_that_never_raises_the_rate_is_a_warning_where_the_rate_asked_for_is_known() -> None:
    course = [
        replace(step, lr=5e-4) for step in steps([learned(number / NUM_STEPS) for number in range(NUM_STEPS)])
    ]
    (finding,) = judge(course, run=run({"warmup_steps": 100, "lr": 0.05})).findings
    assert (finding.rule, finding.cause, finding.severity) == ("NUM008", "lr_never_moves", Severity.WARNING)
    assert finding.summary == (
        "The learning rate stays at 0.0005 through a warm-up of 100 steps and after it: the schedule is "
        "never stepped"
    )
    assert [evidence.value for evidence in finding.evidence[1:]] == [NUM_STEPS, 0.05]
    assert not judge(course, run=run({"warmup_steps": 0, "lr": 0.05})).findings
    assert not judge(course, run=run({"lr": 0.05})).findings


def test_a_warm_up_that_a_log_names_is_info_without_the_rate_asked_for() -> None:
    (finding,) = told("NUM008", unstepped(5e-4))
    assert (finding.cause, finding.severity) == ("lr_never_moves", Severity.INFO)


WARM = {
    "it rises": "warmup_steps: 100\n" + printed(lambda share: 1e-3 * min(1.0, 1.8 * share)),
    "the training ends within it": unstepped(5e-4, count=90),
    "no warm-up is named": unstepped(5e-4, said=""),
    "a warm-up of no steps": unstepped(5e-4, said="warmup_steps=0\n"),
    "a counter of epochs": unstepped(5e-4, "epoch {step} loss: {loss:.4f} lr: {rate:.3e}"),
    "it is resumed behind it": "warmup_steps: 100\n"
    + "".join(printed(lambda share: 1e-3).splitlines(keepends=True)[110:]),
}


@pytest.mark.parametrize("name", WARM)
def test_a_rate_that_a_warm_up_moves_or_need_not_move_is_left_alone(name: str) -> None:
    assert not told("NUM008", WARM[name])


def test_a_rate_of_0_that_the_launch_asks_for_counts_where_the_program_tells_none() -> None:
    flat = [2.0 + 0.01 * math.sin(7 * step) for step in range(40)]
    (finding,) = judge(steps(flat), run=run({"lr": 0.0})).findings
    assert finding.rule == "NUM008"
    assert "asks for a learning rate of 0" in finding.summary
    assert not judge(steps(flat), run=run({"lr": 0.1})).findings
    told_other = judge(steps(flat, lr=0.1), run=run({"lr": 0.0}))
    assert not [each for each in told_other.findings if "learning rate of 0" in each.summary]
    falls = [2.0 * 0.97**step for step in range(40)]
    assert not judge(steps(falls), run=run({"lr": 0.0})).findings
