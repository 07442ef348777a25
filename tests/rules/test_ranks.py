"""The metrics of several ranks, compared with each other: recorded from real trainings over gloo."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from coach.model.judging.finding import Diagnosis, Severity
from coach.model.training.metrics import MetricEvent, Step
from tests.rules.examples import gpu_samples, judge, run, steps
from tests.rules.recorded import diagnose
from tests.rules.test_telemetry import loud, only


def test_a_rank_that_works_longer_is_named_though_all_ranks_end_their_steps_together() -> None:
    finding = only(diagnose("ranks/straggler"), "DST008")
    assert (finding.subject.node, finding.subject.rank) == ("node1", 2)
    assert finding.is_primary
    assert {"exclude": "node1"} in [fix.changes for fix in finding.fixes]


def test_a_rank_whose_data_come_late_is_the_cause_of_its_own_wait_and_of_everybodys() -> None:
    diagnosis = diagnose("ranks/straggler-by-data")
    assert [(f.rule, f.subject.rank, f.consequence_of) for f in diagnosis.findings] == [
        ("DST008", 1, None),
        ("GPU005", 1, "DST008"),
    ]
    assert "its data" in diagnosis.findings[0].summary
    assert not any("exclude" in fix.changes for fix in diagnosis.findings[0].fixes)


def test_a_loss_that_a_real_training_averages_before_it_writes_it_is_no_sign_of_equal_samples() -> None:
    assert not loud(diagnose("ranks/averaged"))


@pytest.mark.parametrize("name", ["even", "stumbling"])
def test_ranks_that_are_slow_in_turn_are_no_stragglers(name: str) -> None:
    assert not loud(diagnose(f"ranks/{name}"))


def four(own_s: Sequence[float], count: int = 120) -> list[Step]:
    """Ranks that end each step together, each after work of its own."""
    longest = max(own_s)
    return [
        step
        for rank, own in enumerate(own_s)
        for step in steps([1.0] * count, rank, longest + 0.01, comm_time_s=longest - own + 0.01)
    ]


def judged(own_s: Sequence[float], count: int = 120, **of_run: Any) -> Diagnosis:
    return judge(four(own_s, count), run=run(**of_run))


def test_how_far_behind_decides_and_most_of_the_ranks_are_never_behind() -> None:
    assert only(judged([0.1, 0.1, 0.1, 0.14]), "DST008").severity is Severity.WARNING
    assert not loud(judged([0.1, 0.1, 0.1, 0.11]))
    assert not loud(judged([0.1, 0.2, 0.2, 0.2]))
    assert only(judged([0.1, 0.2]), "DST008").subject.rank == 1


@pytest.mark.parametrize(("nodes", "told"), [("aabb", "ranks 2, 3 on b:"), ("abab", "ranks 2, 3:")])
def test_a_node_is_blamed_only_if_all_late_ranks_are_on_it(nodes: str, told: str) -> None:
    starts = [MetricEvent(rank, "start", 1000.0, 0, {"node": node}) for rank, node in enumerate(nodes)]
    finding = only(judge(four([0.1, 0.1, 0.15, 0.16]), run=run(), events=starts), "DST008")
    assert told in finding.summary
    assert any("exclude" in fix.changes for fix in finding.fixes) == (" on b" in told)


def test_stages_that_differ_by_design_and_short_runs_are_left_alone() -> None:
    assert not loud(judged([0.1, 0.1, 0.1, 0.3], is_uneven_by_design=True))
    stages = [replace(step, num_samples=16, num_samples_global=16) for step in four([0.1, 0.1, 0.1, 0.3])]
    assert not loud(judge(stages, run=run())), "whatever it is called: they say that they share their samples"
    assert not loud(judged([0.1, 0.1, 0.1, 0.3], count=20))


@pytest.mark.parametrize(
    "recipe", ["unet3d", "my-3d-segmentation", "data_pipeline_bench", "pipeline_parallel"]
)
def test_a_straggler_is_reported_under_any_name_of_the_recipe(recipe: str) -> None:
    for declared in (None, False):
        diagnosis = judged([0.1, 0.1, 0.1, 0.3], recipe=recipe, is_uneven_by_design=declared)
        assert only(diagnosis, "DST008").subject.rank == 3


def test_ranks_that_do_not_wait_for_each_other_are_compared_by_their_steps() -> None:
    series = [step for rank in range(4) for step in steps([1.0] * 120, rank, 0.15 if rank == 3 else 0.1)]
    assert only(judge(series, run=run()), "DST008").subject.rank == 3


def test_a_slow_rank_that_nobody_waits_for_is_told_by_its_own_step_time() -> None:
    series = [
        replace(step, step_time_s=0.6 if rank == 2 else 0.15)
        for rank in range(4)
        for step in steps([1.0] * 60, rank, data_time_s=0.0)
    ]
    assert only(judge(series), "DST008").summary == "Rank 2 needs 4.0 times the step time of the others"


def test_ranks_that_were_started_and_make_no_step_are_counted() -> None:
    finding = only(diagnose("ranks/idle-ranks"), "DST011")
    assert (finding.severity, finding.subject.rank) == (Severity.WARNING, 1)
    assert finding.summary.startswith("1 of 2 ranks trains")
    assert finding.fixes[0].changes == {"recipe": "ddp"}


def test_a_recipe_that_declares_no_way_gets_advice_in_words() -> None:
    (advice, _) = only(alone(), "DST011").fixes
    assert not advice.changes
    assert "DistributedDataParallel" in advice.title


def alone(world_size: int | None = 1, num_gpus: int = 4, busy: int = 1, count: int = 100) -> Diagnosis:
    fields = {} if world_size is None else {"world_size": world_size}
    launched = run(resources={"num_nodes": 1, "nproc_per_node": 1, "gpus_per_node": num_gpus})
    samples = [
        s
        for gpu in range(num_gpus)
        for s in gpu_samples([95.0 * (gpu < busy)] * 130, gpu, power_w=300.0 if gpu < busy else 70.0)
    ]
    return judge(
        steps([1.0] * count), samples, launched, 1130.0, [MetricEvent(0, "start", 1000.0, 0, fields)]
    )


def test_one_rank_on_a_node_with_four_gpus_is_the_cause_of_the_idle_ones() -> None:
    diagnosis = alone()
    assert only(diagnosis, "DST011").severity is Severity.CRITICAL
    assert only(diagnosis, "GPU003").consequence_of == "DST011"


@pytest.mark.parametrize(
    "quiet",
    [
        lambda: alone(busy=4),
        lambda: alone(world_size=None),
        lambda: alone(count=10),
        lambda: alone(num_gpus=1),
    ],
    ids=["one-process-uses-all", "nobody-says-how-many", "starts", "one-gpu"],
)
def test_a_process_that_has_all_it_needs_is_no_lonely_rank(quiet: Callable[[], Diagnosis]) -> None:
    assert "DST011" not in [finding.rule for finding in quiet().findings]


def test_nodes_that_read_the_same_samples_are_seen_in_their_losses() -> None:
    diagnosis = diagnose("ranks/same-samples")
    assert loud(diagnosis) == [("DST025", Severity.WARNING)]
    assert "4 parts of the data there are 2" in diagnosis.findings[0].summary


def jittering(num_parts: int, num_ranks: int = 4, num_global: int = 4, augment: float = 0.0) -> Diagnosis:
    """Ranks of one model: its own jitter is in the loss of each, and `num_parts` have samples of their
    own."""
    chance = random.Random(0)
    jitter = [1.0 + chance.gauss(0, 0.3) for _ in range(120)]
    parts = [[chance.gauss(0, 0.1) for _ in jitter] for _ in range(num_parts)]
    series = [
        step
        for rank in range(num_ranks)
        for step in steps(
            [
                a + b + augment * chance.gauss(0, 0.1)
                for a, b in zip(jitter, parts[rank % num_parts], strict=True)
            ],
            rank,
            num_samples=16,
            num_samples_global=16 * num_global,
        )
    ]
    said = [MetricEvent(rank, "start", 1000.0, 0, {"loss_of": "rank"}) for rank in range(num_ranks)]
    return judge(series, run=run(), events=said)


def test_a_model_that_jitters_on_all_ranks_alike_hides_no_twins_and_makes_none() -> None:
    assert "DST025" not in [f.rule for f in jittering(4).findings]
    assert "DST025" not in [f.rule for f in jittering(64, 64, 64).findings]
    assert only(jittering(2, augment=0.3), "DST025").evidence[2].text.endswith("ranks 0, 2; ranks 1, 3")


def test_ranks_that_read_the_same_samples_are_reported_unless_they_share_a_model() -> None:
    assert only(jittering(1, 2, 2), "DST025")
    assert "DST025" not in [f.rule for f in jittering(1, 2, 1).findings]
    assert "DST025" not in [f.rule for f in jittering(1, 2, 2, augment=0.3).findings]


def test_epochs_of_one_order_are_seen_in_the_loss_and_shuffled_ones_are_not() -> None:
    diagnosis = diagnose("ranks/same-order")
    assert loud(diagnosis) == [("DAT009", Severity.WARNING)]
    assert "set_epoch" in diagnosis.findings[0].fixes[0].title
    assert not loud(diagnose("ranks/epochs"))


@pytest.mark.parametrize("seed", range(20))
def test_a_course_that_is_alike_in_every_epoch_is_no_order_of_samples(seed: int) -> None:
    chance = random.Random(seed)
    losses = [
        2 - 0.1 * epoch + math.exp(-place / 3) + chance.gauss(0, 0.05)
        for epoch in range(6)
        for place in range(16)
    ]
    series = [replace(step, epoch=(step.step - 1) // 16) for step in steps(losses)]
    assert "DAT009" not in [finding.rule for finding in judge(series, run=run()).findings]
