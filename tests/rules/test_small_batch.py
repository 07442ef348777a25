"""Steps with too little in them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from coach.model.judging.finding import Diagnosis, Severity
from coach.model.training.run import Run
from tests.rules.examples import gpu_samples, judge, run, steps
from tests.rules.recorded import diagnose
from tests.rules.test_telemetry import loud, only

INFO = {"batch_size": {"default": 64, "usual": [8, 4096]}}


def test_two_samples_a_step_are_reported_with_the_recipes_batch_as_the_fix() -> None:
    diagnosis = diagnose("small-batch")
    assert loud(diagnosis) == [("GPU011", Severity.WARNING)]
    fix = diagnosis.findings[0].fixes[0]
    assert (fix.changes, fix.changes_learning) == ({"batch_size": 64}, True)


def of(batch: int, accumulation: int = 1, step_s: float = 0.02, wait_s: float = 0.0005) -> Diagnosis:
    launched = run(
        {"batch_size": batch, "gradient_accumulation": accumulation}, parameter_info=INFO, state="COMPLETED"
    )
    return judge(steps([1.0] * 100, 0, step_s, wait_s, num_samples=batch * accumulation), run=launched)


def test_the_batch_that_counts_is_the_micro_batch() -> None:
    assert only(of(2, accumulation=16), "GPU011").evidence[0].value == 2


@pytest.mark.parametrize(
    "quiet",
    [lambda: of(8), lambda: of(2, step_s=0.4), lambda: of(2, wait_s=0.015)],
    ids=["usual", "long-steps", "waits-for-data"],
)
def test_a_batch_that_is_usual_or_large_enough_to_work_on_is_silent(quiet: Callable[[], Diagnosis]) -> None:
    assert "GPU011" not in [finding.rule for finding in quiet().findings]


def test_the_small_rest_at_the_end_of_each_epoch_makes_no_batch_small() -> None:
    launched = run({"batch_size": 8}, parameter_info=INFO, state="COMPLETED")
    course = [
        replace(step, num_samples=1 if step.step % 6 == 0 else 8)
        for step in steps([1.0] * 100, 0, 0.02, 0.0005)
    ]
    assert "GPU011" not in [finding.rule for finding in judge(course, run=launched).findings]


def on_gpu(busy_pct: float, launched: Run | None = None, **more: Any) -> Diagnosis:
    series = steps([1.0] * 6500, 0, 0.02, 0.0005, num_samples=64)
    return judge(series, gpu_samples([busy_pct] * 130, **more), launched, now_s=1130.0)


def test_a_gpu_that_waits_for_small_kernels_explains_its_low_utilization() -> None:
    findings = on_gpu(25.0, memory_used_mib=4000.0).findings
    assert [(f.rule, f.consequence_of) for f in findings] == [("GPU011", None), ("GPU003", "GPU011")]
    assert not loud(on_gpu(90.0, memory_used_mib=4000.0, power_w=300.0))
    assert "GPU011" not in [f.rule for f in on_gpu(25.0, memory_used_mib=60000.0).findings]


def test_a_recipe_with_a_model_too_small_for_the_gpu_gets_only_a_remark() -> None:
    launched = run({"batch_size": 64}, parameter_info=INFO)
    assert only(on_gpu(40.0, launched, memory_used_mib=4000.0), "GPU011").severity is Severity.INFO
