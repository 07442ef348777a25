from __future__ import annotations

import itertools
import math
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from coach.analysis.comparing.steady_state import estimate, steady
from coach.analysis.comparing.two_runs import (
    BETTER,
    NO_DIFFERENCE,
    NOT_COMPARABLE,
    WORSE,
    Comparison,
    Row,
    compare,
)
from coach.lookback.history import History
from coach.model.judging.finding import Diagnosis, Finding, Severity, Subject
from coach.model.launching.launch import AppliedFix
from coach.model.snapshot import TargetSnapshot
from coach.model.training.metrics import MetricEvent, Step
from coach.model.training.run import Run, Segment
from coach.model.training.telemetry import GpuSample, HostSample
from tests.analysis.made_jobs import job
from tests.rules import examples


def series(
    step_time_s: float, seed: int, count: int = 200, batch: int = 64, memory: float = 1000.0
) -> list[Step]:
    """Steps whose time scatters by 5 %, and whose loss falls with a little noise."""
    noise = random.Random(seed)
    times = [step_time_s * noise.gauss(1.0, 0.05) for _ in range(count)]
    return [
        Step(
            0,
            number,
            1000.0 + number,
            loss=2.0 + math.exp(-number / 30) + noise.gauss(0.0, 0.02),
            num_samples_global=batch,
            step_time_s=seconds,
            data_time_s=0.1 * seconds,
            memory_reserved_mib=memory,
        )
        for number, seconds in enumerate(times, 1)
    ]


def against(
    before: Sequence[Step], after: Sequence[Step], before_run: Run | None = None, after_run: Run | None = None
) -> Comparison:
    def side(steps: Sequence[Step]) -> History:
        return examples.history(steps)

    return compare(
        TargetSnapshot("a", None, run=before_run),
        side(before),
        TargetSnapshot("b", None, run=after_run),
        side(after),
    )


def row(comparison: Comparison, quantity: str) -> Row:
    return next(row for row in comparison.rows if row.quantity == quantity)


def test_two_runs_of_the_same_thing_do_not_differ_beyond_their_noise() -> None:
    comparison = against(series(0.1, seed=1), series(0.1, seed=2))
    assert {row(comparison, name).verdict for name in ("throughput", "step time", "loss")} == {NO_DIFFERENCE}


def script(name: str, **more: Any) -> Run:
    """A run of an own script."""
    own = {"kind": "script", "words": [f"src/{name}"], "directory": "/w"}
    recipe = name.removesuffix(".py")
    return examples.run(launch={"own": own}, **{"recipe": recipe, "run_id": f"20261121-{recipe}", **more})


def test_the_losses_of_two_own_scripts_are_not_compared() -> None:
    loss = row(against(series(0.1, 1), series(0.1, 2), script("ddp.py"), script("cfg.py")), "loss")
    assert (loss.verdict, loss.because) == (NOT_COMPARABLE, "other program (ddp.py → cfg.py)")
    broken = [replace(step, loss=math.nan) for step in series(0.1, 2)]
    loss = row(against(series(0.1, 1), broken, script("ddp.py"), script("cfg.py")), "loss")
    assert (loss.verdict, loss.because) == (NOT_COMPARABLE, "other program (ddp.py → cfg.py)")
    recipe = examples.run(recipe="baseline")
    assert row(against(series(0.1, 1), series(0.1, 2), recipe, script("cfg.py")), "loss").because == (
        "other program (baseline → cfg.py)"
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (script("ddp.py"), script("ddp.py", run_id="later")),
        (script("a.py"), script("b.py", parent_run_id="20261121-a")),
        (script("a.py", dataset={"name": "cifar10"}), script("b.py", dataset={"name": "cifar10"})),
        (examples.run(recipe="baseline"), examples.run(recipe="ddp")),
        (script("a.py"), None),
    ],
)
def test_the_losses_of_one_program_of_its_variant_or_of_one_data_set_are_compared(
    before: Run, after: Run | None
) -> None:
    loss = row(against(series(0.1, 1), series(0.1, 2), before, after), "loss")
    assert loss.verdict == NO_DIFFERENCE


