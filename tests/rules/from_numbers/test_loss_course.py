"""Curves of trainings that know nothing of coach, from files and from free text."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from coach.lookback.history import History
from coach.model.judging.finding import Diagnosis, Verdict
from coach.model.reading import MetricsChunk
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogTail
from coach.model.training.metrics import NAMES_EVENT, MetricEvent
from coach.rules.engine import Engine
from coach.rules.from_numbers.loss_course import are_adversaries, courses
from coach.rules.registry import build
from coach.sources.io import SystemIo
from coach.sources.logs.printed_metrics import PrintedNumbers
from coach.sources.metrics.foreign_metrics import ForeignMetricsSource
from tests.rules.examples import judge, run, scan, steps, tail_of

FOREIGN = Path(__file__).parents[2] / "recordings" / "foreign"
HEALTHY = sorted(path.name for path in FOREIGN.iterdir() if path.name.startswith("healthy-"))
ILL = {
    "nan-from-start": ["NUM002", "NUM001"],
    "gradient-not-finite": ["NUM003"],
    "loss-spikes": ["NUM007"],
    "gradients-vanish": ["NUM009"],
    "gradients-explode": ["NUM010"],
    "not-learning": ["NUM008"],
    "rate-decayed-early": ["NUM011"],
    "overfitting": ["NUM013"],
}

FRAMEWORKS = Path(__file__).parents[2] / "fixtures" / "foreign_metrics"
Row = dict[str, float]


def judged(name: str, state: str = "COMPLETED") -> Diagnosis:
    history = History()
    snapshot_events: list[MetricEvent] = []
    for reading in ForeignMetricsSource(SystemIo({}), name, lambda: [FOREIGN / name / "metrics.csv"]).poll():
        assert isinstance(reading.payload, MetricsChunk)
        history.add_steps(reading.payload.steps)
        snapshot_events += reading.payload.events
    assert history.ranks or "adversaries" in name
    snapshot = TargetSnapshot(name, None, run=run(state=state), events=tuple(snapshot_events))
    return Engine(build()).diagnose(snapshot, history)


def rows_of(name: str) -> list[Row]:
    with (FOREIGN / name / "metrics.csv").open() as file:
        return [{key: float(cell) for key, cell in row.items() if cell} for row in csv.DictReader(file)]


def rules_of(diagnosis: Diagnosis) -> list[str]:
    assert not [gap for gap in diagnosis.not_measured if gap.what.startswith("rule ")]
    return [finding.rule for finding in diagnosis.findings]


@pytest.mark.parametrize("name", sorted(ILL))
def test_a_training_that_goes_wrong_is_named_from_its_metrics_alone(name: str) -> None:
    diagnosis = judged(name)
    assert rules_of(diagnosis) == ILL[name]
    assert diagnosis.findings[0].is_primary
    assert all(item.value is not None for item in diagnosis.findings[0].evidence)


@pytest.mark.parametrize("name", HEALTHY)
@pytest.mark.parametrize("state", ["RUNNING", "COMPLETED"])
def test_noise_cosine_convergence_adversaries_and_rewards_stay_silent(name: str, state: str) -> None:
    assert rules_of(judged(name, state)) == []


def _loss(row: Row) -> float:
    return row.get("train_loss", row.get("loss", row.get("train/loss", math.nan)))


# Typed in the form of these frameworks' output; the numbers are of the recorded trainings.
STYLES: dict[str, Callable[[Row], str]] = {
    "plain": lambda row: f"step {row['step']:.0f} loss: {_loss(row):.4f}",
    "transformers": lambda row: (
        f"{{'loss': '{_loss(row):.4g}', 'grad_norm': '0.3', 'learning_rate': '0.05', 'epoch': "
        f"'{row['step'] / 9:.2f}'}}"
    ),
    "nanogpt": lambda row: f"iter {row['step']:.0f}: loss {_loss(row):.4f}, time 31.20ms, mfu 12.21%",
    "mmcv": lambda row: (
        "2026-11-21 04:00:00,000 - mmdet - INFO - "
        f"Epoch [1][{row['step']:.0f}/600]\tlr: 1.000e-02, eta: 0:10:00, time: 0.3, data_time: 0.01, loss: "
        f"{_loss(row):.4f}"
    ),
    "lightning": lambda row: (
        f"Epoch 0:  50%|#####     | {row['step']:.0f}/600 [00:10<00:10, 9.9it/s, v_num=1, "
        f"train_loss_step={_loss(row):.3f}]"
    ),
    "keras": lambda row: (
        f"{row['step']:.0f}/600 [====>.........] - ETA: 10s - loss: {_loss(row):.4f} - accuracy: 0.5000"
    ),
}


def said(name: str, style: str, extra: str = "") -> Diagnosis:
    lines = [STYLES[style](row) for row in rows_of(name)]
    text = "\n".join([extra, *lines, ""])
    tail = LogTail("train.log", 1, tuple(text.splitlines()), len(text), len(lines) + 1)
    snapshot = TargetSnapshot("train.log", None, log_hits=scan(text), log_tails=(tail,))
    return Engine(build()).diagnose(snapshot, History())


@pytest.mark.parametrize("style", STYLES)
def test_a_loss_that_is_not_finite_is_seen_in_any_framework_s_output(style: str) -> None:
    assert "NUM001" in rules_of(said("nan-from-start", style))


@pytest.mark.parametrize("style", ["plain", "nanogpt"])
def test_a_model_that_only_guesses_is_seen_in_its_log(style: str) -> None:
    assert rules_of(said("not-learning", style)) == ["NUM008"]


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_curves_stay_silent_in_any_framework_s_output(name: str, style: str) -> None:
    extra = {"healthy-adversaries": "discriminator: 321 parameters", "healthy-rewarded": "reward 0.1"}.get(
        name, ""
    )
    assert rules_of(said(name, style, extra)) == []


def test_the_course_of_transformers_log_is_that_of_its_state_file() -> None:
    state = json.loads((FRAMEWORKS / "transformers" / "checkpoint-40" / "trainer_state.json").read_bytes())
    told = [entry["loss"] for entry in state["log_history"] if "loss" in entry]
    hits = scan((FRAMEWORKS / "transformers.log").read_text())
    course = max(courses(TargetSnapshot("log", None, log_hits=hits), History()), key=len)
    assert [point.loss for point in course] == pytest.approx(told, rel=1e-3)
    assert len(told) == 20


def test_keras_and_nanogpt_evaluations_show_overfitting() -> None:
    keras = [
        f"Epoch {epoch}/9 - 1s - loss: {1 / epoch:.4f} - val_loss: {0.5 + abs(epoch - 3) / 5:.4f}\n"
        for epoch in range(1, 9)
    ]
    assert [finding.rule for finding in _log("".join(keras)).findings] == ["NUM013"]
    nanogpt = [
        f"step {250 * n}: train loss {2 / n:.4f}, val loss {1.5 + abs(n - 2) / 5:.4f}\n" for n in range(1, 8)
    ]
    assert [finding.rule for finding in _log("".join(nanogpt)).findings] == ["NUM013"]
    own = [line.replace("val loss", "Valid Loss:").replace("train loss", "Train Loss:") for line in nanogpt]
    assert [finding.rule for finding in _log("".join(own)).findings] == ["NUM013"]


def test_two_evaluations_above_the_best_are_no_overfitting_yet() -> None:
    losses = [0.9, 0.7, 0.5, 0.9, 0.9]
    log = "".join(f"epoch {n} loss: {1 / n:.4f} val_loss: {loss}\n" for n, loss in enumerate(losses, 1))
    assert not _log(log).findings


def test_a_converged_evaluation_that_varies_near_zero_is_no_overfitting() -> None:
    evaluated = [0.5, 0.1, 0.001, 0.002, 0.002, 0.003]
    log = "".join(f"epoch {n} loss: {2 / 9**n:.4g} val_loss: {loss}\n" for n, loss in enumerate(evaluated))
    assert not _log(log).findings


def test_exploding_gradients_are_found_in_the_lines_of_a_log() -> None:
    lines = [f"{{'loss': 11.{n}, 'grad_norm': {4e12 * 1.5**n}, 'epoch': 0.1}}\n" for n in range(9)]
    (finding,) = _with_numbers("".join(lines)).findings
    assert (finding.rule, finding.cause) == ("NUM010", "loss_divergence")
    assert not _with_numbers("".join(lines[:4])).findings


def test_gradients_that_grow_while_the_loss_falls_are_no_explosion() -> None:
    grown = "".join(f"step {n} loss: {4 / n:.4f} grad_norm: {4 * 1.1**n:.4g}\n" for n in range(1, 100))
    assert not _with_numbers(grown).findings
    stuck = "".join(f"step {n} loss: 4.1 grad_norm: {4 * 1.1**n:.4g}\n" for n in range(1, 100))
    assert [finding.rule for finding in _with_numbers(stuck).findings] == ["NUM010"]


@pytest.mark.parametrize("between", ["\n", " ppl 3\n"], ids=["other-line", "no-loss"])
def test_gradients_that_grow_are_no_explosion_if_the_loss_falls_elsewhere(between: str) -> None:
    name = "loss" if between == "\n" else "score"
    grown = (f"step {n} {name}: {4 / n:.4f}{between}grad_norm: {4 * 1.1**n:.4g}\n" for n in range(1, 100))
    assert not _with_numbers("".join(grown)).findings


def test_exploding_gradients_are_found_if_only_some_steps_measure_them() -> None:
    series = [
        replace(step, grad_norm=4 * 1.1**number if number % 5 == 0 else None)
        for number, step in enumerate(steps([4.1] * 304))
    ]
    (finding,) = judge(series, run=run(), now_s=None).findings
    assert (finding.rule, finding.evidence[0].text) == ("NUM010", "grad_norm of rank 0 at step 301")


def test_hostile_counters_and_names_break_no_rule() -> None:
    text = f"step 1 loss: 2.3\nloss: 2.2 step: {'9' * 5000}\n"
    events = tuple(MetricEvent(0, NAMES_EVENT, 1.0, 1, {"names": names}) for names in (None, 5))
    snapshot = TargetSnapshot("train.log", None, log_hits=scan(text), events=events)
    assert [len(course) for course in courses(snapshot, History())] == [2]
    assert not are_adversaries(snapshot)


def test_pauses_for_checkpoints_do_not_bend_a_curve() -> None:
    series = steps([2 / number for number in range(1, 200)])
    late = [step for step in series if step.step > 100]
    history = History()
    history.add_steps([step for step in series if step.step <= 100])
    history.add_steps(
        type(step)(step.rank, step.step, (step.time_s or 0) + 300, loss=step.loss) for step in late
    )
    diagnosis = Engine(build()).diagnose(TargetSnapshot("run", 5000.0, run=run()), history)
    assert not [rule for rule in rules_of(diagnosis) if rule.startswith("NUM")]


def _with_numbers(text: str) -> Diagnosis:
    """The diagnosis of a log of which the printed numbers are read too, as `coach check` does."""
    history = History()
    history.add_steps(PrintedNumbers().take(text.encode())[0])
    return Engine(build()).diagnose(TargetSnapshot("train.log", None, log_hits=scan(text)), history)


def _log(text: str) -> Diagnosis:
    return Engine(build()).diagnose(TargetSnapshot("train.log", None, log_hits=scan(text)), History())


def of_printed_log(*lines: str) -> Diagnosis:
    """The diagnosis of a whole log that ends well, with the numbers of its lines."""
    text = "\n".join((*lines, "Training complete.", ""))
    history = History()
    history.add_steps(PrintedNumbers().take(text.encode())[0])
    snapshot = TargetSnapshot("train.log", None, log_hits=scan(text), log_tails=(tail_of(text),))
    return Engine(build()).diagnose(snapshot, history)


@pytest.mark.parametrize(
    "line",
    [
        "step {0}/100 data 0.86s step 1.0s",
        "data_time: 0.9 batch_time: 1.0",
        "Epoch: [0][{0}/100] Time 1.00 (1.00) Data 0.90 (0.90)",
    ],
)
def test_waits_are_judged_in_a_log_without_a_loss(line: str) -> None:
    diagnosis = of_printed_log(*(line.format(number) for number in range(1, 101)))
    assert rules_of(diagnosis) == ["GPU005"]
    early = of_printed_log(*(line.format(number) for number in range(1, 11)))
    assert (early.verdict, early.findings) == (Verdict.TOO_EARLY, ())


RATES = {
    "deepspeed": "[2022-12-20 08:26:26,101] [INFO] [timer.py:197:stop] 0/{0}, RunningAvgSamplesPerSec=158.3, "
    "CurrSamplesPerSec=159.6, MemAllocated=1.75GB, MaxMemAllocated=2.6GB",
    "composer": "[batch={0}/500]:\n\t Train time/batch: {0}\n\t Train throughput/samples_per_sec: 502.3",
    "step times": "step {0} step_time: 0.41",
}


@pytest.mark.parametrize("program", RATES)
def test_a_rate_alone_is_no_ground_for_healthy(program: str) -> None:
    lines = [RATES[program].format(number) for number in range(1, 61)]
    diagnosis = of_printed_log(*lines)
    assert (diagnosis.verdict, diagnosis.findings) == (Verdict.UNKNOWN, ())
    assert "speed" in diagnosis.ground
    assert of_printed_log("no numbers here").verdict is Verdict.HEALTHY
