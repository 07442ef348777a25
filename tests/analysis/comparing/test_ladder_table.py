"""A ladder's table answers each claim of its document, and never one that its runs could not test."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coach.analysis.comparing.ladder_table import Climbed, Trial, ladder_table
from coach.analysis.comparing.speedup import Measured
from coach.analysis.comparing.steady_state import Estimate
from coach.analysis.comparing.sweep_table import Member
from coach.model.judging.finding import Finding, Severity, Subject
from coach.model.launching.ladder import RUNG, Ladder, Rung
from coach.model.launching.launch import SweepPoint
from coach.model.training.run import Run
from coach.sources.runs.run_files import parse_run

FIRST = Rung("baseline", "baseline", samples_per_s=(1000, 1200), source="slides")
DDP = Rung("ddp", "ddp", ranks=8, ratio=(6, 7))
NOISE = 10.0


def run(rung: Rung, number: int = 0) -> Run:
    record = {"started_time_s": 100.0, "ended_time_s": 460.0}
    record |= {"device": {"type": "cuda"}, "resources": {"num_nodes": 1, "gpus_per_node": rung.ranks or 1}}
    point = SweepPoint("group", RUNG, rung.name, number, 2)
    return replace(parse_run(record, f"/runs/{rung.name}-{number}"), sweep=point)


def trial(rung: Rung, rate: float | None, number: int = 0, **changes: object) -> Trial:
    throughput = None if rate is None else Estimate(rate, NOISE, 60)
    measured = Measured(
        rung.ranks or 1, throughput, Estimate(0.1, 0.001, 60), Estimate(0.001, 0.001, 60), None
    )
    own = changes.pop("run", run(rung, number))
    return own, replace(Member(own.run_id, rung.name, "COMPLETED", measured, None), **changes)


def waiting(share: float) -> Measured:
    return replace(trial(DDP, 2000.0)[1].measured, data_time=Estimate(0.1 * share, None, 60))


def found(cause: str, rule: str = "GPU005") -> Finding:
    return Finding(
        rule, cause, cause, Severity.WARNING, 1.0, True, None, Subject(), "Ranks wait", (), (), None
    )


def climbed(*trials: Trial, rungs: tuple[Rung, ...] = (FIRST, DDP), is_for_gpus: bool = True) -> Climbed:
    return ladder_table(Ladder("demos", "", rungs, is_for_gpus), trials)[-1]


def test_a_rung_is_held_against_the_first_one_and_the_one_before() -> None:
    amp = Rung("amp", "amp", ratio=(1.5, 2))
    rows = ladder_table(
        Ladder("demos", "", (FIRST, DDP, amp)), [trial(FIRST, 1100), trial(DDP, 7150), trial(amp, 1760)]
    )
    assert [row.over_first.ratio.value for row in rows if row.over_first.ratio] == pytest.approx(
        [1, 6.5, 1.6]
    )
    previous = [row.over_previous.ratio.value for row in rows if row.over_previous.ratio]
    assert previous == pytest.approx([1, 6.5, 1.6 / 6.5])
    assert rows[1].over_first.efficiency is not None
    assert rows[1].over_first.efficiency.value == pytest.approx(6.5 / 8)
    assert [row.verdict for row in rows] == ["reached"] * 3
    assert [row.stated for row in rows] == ["1000–1200/s", "6–7 ×", "1.5–2 ×"]
    assert [row.gpu_hours for row in rows] == pytest.approx([0.1, 0.8, 0.1])


@pytest.mark.parametrize("first", [(), (trial(FIRST, None, state="FAILED"),)])
def test_without_the_first_rung_no_ratio_is_reached_or_missed(first: tuple[Trial, ...]) -> None:
    amp = Rung("amp", "amp", ratio=(1.5, 2))
    row = climbed(*first, trial(DDP, 7150), trial(amp, 1760), rungs=(FIRST, DDP, amp))
    assert row.verdict == "not comparable: the speed of the first run was not measured"
    assert (row.over_first.ratio, row.over_previous.ratio is not None) == (None, True)


def test_a_figure_of_nothing_is_reached_by_every_speed() -> None:
    nothing = replace(DDP, ratio=(0.0, 0.0))
    row = climbed(trial(FIRST, 1100), trial(nothing, 7150), rungs=(FIRST, nothing))
    assert row.verdict == "reached"


@pytest.mark.parametrize(
    ("tried", "verdict"),
    [
        (trial(DDP, 7150), "reached"),
        (trial(DDP, 15400), "reached: 2 × the figure"),
        (trial(DDP, 6550), "within the noise: --set repeats=3 makes the ± smaller"),
        (trial(DDP, 2000), "not reached: each of 8 ranks does 23 % of the first rung's"),
        (
            trial(DDP, 2000, measured=waiting(0.78)),
            "not reached: 78 % of a step waits for data, see gpu_data",
        ),
        (
            trial(DDP, 2000, measured=waiting(0.78), finding=found("input_bound")),
            "not reached: 78 % of a step waits for data, see gpu_data",
        ),
        (
            trial(DDP, 2000, measured=waiting(0.3), finding=found("straggler", "DST004")),
            "not reached: Ranks wait, see coach explain DST004",
        ),
        (trial(DDP, None, state="RUNNING"), "running"),
        (trial(DDP, None), "not tested: its speed was not measured"),
        (trial(DDP, None, state="FAILED", finding=found("cuda_oom", "MEM001")), "not tested: FAILED: MEM001"),
    ],
)
def test_the_verdict_names_the_cause_that_the_run_s_diagnosis_has(tried: Trial, verdict: str) -> None:
    assert climbed(trial(FIRST, 1100), tried).verdict.startswith(verdict)


def test_too_few_steps_are_no_answer() -> None:
    short = replace(trial(DDP, 7150)[1].measured, throughput=Estimate(7150, None, 9))
    row = climbed(trial(FIRST, 1100), trial(DDP, 7150, measured=short))
    assert row.verdict == "not tested: too few steps (9 steady, 16 are needed)"
    assert row.over_first.ratio is None


def test_a_figure_that_cannot_be_right_is_called_wrong_only_if_it_was_tested_and_missed() -> None:
    wrong = replace(DDP, wrong_because="the gains do not multiply")
    rungs = (FIRST, wrong)
    missed = climbed(trial(FIRST, 1100), trial(DDP, 6000), rungs=rungs)
    assert missed.verdict == "wrong because the gains do not multiply"
    assert climbed(trial(FIRST, 1100), trial(DDP, 7150), rungs=rungs).verdict == "reached"


def test_what_this_site_cannot_run_is_not_tested() -> None:
    small = replace(DDP, why_not="asks 8 GPUs, partition gpu has 2 GPUs per node")
    row = climbed(trial(FIRST, 1100), rungs=(FIRST, small))
    assert row.verdict == "cannot be tested here: asks 8 GPUs, partition gpu has 2 GPUs per node"
    assert row.is_result
    tried = trial(DDP, 2000, measured=replace(trial(DDP, 2000)[1].measured, world_size=2))
    assert climbed(trial(FIRST, 1100), tried, rungs=(FIRST, small)).verdict.endswith("; measured on 2")


def test_a_run_on_cpus_neither_reaches_nor_misses_a_figure_for_gpus() -> None:
    on_cpus = trial(DDP, 9000, run=replace(run(DDP), device={"type": "cpu"}))
    assert climbed(trial(FIRST, 1100), on_cpus).verdict.endswith("for GPUs, this trained on CPUs")
    assert climbed(trial(FIRST, 1100), on_cpus, is_for_gpus=False).verdict == "reached"


def test_repeats_give_one_speed_with_their_own_scatter() -> None:
    rates = (7000.0, 7150.0, 7300.0)
    row = climbed(trial(FIRST, 1100), *(trial(DDP, rate, number) for number, rate in enumerate(rates)))
    assert row.throughput is not None
    assert row.throughput.value == pytest.approx(7150)
    assert row.throughput.noise is not None
    assert row.throughput.noise > 100  # one run alone has ± 10
    assert (row.throughput.num_values, len(row.run_ids)) == (180, 3)
    alike = climbed(trial(FIRST, 1100), *(trial(DDP, 7150, number) for number in range(4)))
    assert alike.throughput is not None
    assert alike.throughput.noise == pytest.approx(NOISE / 2)  # more runs make the ± smaller
    failed = climbed(trial(FIRST, 1100), trial(DDP, 7000), trial(DDP, None, 1, state="TIMEOUT"))
    assert failed.state == "TIMEOUT"