def test_a_run_with_steps_half_as_long_is_better_in_throughput_and_step_time() -> None:
    comparison = against(series(0.1, seed=1), series(0.05, seed=2))
    throughput = row(comparison, "throughput")
    assert (throughput.verdict, row(comparison, "step time").verdict) == (BETTER, BETTER)
    assert throughput.ratio == pytest.approx(2.0, rel=0.05)
    assert throughput.before == pytest.approx(640, rel=0.05)
    assert throughput.before_noise is not None


def test_more_memory_is_worse() -> None:
    comparison = against(series(0.1, seed=1), series(0.1, seed=2, memory=2000.0))
    assert row(comparison, "memory peak").verdict == WORSE


def test_memory_by_torch_and_memory_by_the_driver_are_not_compared() -> None:
    def side(torch: float | None, driver: float | None) -> History:
        told = [replace(step, memory_reserved_mib=torch) for step in series(0.1, 1)]
        samples = [GpuSample("n1", 1000.0, 0, None, memory_used_mib=driver)] if driver else []
        return examples.history(told, samples)

    def memory(before: History, after: History) -> tuple[str, str | None]:
        told = compare(TargetSnapshot("a", None), before, TargetSnapshot("b", None), after)
        return (found := row(told, "memory peak")).verdict, found.because

    apart = (NOT_COMPARABLE, "other measure of memory (torch → the driver)")
    assert memory(side(1000.0, None), side(None, 1700.0)) == apart
    assert memory(side(1000.0, 1700.0), side(None, 1700.0)) == (NO_DIFFERENCE, None)
    assert memory(side(1000.0, 1700.0), side(2000.0, 1700.0)) == (WORSE, None)


def test_a_child_of_a_nan_run_that_stays_finite_is_better_and_says_so() -> None:
    broken = [Step(0, n, None, loss=2.3 if n < 2 else math.nan, step_time_s=0.1) for n in range(1, 60)]
    loss = row(against(broken, series(0.1, seed=1)), "loss")
    assert (loss.verdict, loss.because) == (BETTER, "NaN from step 2 → finite")
    assert loss.before is None


def test_a_fix_that_leaves_the_loss_infinite_is_said_not_to_have_helped() -> None:
    broken = [Step(0, n, None, loss=2.3 if n < 9 else math.inf, step_time_s=0.1) for n in range(1, 60)]
    later = [replace(step, loss=2.3) if step.step < 17 else step for step in broken]
    fix = AppliedFix("NUM001", "Learning rate 50 → 5", {"lr": 5.0})
    parent = script("nan.py")
    child = script("nan.py", run_id="child", parent_run_id=parent.run_id, fix=fix)
    loss = row(against(broken, later, parent, child), "loss")
    assert (loss.verdict, loss.because) == (
        NO_DIFFERENCE,
        "infinite from step 9 → infinite from step 17; the fix did not help, NUM001 is still there: "
        "coach fix child",
    )
    told = row(against(broken, later, parent, script("nan.py", run_id="other")), "loss").because
    assert told == "infinite from step 9 → infinite from step 17"


def test_a_bad_step_that_the_run_survived_is_not_the_beginning_of_its_nan() -> None:
    whole = series(0.1, 1)
    broken = [replace(step, loss=math.nan) if step.step == 5 or step.step > 150 else step for step in whole]
    assert row(against(whole, broken), "loss").because == "finite → NaN from step 151"


def test_a_change_that_brings_nan_is_worse() -> None:
    broken = [Step(0, n, None, loss=math.nan, step_time_s=0.1) for n in range(1, 60)]
    assert row(against(series(0.1, seed=1), broken), "loss").verdict == WORSE


@pytest.mark.parametrize(
    "high", [[1e13 * 0.7**n + 300 for n in range(60)], [10.0 ** (2 * n) for n in range(52)]]
)
def test_orders_of_magnitude_decide_before_the_noise(high: list[float]) -> None:
    """A loss that explodes scatters as much as it is large."""
    exploded = [Step(0, n, None, loss=loss, step_time_s=0.1) for n, loss in enumerate(high, 1)]
    sound = [replace(step, loss=0.003 + 0.0001 * (step.step % 5)) for step in exploded]
    gone, new = row(against(exploded, sound), "loss"), row(against(sound, exploded), "loss")
    assert (gone.verdict, gone.because) == (BETTER, "by orders of magnitude")
    assert (new.verdict, new.because) == (WORSE, "by orders of magnitude")
    few = row(against(exploded[:4], sound[:4]), "loss")
    assert (few.verdict, few.because) == (BETTER, "by orders of magnitude")


