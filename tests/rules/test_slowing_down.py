"""Steps that take longer and longer, and paces that change for other reasons."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import accumulate

import pytest

from coach.model.judging.finding import Diagnosis, Severity
from coach.model.training.metrics import Step
from coach.model.training.run import Run
from tests.rules.examples import judge, run, steps
from tests.rules.recorded import diagnose
from tests.rules.test_telemetry import hosts, loud, only

NUM_STEPS = 1200
_Pace = Callable[[float], float]


def test_a_step_that_goes_through_all_earlier_outputs_is_found_by_its_pace() -> None:
    finding = only(diagnose("slowing-down"), "GPU017")
    assert finding.severity is Severity.WARNING
    assert finding.evidence[0].value >= 1.4
    assert finding.evidence[1].value < 0.1, "the loader has no part in it"
    assert not loud(diagnose("steady-pace"))


def paced(
    pace: _Pace,
    data: Callable[[float], float | None] = lambda share: 0.001,
    batch: _Pace = lambda share: 64,
    launched: Run | None = None,
    memory: _Pace | None = None,
    waiting: _Pace = lambda share: 0.0,
    own_cpu: _Pace = lambda share: 50.0,
) -> Diagnosis:
    """A training described by its step time, data wait and memory, each as a function of the finished
    share."""
    shares = [number / NUM_STEPS for number in range(NUM_STEPS)]
    times = list(accumulate(map(pace, shares), initial=1000.0))[1:]
    series = [
        Step(
            *(0, number, time_s),
            epoch=0,
            loss=1.0,
            step_time_s=pace(share),
            data_time_s=data(share),
            num_samples=round(batch(share)),
            num_samples_global=round(batch(share)),
        )
        for number, (share, time_s) in enumerate(zip(shares, times, strict=True), 1)
    ]
    used = memory or (lambda share: 9000.0)
    samples = hosts(
        100,
        interval_s=(times[-1] - 1000.0) / 100,
        memory_used_mib=lambda n: used(n / 100),
        cpu_pressure_pct=lambda n: waiting(n / 100),
        cpu_pct=lambda n: own_cpu(n / 100),
    )
    return judge(series, samples, launched or run(), now_s=times[-1])


def growing(share: float) -> float:
    return 0.2 * (1 + share)


def told(diagnosis: Diagnosis) -> list[Severity]:
    return [finding.severity for finding in diagnosis.findings if finding.rule == "GPU017"]


def test_the_fix_of_a_slowing_run_follows_the_quantity_that_grows_with_the_step() -> None:
    def first_fix(diagnosis: Diagnosis) -> str:
        return only(diagnosis, "GPU017").fixes[0].title

    assert first_fix(paced(growing)).startswith("Look for what each step does once more")
    assert "kept per step" in first_fix(paced(growing, memory=lambda share: 5000 * (1 + share)))
    assert "the loader keeps or reads again" in first_fix(paced(growing, data=lambda share: 0.2 * share))


def test_a_wait_for_data_that_no_log_printed_is_not_told_to_be_none() -> None:
    finding = only(paced(growing, data=lambda share: None), "GPU017")
    assert not any("waiting for data" in evidence.text for evidence in finding.evidence)
    assert any("the loader keeps or reads again" in fix.title for fix in finding.fixes)


def test_a_batch_that_grows_takes_no_part_in_the_growth_of_the_wait_for_data() -> None:
    diagnosis = paced(
        lambda share: growing(share) * (1 + 3 * share),
        data=lambda share: 0.02 * (1 + 3 * share),
        batch=lambda share: 64 * (1 + 3 * share),
    )
    assert only(diagnosis, "GPU017").evidence[1].value == 0.0


def test_other_programs_that_took_the_cpus_are_told_from_a_program_that_uses_more() -> None:
    finding = only(
        paced(growing, waiting=lambda share: 60 * share, own_cpu=lambda share: 90 - 40 * share), "GPU017"
    )
    assert finding.fixes[0].title == (
        "Find the other programs that took CPUs of node1 (`top` there, its jobs), or ask for the node alone "
        "(`--exclusive`)"
    )
    assert [evidence.text for evidence in finding.evidence[-2:]] == [
        "share of the time in which some task waited for a CPU of node1, by quarters: 8, 22, 37, 52 %",
        "use of the job's CPUs on node1, by quarters: 85, 75, 65, 55 %",
    ]
    for waiting, own_cpu in (
        (lambda share: 60 * share, lambda share: 80.0),
        (lambda share: 60.0, lambda share: 90 - 40 * share),
        (lambda share: 10 * share, lambda share: 90 - 40 * share),
    ):
        finding = only(paced(growing, waiting=waiting, own_cpu=own_cpu), "GPU017")
        assert "other programs" not in finding.fixes[0].title


def _noisy(share: float) -> float:
    return 0.2 * random.Random(share).lognormvariate(0, 0.4)


@pytest.mark.parametrize(
    "pace",
    [
        lambda share: 0.2,
        lambda share: 0.2 if share < 0.5 else 0.4,
        lambda share: 0.2 if share < 0.6 else 0.4,
        lambda share: 0.2 * (1.5 if 0.3 < share < 0.7 else 1),
        lambda share: 0.2 * (1 + 0.25 * share),
        lambda share: 0.2 * (2 if share < 0.08 else 1),
        lambda share: 0.4 - 0.2 * share,
        lambda share: 0.2 * (1 + 5 * share**8),
        _noisy,
    ],
    ids=["even", "neighbour", "late", "in-between", "little", "start", "faster", "end", "noisy"],
)
def test_a_pace_that_changed_once_varies_or_hardly_grows_is_silent(pace: _Pace) -> None:
    assert told(paced(pace)) == []


def test_a_batch_that_grows_makes_no_training_slow() -> None:
    assert told(paced(growing, batch=lambda share: 64 * (1 + share))) == []


def test_samples_sorted_by_length_may_explain_the_first_of_several_epochs() -> None:
    assert told(paced(growing)) == [Severity.WARNING]
    assert told(paced(growing, launched=run({"epochs": 3}))) == [Severity.INFO]


def test_a_short_run_is_too_short_to_tell() -> None:
    series = [
        step
        for number in range(1, 200)
        for step in steps([1.0], step_time_s=0.1 * (1 + number / 200), start_s=1000.0 + number)
    ]
    assert told(judge(series)) == []


@pytest.mark.parametrize(("stride", "found"), [(1, []), (5, [Severity.WARNING])])
def test_the_steps_between_two_printed_ones_count_as_time(stride: int, found: list[Severity]) -> None:
    printed = [
        Step(0, stride * number, 1000.0 + number, loss=1.0, step_time_s=0.07 + 0.003 * number)
        for number in range(120)
    ]
    assert told(judge(printed)) == found
