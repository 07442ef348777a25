"""The first fix removes this fault, not another fault with the same symptom."""

from __future__ import annotations

import math

import pytest

from coach.model.training.metrics import Step
from coach.model.training.telemetry import HostSample
from tests.rules.examples import causes, diagnose_log, judge, run, steps

USUAL = {"lr": {"default": 0.01, "usual": [1e-4, 0.5]}}
LOST = [math.nan] * 3


def norms(*values: float) -> list[Step]:
    """Steps with these gradient norms, and then lost ones."""
    trained = [Step(0, n, 1000.0 + n, loss=2.0, grad_norm=norm) for n, norm in enumerate(values, 1)]
    return [*trained, *(Step(0, len(values) + n, 1100.0 + n, loss=math.nan) for n in (1, 2, 3))]


def test_a_nan_out_of_ordinary_gradients_is_looked_for_in_its_samples_first() -> None:
    launched = run({"lr": 0.1, "warmup_steps": 0}, parameter_info=USUAL)
    first, second = judge(norms(2.0, 2.4, 1.9, 2.2, 2.1, 2.6), run=launched).findings[0].fixes
    assert "samples of step 7" in first.title
    assert not first.changes
    assert second.changes == {"lr": 0.01, "warmup_steps": 100}


@pytest.mark.parametrize("growing", [(2.0, 2.4, 5.0, 20.0, 90.0, 700.0), (2.0, 2.1)])
def test_a_nan_that_grew_or_came_too_early_to_tell_is_mended_by_a_lower_rate(
    growing: tuple[float, ...],
) -> None:
    launched = run({"lr": 0.1, "warmup_steps": 0}, parameter_info=USUAL)
    assert judge(norms(*growing), run=launched).findings[0].fixes[0].changes["lr"] == 0.01


def test_an_unusual_rate_is_the_cause_whatever_the_gradients_were() -> None:
    launched = run({"lr": 1e3}, parameter_info=USUAL)
    found = judge(norms(2.0, 2.4, 1.9, 2.2, 2.1, 2.6), run=launched).findings[0]
    assert found.fixes[0].changes == {"lr": 0.01}


@pytest.mark.parametrize(
    ("device", "is_offered"),
    [
        ({"type": "cuda", "compute_capability": 9.0}, True),
        ({"type": "cpu"}, True),
        ({"type": "cuda", "compute_capability": 7.0}, False),
        ({"type": "cuda"}, False),
    ],
)
def test_a_nan_in_fp16_is_mended_by_the_range_of_bf16_where_the_device_has_it(
    device: dict[str, object], is_offered: bool
) -> None:
    launched = run({"lr": 0.001, "precision": "fp16"}, parameter_info=USUAL, device=device)
    fixes = judge(steps([2.3, *LOST]), run=launched).findings[0].fixes
    assert (fixes[0].changes == {"precision": "bf16"}) is is_offered
    assert fixes[0].changes_learning
    assert any("precision" in fix.changes for fix in fixes) is is_offered


def test_a_divergence_of_a_run_of_ours_has_a_fix_that_can_be_launched() -> None:
    launched = run({"lr": 0.4, "warmup_steps": 0}, parameter_info=USUAL)
    rising = [5.5, 5.2, 5.0, 4.8, 4.6, 5.0, 20.0, 60.0, 150.0, 300.0, 800.0, 900.0]
    found = judge(steps(rising), run=launched).findings[0]
    assert found.cause == "loss_divergence"
    assert found.fixes[0].changes == {"lr": 0.13, "warmup_steps": 100}
    assert found.fixes[0].changes_learning


def test_a_loss_that_left_its_course_in_the_first_step_is_a_divergence() -> None:
    launched = run({"lr": 1000.0, "warmup_steps": 0}, parameter_info=USUAL)
    exploded = [2.3, 1.1e13, 1.6e12, 6e11, 3e10, *(4000.0 / n for n in range(1, 60))]
    found = judge(steps(exploded), run=launched).findings[0]
    assert (found.rule, found.cause) == ("NUM006", "loss_divergence")
    assert found.fixes[0].changes == {"lr": 0.01}
    assert not judge(steps([2.3, 900.0, *(4000.0 / n for n in range(1, 400))]), run=launched).findings
    assert not judge(steps([2.3, *(4.0 + n % 5 for n in range(60))]), run=launched).findings
    assert not judge(steps([2.3, *[900.0] * 15]), run=launched).findings


@pytest.mark.parametrize(("pace", "is_leak"), [(50.0, True), (0.0, False)])
def test_memory_that_grew_to_the_end_is_a_leak_that_more_memory_does_not_cure(
    pace: float, is_leak: bool
) -> None:
    launched = run({"num_workers": 2}, {"mem": "3G"}, state="OUT_OF_MEMORY")
    samples = [HostSample("node1", 1000.0 + n, memory_used_mib=1500.0 + pace * n) for n in range(30)]
    found = judge(steps([2.0] * 300), samples, launched).findings[0]
    assert found.cause == "host_oom"
    assert bool(found.fixes[0].changes) is not is_leak
    assert any("growing to the end" in item.text for item in found.evidence) is is_leak


def test_a_shared_memory_that_is_too_small_is_not_needed_without_workers() -> None:
    line = (
        "RuntimeError: unable to allocate shared memory(shm) for file </torch_1_2_0>: No space left on "
        "device (28)"
    )
    found = diagnose_log(line, run({"num_workers": 2}, state="FAILED")).findings[0]
    assert found.cause == "shm_bus_error"
    assert found.fixes[0].changes == {"num_workers": 0}


def test_a_key_that_deepspeed_does_not_know_is_an_error_of_its_configuration() -> None:
    line = "error: configuration: DeepSpeed does not know zero_optimisation (did you mean zero_optimization?)"
    assert causes(diagnose_log(line, run(state="FAILED"))) == ["deepspeed_config_error"]