def test_a_loss_that_scatters_over_orders_of_magnitude_is_still_noise() -> None:
    noise = random.Random(5)
    runs = [
        [Step(0, n, None, loss=math.exp(noise.gauss(-5.0, 2.5)), step_time_s=0.1) for n in range(200)]
        for _ in range(40)
    ]
    assert {row(against(*pair), "loss").verdict for pair in itertools.pairwise(runs)} == {NO_DIFFERENCE}


def test_a_loss_near_the_largest_number_is_compared() -> None:
    huge = [Step(0, n, None, loss=1e308, step_time_s=0.1) for n in range(60)]
    assert row(against(huge, series(0.1, 1)), "loss").verdict == BETTER


def diverged(rule: str = "NUM006", cause: str = "loss_divergence", since_s: float | None = None) -> Diagnosis:
    finding = Finding(
        *(rule, rule.lower(), cause, Severity.WARNING, 0.8, True, None, Subject(), "", (), (), since_s)
    )
    return Diagnosis("run", "COMPLETED", (finding,), ())


def test_a_divergence_in_one_run_alone_decides_before_the_noise() -> None:
    """Both losses scatter so much that their intervals overlap."""
    whole = series(0.1, 1)
    noise = random.Random(7)
    loud = [replace(step, loss=3.0 + abs(noise.gauss(0.0, 4.0))) for step in whole]
    healthy = Diagnosis("run", "COMPLETED", (), ())

    def loss(before: Sequence[Step], after: Sequence[Step], *diagnoses: Diagnosis) -> tuple[str, str | None]:
        old, new = (TargetSnapshot("a", None), TargetSnapshot("b", None))
        judged = diagnoses[0], diagnoses[1]
        made = compare(old, examples.history(before), new, examples.history(after), judged)
        return (found := row(made, "loss")).verdict, found.because

    at_150 = diverged(since_s=1150.0)
    assert loss(loud, whole, at_150, healthy) == (BETTER, "NUM006 num006 → no divergence")
    assert loss(whole, loud, healthy, at_150) == (WORSE, "no divergence → NUM006 num006")
    assert loss(loud, whole[:100], at_150, healthy) == (
        NOT_COMPARABLE,
        "NUM006 num006 → no divergence, but the second run has only come to step 100",
    )
    nan = diverged("NUM001", "nan_loss")
    assert loss(whole, whole, nan, healthy) == (BETTER, "NUM001 num001 → finite")
    assert loss(loud, loud, at_150, at_150) == (NO_DIFFERENCE, "NUM006 num006 → NUM006 num006")


def test_a_short_trial_does_not_prove_that_a_late_nan_is_gone() -> None:
    whole = series(0.1, 1)
    broken = [replace(step, loss=math.nan) if step.step > 150 else step for step in whole]
    trial = row(against(broken, whole[:50]), "loss")
    assert (trial.verdict, trial.because) == (
        NOT_COMPARABLE,
        "NaN from step 151 → finite, but the second run has only come to step 50",
    )
    assert trial.before == pytest.approx(trial.after)


def test_runs_on_other_devices_are_not_compared() -> None:
    old = examples.run(device={"type": "cuda", "name": "A100"})
    new = examples.run(device={"type": "cuda", "name": "H100"})
    throughput = row(against(series(0.1, seed=1), series(0.05, seed=2), old, new), "throughput")
    assert (throughput.verdict, throughput.because) == (NOT_COMPARABLE, "other device (A100 → H100)")
    assert throughput.before is not None


def test_another_global_batch_forbids_step_time_and_loss_but_not_throughput() -> None:
    comparison = against(series(0.1, seed=1), series(0.1, seed=2, batch=128))
    assert row(comparison, "throughput").verdict == BETTER
    assert row(comparison, "step time").because == "other global batch (64 → 128)"
    assert row(comparison, "loss").verdict == NOT_COMPARABLE


def on_ranks(num_ranks: int, num_threads: int | None = None) -> TargetSnapshot:
    fields = {"world_size": num_ranks, "num_threads": num_threads}
    start = MetricEvent(0, "start", None, 0, fields)
    run = examples.run({"width": 64}, device={"type": "cpu", "name": "EPYC"})
    return TargetSnapshot(f"{num_ranks} ranks", None, run=run, events=(start,))


