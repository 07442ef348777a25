"""A running job that is silent: against its own rhythm a finding, without one no health."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coach.analysis.judging.no_finding import Look, look_of, meaning_of
from coach.lookback.history import History
from coach.model.judging.finding import Diagnosis, Finding
from coach.model.slurm.cluster import Job
from coach.model.snapshot import TargetSnapshot
from coach.model.training.metrics import Step
from coach.model.training.telemetry import HostSample
from coach.rules.engine import Engine
from coach.rules.registry import build
from tests.rules.examples import scan, tail_of
from tests.rules.test_telemetry import hosts

STARTED_S, STEPS_S = 1000.0, 100.0
"""The job prints two hundred steps in a hundred seconds."""
LINES = [f"step {step} loss {1 / (1 + step):.3f}" for step in range(200)]
FAILED = "srun: error: node1: task 1: Exited with exit code 3"


def judged(
    silent_s: float,
    *more: str,
    samples: list[HostSample] | None = None,
    num_steps: int = 200,
    started_s: float = STARTED_S,
    **tail: object,
) -> Diagnosis:
    text = "\n".join([*LINES[:num_steps], *more]) + "\n"
    now_s = STARTED_S + STEPS_S + silent_s
    times = (3, 0, 7200, STARTED_S, started_s, None)
    job = Job("17", "mine", "ada", "RUNNING", None, "gpu", "node1", 1, 2, 0, *times)
    log = replace(tail_of(text), written_s=STARTED_S + STEPS_S, **tail)  # type: ignore[arg-type]
    history = History()
    history.add_steps(Step(0, step, None, loss=1 / (1 + step)) for step in range(num_steps))
    history.add_samples(samples or [])
    snapshot = TargetSnapshot("17", now_s, job=job, log_hits=scan(text), log_tails=(log,))
    return Engine(build()).diagnose(snapshot, history)


def hang(diagnosis: Diagnosis) -> Finding | None:
    return next((each for each in diagnosis.findings if each.rule == "DST007"), None)


def idle(silent_s: float) -> list[HostSample]:
    now_s = int(STARTED_S + STEPS_S + silent_s)
    return hosts(200, now_s - 200.0, cpu_pct=0.2)


def test_a_silence_of_many_usual_pauses_is_told_with_the_stacks_as_the_next_step() -> None:
    diagnosis = judged(840.0)
    finding = hang(diagnosis)
    assert finding is not None
    assert finding.severity.word == "info"
    assert finding.summary == "No output for 14 min, 1,680 times its usual pause"
    assert finding.fixes[0].command == "coach stacks 17"
    assert look_of(diagnosis) is Look.SILENT


@pytest.mark.parametrize(
    "diagnosis",
    [
        judged(840.0, num_steps=5),
        judged(840.0, is_torn=True),
        judged(840.0, size_bytes=8192),
        judged(840.0, "Running evaluation ..."),
        judged(840.0, "Saving the checkpoint"),
        judged(840.0, "Compiling the model"),
        judged(840.0, "batch 200/200"),
        judged(840.0, longest_pause_s=400.0),
        judged(400.0),
    ],
    ids=[
        "few steps",
        "torn",
        "buffer",
        "evaluation",
        "checkpoint",
        "compile",
        "epoch's end",
        "pauses",
        "short",
    ],
)
def test_a_silence_that_may_be_usual_is_no_finding_and_no_health(diagnosis: Diagnosis) -> None:
    assert hang(diagnosis) is None
    assert look_of(diagnosis) is Look.SILENT
    assert meaning_of(diagnosis).startswith("silent: no output for ")


def test_the_time_in_the_queue_after_a_requeue_is_no_silence() -> None:
    assert hang(judged(7200.0, started_s=STARTED_S + 7200.0)) is None
    again = judged(7200.0, started_s=STARTED_S + 6700.0)
    assert hang(again) is None
    assert meaning_of(again).startswith("silent: no output for 10 min")


@pytest.mark.parametrize("diagnosis", [judged(60.0), judged(840.0, longest_pause_s=800.0)])
def test_a_pause_that_this_program_often_makes_is_healthy(diagnosis: Diagnosis) -> None:
    assert not diagnosis.findings
    assert look_of(diagnosis) is Look.HEALTHY


def test_a_silence_without_any_cpu_is_a_warning() -> None:
    finding = hang(judged(840.0, samples=idle(840.0)))
    assert finding is not None
    assert finding.severity.word == "warning"
    assert "CPUs 0 %" in finding.summary


def test_tasks_that_outlive_a_failed_one_and_print_nothing_wait_for_it() -> None:
    finding = hang(judged(360.0, FAILED))
    assert finding is not None
    assert finding.severity.word == "warning"
    assert "a task of srun failed" in finding.summary
    assert finding.evidence[0].text == FAILED
    assert hang(judged(60.0, FAILED)) is None


def test_steps_of_a_metrics_file_without_times_are_no_silence_of_their_log() -> None:
    times = (3, 0, 7200, STARTED_S, STARTED_S, None)
    job = Job("17", "mine", "ada", "RUNNING", None, "gpu", "node1", 1, 2, 0, *times)
    log = replace(tail_of("writing metrics.csv\n"), written_s=STARTED_S)
    history = History()
    history.add_steps(Step(0, step, None, loss=1 / (1 + step)) for step in range(200))
    snapshot = TargetSnapshot("17", STARTED_S + 900.0, job=job, log_tails=(log,))
    diagnosis = Engine(build()).diagnose(snapshot, history)
    assert hang(diagnosis) is None
    assert look_of(diagnosis) is Look.HEALTHY
