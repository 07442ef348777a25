"""Whether forty learners fit: as an organizer would work it out on paper."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coach.analysis.teaching.workshop_capacity import at_once, fit, place_of
from coach.model.launching.launch import LaunchRequest
from coach.model.slurm.cluster import GpuCount
from coach.model.teaching.rehearsal import Item, NodeRoom, Place, Rehearsed, Shape, WorkshopPlan
from tests.launch.examples import node

FOUR = Place("partition gpu", (NodeRoom((("a100", 4),), 64, 256_000),) * 4)
ONE_GPU = Shape(1, 1, 4)
ITEM = Item("baseline", LaunchRequest("baseline"), 3.0)
TRIED = Rehearsed("baseline", shape=ONE_GPU, place=FOUR)


def plan(*items: Item, minutes: float = 60) -> WorkshopPlan:
    return WorkshopPlan(40, minutes, 5, items)


def test_forty_learners_on_sixteen_gpus_take_three_rounds() -> None:
    day = fit(plan(ITEM), [TRIED])
    (share,) = day.shares
    assert (share.at_once, share.rounds, share.total_s, share.because) == (16, 3, 540.0, "as the plan says")
    assert day.fits is True
    assert day.least_s == day.most_s == 540.0


def test_recipes_one_after_the_other_are_added_up_and_may_be_too_much() -> None:
    two = replace(TRIED, name="ddp", shape=Shape(1, 2, 4))
    day = fit(plan(ITEM, replace(ITEM, name="ddp", minutes=12), minutes=60), [TRIED, two])
    assert day.least_s == 3 * 180 + 5 * 720
    assert day.fits is False


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (Shape(1, 1, 4), 16),
        (Shape(1, 3, 4), 4),
        (Shape(1, 1, 32), 8),
        (Shape(1, 1, 4, mem_mib=200_000), 4),
        (Shape(2, 4, 4), 2),
        (Shape(2, 2, 4), 4),
        (Shape(5, 1, 4), 0),
        (Shape(1, 1, 4, gpu_type="h100"), 0),
        (Shape(1, 0, 16), 16),
    ],
)
def test_the_scarcest_resource_limits_the_runs_at_once(shape: Shape, expected: int) -> None:
    assert at_once(shape, FOUR) == expected


def test_a_run_of_two_nodes_does_not_fit_on_one_that_has_room_for_both_parts() -> None:
    lopsided = Place(
        "partition gpu", (NodeRoom((("a100", 8),), 64, None), NodeRoom((("a100", 1),), 64, None))
    )
    assert at_once(Shape(2, 1, 4), lopsided) == 1


def test_a_place_of_whole_nodes_gives_each_run_one() -> None:
    assert at_once(ONE_GPU, replace(FOUR, is_exclusive=True)) == 4


def test_nodes_out_of_service_are_not_counted_and_busy_ones_are() -> None:
    gpus = (GpuCount("a100", 4, 0),)
    nodes = [
        replace(node("a", ("gpu",)), gpus=gpus, state=state)
        for state in ("idle", "mixed", "down", "idle+drain", "idle~")
    ]
    assert place_of("partition gpu", nodes).num_gpus == 12


def test_without_minutes_the_measured_time_counts_or_else_the_time_limit() -> None:
    item = replace(ITEM, minutes=None)
    measured = replace(
        TRIED, started_time_s=100.0, ended_time_s=120.0, state="COMPLETED", gpu_hours=0.1, time_limit_s=1800
    )
    assert fit(plan(item), [measured]).shares[0].each_s == 20 + 360
    sweep = replace(measured, num_runs=4)
    assert fit(plan(item), [sweep]).shares[0].each_s == 4 * 20 + 360
    broken = replace(measured, problem="it ended FAILED")
    assert fit(plan(item), [broken]).shares[0].each_s == 1800
    assert "at most" in fit(plan(item), [broken]).shares[0].because


def test_a_recipe_without_a_plan_leaves_the_answer_open() -> None:
    day = fit(plan(ITEM, ITEM), [TRIED, Rehearsed("typo", problem="unknown parameter")])
    assert (day.least_s, day.most_s, day.fits) == (540, None, None)
    nowhere = fit(plan(ITEM), [replace(TRIED, place=None)])
    assert (nowhere.fits, nowhere.places) == (None, ())


def test_a_run_without_any_room_does_not_fit() -> None:
    day = fit(plan(ITEM, ITEM), [TRIED, replace(TRIED, shape=Shape(1, 8, 4))])
    assert (day.shares[1].at_once, day.shares[1].rounds, day.fits) == (0, None, False)


def test_time_limits_alone_prove_that_all_fit_and_never_that_they_do_not() -> None:
    limited = replace(TRIED, time_limit_s=1800)
    day = fit(plan(replace(ITEM, minutes=None), minutes=90), [limited])
    assert (day.least_s, day.most_s, day.fits) == (0, 5400, True)
    assert replace(day, available_s=5399).fits is None
    both = fit(plan(replace(ITEM, minutes=None), replace(ITEM, minutes=40), minutes=90), [limited, TRIED])
    assert (both.least_s, both.most_s, both.fits) == (7200, 12600, False)