def across(num_threads: tuple[int, int] = (1, 1), batch: int = 128, step_time_s: float = 0.12) -> Comparison:
    """One rank with 64 samples a step in 0.1 s, against two ranks."""
    sides = series(0.1, seed=1), series(step_time_s, seed=2, batch=batch)
    one, two = on_ranks(1, num_threads[0]), on_ranks(2, num_threads[1])
    return compare(one, examples.history(sides[0]), two, examples.history(sides[1]))


def test_two_ranks_that_keep_their_batch_are_weak_scaling_with_an_efficiency() -> None:
    compared = across()
    throughput = row(compared, "throughput")
    assert (throughput.verdict, throughput.ratio) == (BETTER, pytest.approx(1.67, abs=0.05))
    assert throughput.because is not None
    assert re.fullmatch(
        r"1\.\d\d ± 0\.\d\d × on 2 × the ranks: efficiency 8\d ± \d %, weak scaling, over 180 steps",
        throughput.because,
    )
    assert compared.speedup.efficiency is not None
    assert compared.speedup.efficiency.value == pytest.approx(throughput.ratio / 2, rel=0.01)
    assert {row(compared, name).verdict for name in ("step time", "data time")} == {WORSE}
    assert row(compared, "loss").because == "other global batch (64 → 128)"


def test_two_ranks_that_share_a_batch_are_strong_scaling() -> None:
    compared = across(batch=64, step_time_s=0.06)
    assert compared.speedup.scaling == "strong"
    assert row(compared, "step time").verdict == BETTER
    assert row(compared, "loss").verdict == NO_DIFFERENCE


def test_a_batch_that_is_neither_kept_nor_shared_gives_no_kind_of_scaling() -> None:
    compared = across(batch=100)
    assert "neither strong nor weak scaling is known" in str(row(compared, "throughput").because)
    assert row(compared, "step time").because == "other world size (1 → 2)"


def test_ranks_with_other_threads_have_a_ratio_and_no_efficiency() -> None:
    throughput = row(across(num_threads=(2, 1)), "throughput")
    assert throughput.verdict == BETTER
    assert "no efficiency" in str(throughput.because)
    assert "other threads per rank (2 → 1)" in str(throughput.because)


