"""Not looked at, too early, unknown, and healthy are different facts; one function distinguishes them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coach.analysis.judging.no_finding import Look, look_of, meaning_of, why_no_fix
from coach.analysis.teaching.withheld_findings import ANSWER_FIRST, as_told
from coach.lookback.history import History
from coach.model.judging.finding import SAMPLER, Diagnosis, Finding, NotMeasured, Severity, Subject, Verdict
from coach.model.slurm.cluster import Job
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogTail
from coach.rules.engine import Engine
from tests.rules.examples import run, scan

JUDGED = Diagnosis("17", "COMPLETED", (), ())


def found(severity: Severity) -> Finding:
    return Finding("GPU003", "x", "x", severity, 0.9, True, None, Subject(), "x", (), (), None)


@pytest.mark.parametrize(
    ("diagnosis", "look"),
    [
        (None, Look.NOT_LOOKED_AT),
        (replace(JUDGED, state="PENDING"), Look.NOT_LOOKED_AT),
        (JUDGED, Look.UNKNOWN),
        (replace(JUDGED, health=Verdict.HEALTHY), Look.HEALTHY),
        (replace(JUDGED, health=Verdict.HEALTHY, findings=(found(Severity.INFO),)), Look.HEALTHY),
        (replace(JUDGED, health=Verdict.HEALTHY, findings=(found(Severity.WARNING),)), Look.WENT_WRONG),
    ],
)
def test_each_diagnosis_has_one_word(diagnosis: Diagnosis | None, look: Look) -> None:
    assert look_of(diagnosis) is look


def test_an_unread_job_is_not_called_free_of_findings() -> None:
    assert why_no_fix(None) == "not checked yet: no fix is known"
    assert why_no_fix(replace(JUDGED, state="PENDING")).startswith("not checked: it has not started")
    assert why_no_fix(JUDGED) == "unknown: no finding, so no fix"
    assert meaning_of(replace(JUDGED, health=Verdict.HEALTHY)).startswith("healthy")
    assert meaning_of(replace(JUDGED, ground="it ended as CANCELLED")).endswith("but it ended as CANCELLED")
    assert meaning_of(JUDGED) == "nothing wrong seen, but its loss is not known"
    early = replace(JUDGED, health=Verdict.TOO_EARLY)
    assert (look_of(early), meaning_of(early)) == (Look.TOO_EARLY, "too early: it has made too few steps")


def test_healthy_without_a_sampler_says_that_nothing_measured_the_speed() -> None:
    seen = replace(JUDGED, health=Verdict.HEALTHY)
    assert meaning_of(seen) == "healthy: no problem found in the measurements"
    unmeasured = replace(seen, not_measured=(NotMeasured(SAMPLER, "no sampler ran beside it", "start one"),))
    assert look_of(unmeasured) is Look.HEALTHY
    assert meaning_of(unmeasured) == (
        "healthy: no problem found in the measurements; its GPUs and CPUs were not measured"
    )


def test_the_word_of_an_unanswered_drill_gives_nothing_away() -> None:
    drilled = replace(run(), drill="slow", drill_answer=None)
    told = as_told(replace(JUDGED, health=Verdict.HEALTHY), drilled, {"slow"})
    assert look_of(told) is Look.UNKNOWN
    assert why_no_fix(told) == ANSWER_FIRST


def judged(state: str | None, log: str) -> Look:
    lines = tuple(log.splitlines())
    job = (
        Job("17", "mine", "ada", state, None, "gpu", "n", 1, 2, 0, 3, 0, 600, 1.0, 2.0, 5.0)
        if state
        else None
    )
    tails = (LogTail("train.log", 1, lines, len(log), len(lines)),) if lines else ()
    snapshot = TargetSnapshot("17", 5.0, job=job, log_hits=scan(log), log_tails=tails)
    return look_of(Engine(()).diagnose(snapshot, History()))


FALLS = "\n".join(f"step {step} loss: {2.3 - step / 100}" for step in range(40))
FLAT = "\n".join(f"step {step} loss: {2.3 + (step * 7 % 5) / 100}" for step in range(40))

WAITS = "\n".join(f"step {step} loss {2.3 - step / 20} data_time 0.86 step_time 1.0" for step in range(17))


@pytest.mark.parametrize(
    ("state", "log", "look"),
    [
        ("COMPLETED", "hello", Look.HEALTHY),
        ("COMPLETED", "", Look.UNKNOWN),
        ("COMPLETED", "2026-01-10 ERROR no mail was sent", Look.UNKNOWN),
        ("COMPLETED", "step 3 loss: 0.25", Look.TOO_EARLY),
        ("COMPLETED", FALLS, Look.HEALTHY),
        ("COMPLETED", FLAT, Look.UNKNOWN),
        ("PENDING", "", Look.NOT_LOOKED_AT),
        ("RUNNING", "hello", Look.TOO_EARLY),
        ("RUNNING", "step 3 loss: 0.25", Look.TOO_EARLY),
        ("RUNNING", WAITS, Look.TOO_EARLY),
        ("RUNNING", FALLS, Look.HEALTHY),
        ("RUNNING", FLAT, Look.UNKNOWN),
        ("RUNNING", f"{FALLS}\nstep 40 critic loss: 2", Look.UNKNOWN),
        ("CANCELLED", FALLS, Look.UNKNOWN),
        ("PREEMPTED", FALLS, Look.UNKNOWN),
        ("FAILED", FALLS, Look.UNKNOWN),
        (None, "hello", Look.UNKNOWN),
        (None, "step 3 loss: 0.25", Look.TOO_EARLY),
        (None, "".join(f"epoch {epoch} loss: {1 / (epoch + 1)}\n" for epoch in range(4)), Look.HEALTHY),
        (None, FALLS, Look.HEALTHY),
        (None, "hello\nTraining finished", Look.HEALTHY),
    ],
)
def test_healthy_needs_a_ground(state: str | None, log: str, look: Look) -> None:
    assert judged(state, log) is look
