"""A loss that stays at its first value: told where nothing is learned, left alone where that is as it should
be."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import pytest

from coach.model.judging.finding import Diagnosis, Finding, Severity
from tests.rules.examples import diagnose_whole, judge, run, steps

NUM_VALUES = 400


def noisy(level: float, sigma: float, seed: int = 0, count: int = NUM_VALUES) -> list[float]:
    chance = random.Random(seed)
    return [level + chance.gauss(0, sigma) for _ in range(count)]


def falling(level: float, by: float, sigma: float) -> list[float]:
    return [value - by * number / NUM_VALUES for number, value in enumerate(noisy(level, sigma))]


def log_of(losses: Iterable[float], line: str = "step {step} loss: {loss:.4f}", first: int = 0) -> str:
    return "".join(
        line.format(step=first + 10 * number, loss=loss, epoch=1 + number // 50, number=number) + "\n"
        for number, loss in enumerate(losses)
    )


def told(diagnosis: Diagnosis) -> list[Finding]:
    return [finding for finding in diagnosis.findings if finding.rule == "NUM008"]


@pytest.mark.parametrize("level", [3.912, 0.6122, 41.07])
def test_a_loss_that_is_the_same_in_every_value_is_a_warning(level: float) -> None:
    same = noisy(level, 0.0002 * level)
    (in_log,) = told(diagnose_whole(log_of(same)))
    (in_metrics,) = told(judge(steps(same * 2)))
    assert in_log.severity is in_metrics.severity is Severity.WARNING
    assert in_log.cause == in_metrics.cause == "not_learning"
    assert in_log.summary.endswith("from its first value to its last: nothing is learned")
    assert in_log.evidence[0].line == 1
    assert [fix.title for fix in in_log.fixes] == [
        "Overfit a single batch first; if that fails, check labels, frozen parameters and the optimizer's "
        "parameters"
    ]


def test_noise_around_the_first_value_is_a_remark() -> None:
    for text in (log_of(noisy(3.9, 0.04)), log_of(noisy(3.9, 0.04), "Epoch {epoch} loss: {loss:.4f}")):
        (finding,) = told(diagnose_whole(text))
        assert finding.severity is Severity.INFO
        assert finding.summary.startswith("The training loss is 3.89")
        assert finding.summary.endswith("its last: it has not fallen by more than its noise")


def test_means_of_many_steps_are_not_taken_for_the_same_value() -> None:
    (finding,) = told(judge(steps(noisy(3.9, 0.02, count=40_000))))
    assert finding.severity is Severity.INFO


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_never_finite_is_for_another_rule(loss: float) -> None:
    diagnosis = judge(steps([loss] * 700))
    assert not told(diagnosis)
    assert not [gap for gap in diagnosis.not_measured if gap.what.startswith("rule ")]


LOOK_ALIKES = {
    "a warm-up": log_of(noisy(3.9, 0.001), "step {step} loss: {loss:.4f} lr: {number}.5e-07"),
    "a short course": log_of(noisy(3.9, 0.001, count=49)),
    "a plateau late in training": log_of([4.2, 4.1, 4.0, *noisy(3.9, 0.001)]),
    "a plateau after a fall within the first log interval": log_of([4.4, *noisy(3.9, 0.02)]),
    "a resumed training": log_of(noisy(3.9, 0.001), first=52_000),
    "a resumed epoch": log_of(noisy(3.9, 0.001), "{{'loss': {loss:.4f}, 'epoch': 7.{number:03d}}}"),
    "printed rounded": log_of(noisy(3.9, 0.001), "step {step} loss: {loss:.1f}"),
    "an actor's loss": log_of(noisy(3.9, 0.001), "step {step} loss: {loss:.4f} reward: 21.5"),
    "two adversaries": log_of(noisy(3.9, 0.001), "step {step} loss: {loss:.4f} loss_d: 0.6931"),
    "a loss that is learned down to 0": log_of(2.3 * 0.9**number for number in range(NUM_VALUES)),
    "a few values of 0": log_of([*noisy(2.3, 0.5), *[0.0] * 9]),
    "a loss below 0": log_of(noisy(-3.9, 0.001)),
    "noise that may hide a fall": log_of(noisy(1.9, 0.6)),
    "a slow fall": log_of(falling(2.1, 0.06, 0.02)),
    "a slow fall in few digits": log_of(falling(2.1, 0.06, 0.001), "step {step} loss: {loss:.2f}"),
    "a wave": log_of([3.9 + 0.3 * math.sin(number / 30) for number in range(NUM_VALUES)]),
    "a mean over all steps so far": log_of(3.0 + 1.0 / number for number in range(1, NUM_VALUES)),
    "no counter": log_of(noisy(3.9, 0.001), "loss: {loss:.4f}"),
}


@pytest.mark.parametrize("name", LOOK_ALIKES)
def test_a_flat_curve_with_a_good_reason_is_left_alone(name: str) -> None:
    assert not told(diagnose_whole(LOOK_ALIKES[name]))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("curve", [lambda n: 2.3 * 0.999**n, lambda n: 2.3 - 0.02 * math.log1p(n)])
def test_a_loss_that_falls_slowly_is_learning(seed: int, curve: Callable[[int], float]) -> None:
    losses: Sequence[float] = [
        curve(number) + noise for number, noise in enumerate(noisy(0, 0.1, seed, 1200))
    ]
    assert not told(judge(steps(losses)))
    assert not told(diagnose_whole(log_of(losses)))


@pytest.mark.parametrize(("num_classes", "guesses"), [(10, True), (1000, False), (None, True)])
def test_a_number_of_classes_that_the_launch_names_is_the_only_one(
    num_classes: int | None, guesses: bool
) -> None:
    launched = run({} if num_classes is None else {"num_classes": num_classes})
    found = told(judge(steps(noisy(math.log(10), 0.002, count=800)), run=launched))
    assert ["guessing among 10 classes" in finding.summary for finding in found] == [guesses]


GUESS = noisy(math.log(10), 0.01, count=300)


@pytest.mark.parametrize(
    ("losses", "course"),
    [
        ([2.35, *GUESS], "stays at"),
        ([14.2, 9.1, 4.0, *GUESS], "fell from 14.2 to"),
        ([2.4, *[1.9] * 20, *GUESS], "rose from 1.9 to"),
    ],
)
def test_a_guess_says_from_where_the_loss_came(losses: list[float], course: str) -> None:
    (finding,) = told(diagnose_whole("num_classes=10\n" + log_of(losses)))
    ends = "" if course == "stays at" else " and stays there"
    assert finding.summary == f"The training loss {course} ln 10 = 2.303{ends}: guessing among 10 classes"


@pytest.mark.parametrize("losses", [[14.2, 9.1, 4.0, *GUESS], [0.9, 1.2, *GUESS]])
def test_a_flat_loss_is_no_guess_among_unknown_classes(losses: list[float]) -> None:
    assert not told(diagnose_whole(log_of(losses)))
    assert not told(judge(steps(losses + GUESS)))


def test_a_resumed_flat_loss_is_no_guess_among_unknown_classes() -> None:
    assert not told(diagnose_whole(log_of(GUESS, first=52_000)))
    (finding,) = told(diagnose_whole("num_labels: 10\n" + log_of(GUESS, first=52_000)))
    assert "guessing among 10 classes" in finding.summary


def test_a_loss_that_collapsed_to_the_first_guess_is_told() -> None:
    (finding,) = told(diagnose_whole(log_of([2.31, *[1.1] * 20, *GUESS])))
    assert "rose from 1.1 to ln 10 = 2.303 and stays there" in finding.summary


@pytest.mark.parametrize(
    ("losses", "words"),
    [([], "is 0 from its first value to its last"), ([2.4, 2.1], "falls from 2.1 to exactly 0")],
)
def test_a_loss_of_exactly_0_is_told_from_the_start_and_where_it_falls_at_once(
    losses: list[float], words: str
) -> None:
    losses = [*losses, *[0.0] * NUM_VALUES]
    for diagnosis in (
        diagnose_whole(log_of(losses)),
        judge(steps(losses * 2 if words[0] == "i" else losses)),
    ):
        (finding,) = told(diagnosis)
        assert (finding.severity, words in finding.summary) == (Severity.WARNING, True)


@pytest.mark.parametrize(
    ("classes", "level", "is_told"), [(10, 0.1, True), (10, 0.2, False), (0, 0.1, False)]
)
def test_accuracies_of_guessing_are_told_where_the_number_of_classes_is_known(
    classes: int, level: float, is_told: bool
) -> None:
    losses = [4.0 + 2.0 * 0.99**number for number in range(600)]
    series = [replace(step, accuracy=level + 0.004 * (step.step % 2)) for step in steps(losses)]
    found = told(judge(series, run=run({"num_classes": classes} if classes else {})))
    assert [finding.summary for finding in found] == [
        "The accuracy is about 0.1 in each of 600 values: guessing among 10 classes"
    ] * is_told