def test_one_process_with_two_gpus_is_held_to_twice_the_speed_of_one() -> None:
    """As with nn.DataParallel, which has one rank for all GPUs."""
    resources = ({"num_nodes": 1, "gpus_per_node": number, "nproc_per_node": 1} for number in (1, 2))
    old, new = (examples.run(resources=each) for each in resources)
    speed = against(series(0.1, seed=1), series(0.1, seed=2, batch=128 * 3 // 4), old, new).speedup
    assert speed.efficiency is not None
    assert speed.efficiency.value == pytest.approx(0.75, abs=0.05)
    assert "× on 2 × the GPUs: efficiency 7" in str(speed.words)


def test_another_model_is_not_comparable_on_any_number_of_ranks() -> None:
    old, new = examples.run({"width": 64}), examples.run({"width": 16})
    throughput = row(against(series(0.1, seed=1), series(0.05, seed=2), old, new), "throughput")
    assert (throughput.verdict, throughput.because) == (NOT_COMPARABLE, "other width (64 → 16)")


def test_a_few_steps_do_not_tell_their_noise() -> None:
    throughput = row(against(series(0.1, seed=1, count=10), series(0.1, seed=2)), "throughput")
    assert throughput.verdict == NOT_COMPARABLE
    assert throughput.because == "too few steps (7 steady, 16 are needed)"
    assert (throughput.before is not None, throughput.ratio) == (True, None)


def test_epochs_are_compared_by_their_own_scatter() -> None:
    def epochs(seconds: Sequence[float]) -> TargetSnapshot:
        events = [MetricEvent(0, "epoch_end", None, n, {"seconds": value}) for n, value in enumerate(seconds)]
        return TargetSnapshot("run", None, events=tuple(events))

    history = examples.history(series(0.1, seed=1))
    comparison = compare(epochs([30, 10, 10.2, 9.9]), history, epochs([30, 5, 5.1, 4.9]), history)
    epoch = row(comparison, "time per epoch")
    assert (epoch.verdict, epoch.ratio) == (BETTER, pytest.approx(0.5, rel=0.02))


def test_an_unmeasured_quantity_is_unknown_and_not_zero() -> None:
    comparison = against((), series(0.1, seed=2))
    assert {row.verdict for row in comparison.rows} == {NOT_COMPARABLE}
    assert {row.before for row in comparison.rows} == {None}


def test_the_changes_between_the_runs_are_listed() -> None:
    comparison = against((), (), examples.run({"lr": 1e20}), examples.run({"lr": 0.05}))
    assert comparison.changes == ("lr: 1e+20 → 0.05",)


def test_the_warm_up_is_left_out() -> None:
    assert steady(range(100)) == list(range(10, 100))
    assert steady(range(5)) == [3, 4]


def test_the_interval_covers_the_truth_also_for_bursty_series() -> None:
    noise = random.Random(3)
    covered = 0
    for _ in range(200):
        # Every fourth step waits, and the level drifts from block to block as clocks do.
        values = [1.0 + (4.0 if n % 4 == 0 else 0.0) + noise.gauss(0.0, 0.2) for n in range(400)]
        found = estimate(values)
        assert found is not None
        assert found.noise is not None
        covered += abs(found.value - 2.0) <= found.noise
    assert covered >= 180


def test_runs_are_not_comparable_before_both_have_made_a_step() -> None:
    """While a run starts, its node uses little memory: that is not an effect of the fix."""
    before, after = examples.history(series(0.1, seed=1)), examples.history([])
    for history, used in ((before, 1280.0), (after, 91.0)):
        history.add_samples([HostSample("n1", 1000.0, memory_used_mib=used)])
    compared = compare(TargetSnapshot("a", None), before, TargetSnapshot("b", None), after)
    assert {each.verdict for each in compared.rows} == {NOT_COMPARABLE}


def test_programs_that_tell_no_pace_are_compared_by_their_whole_run_time_if_they_did_the_same_work() -> None:
    def ended(took_s: float, **parameters: object) -> TargetSnapshot:
        run = examples.run(parameters, state="COMPLETED", started_time_s=1000.0, ended_time_s=1000.0 + took_s)
        return TargetSnapshot("run", 1000.0 + took_s, run=run)

    slow, fast = ended(118.0, epochs=3, num_workers=0), ended(60.0, epochs=3, num_workers=2)
    found = row(compare(slow, History(), fast, History()), "run time")
    assert (found.verdict, found.before, found.after) == (BETTER, 118.0, 60.0)
    assert (
        row(compare(slow, History(), ended(110.0, epochs=3), History()), "run time").verdict == NO_DIFFERENCE
    )
    other = compare(slow, History(), ended(60.0, epochs=1), History())
    assert "run time" not in [each.quantity for each in other.rows]
    requeued = replace(fast, job=replace(job("17"), state="COMPLETED", num_requeues=1))
    assert fast.run is not None
    resumed = replace(fast, run=replace(fast.run, segments=(Segment(*[None] * 7),) * 2))
    for parts in (requeued, resumed):
        found = row(compare(slow, History(), parts, History()), "run time")
        assert found.verdict == NOT_COMPARABLE
        assert "only its last part is timed" in str(found.because)


def test_runs_with_sequences_of_different_length_are_compared_by_their_tokens() -> None:
    old, new = (
        replace(examples.run(), dataset={"name": "text", "tokens_per_sample": length})
        for length in (256, 512)
    )
    comparison = against(series(0.1, seed=1), series(0.1, seed=2), old, new)
    assert row(comparison, "throughput").because == "other tokens per sample (256 → 512)"
    tokens = row(comparison, "tokens")
    assert (tokens.unit, tokens.verdict) == ("tokens/s", BETTER)
    assert tokens.before == pytest.approx(256 * (row(comparison, "throughput").before or 0.0))
    assert tokens.ratio == pytest.approx(2.0, rel=0.05)

    comparison = against(series(0.1, seed=1), series(0.05, seed=2), old, old)
    assert row(comparison, "tokens").because == row(comparison, "throughput").because
    assert row(comparison, "tokens").verdict == BETTER
