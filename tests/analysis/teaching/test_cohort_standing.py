"""The state of a cohort from its summaries: who runs, waits, is silent, or has no run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from coach.analysis.teaching.cohort_standing import (
    best_words,
    counts_of,
    finding_words,
    people_of,
    state_words,
    verdict_words,
    waiting_long,
    without_a_run,
)
from coach.model.judging.finding import Severity
from coach.model.teaching.cohort import Cohort, OnLadder, Summary
from tests.tui.fake_session import NOW_S, make_summary


def test_the_newest_run_of_every_recipe_and_drill_counts() -> None:
    old = make_summary(1, "a", created_time_s=10.0)
    new = make_summary(1, "b", created_time_s=20.0)
    drill = make_summary(1, "c", is_drill=True, thing="ddp")
    [person] = people_of([new, drill, old], {1: "ada"}, None)
    assert [run.run_id for run in person.runs] == ["b", "c"]
    assert person.is_expected is None


def test_a_learner_of_the_roster_without_files_has_no_run() -> None:
    people = people_of([make_summary(1)], {1: "bob"}, {"ada": 7, "bob": 1})
    cohort = Cohort("/shared", people)
    assert [(each.user, each.uid, each.is_expected) for each in people] == [
        ("ada", 7, True),
        ("bob", 1, True),
    ]
    assert without_a_run(cohort) == ["ada"]
    [visitor] = people_of([make_summary(2)], {2: "eve"}, {})
    assert visitor.is_expected is False


def test_a_learner_who_waits_too_long_is_named_with_the_minutes() -> None:
    waiting: dict[str, Any] = {"state": "PENDING", "started_time_s": None}
    people = people_of(
        [
            make_summary(1, created_time_s=NOW_S - 700, **waiting),
            make_summary(2, created_time_s=NOW_S - 1500, **waiting),
            make_summary(3, created_time_s=NOW_S - 30, **waiting),
            make_summary(4, created_time_s=NOW_S - 9000),
        ],
        {1: "ada", 2: "bob", 3: "eve", 4: "zoe"},
        None,
    )
    cohort = Cohort("/shared", people, ("a: torn", "b: torn"), {"eve": 2, None: 1})
    assert waiting_long(cohort, NOW_S) == [("bob", 1500.0), ("ada", 700.0)]
    assert verdict_words(cohort, NOW_S) == [
        "pending for 10 min or longer: bob 25 min, ada 11 min",
        "not read: a: torn, and 1 more like it",
        "too many files: 3 were not read (2 of eve, 1 of unknown users)",
    ]
    assert verdict_words(cohort, NOW_S, 1450.0)[0] == "pending for 24 min or longer: bob 25 min"
    assert [user for user, _ in waiting_long(cohort, NOW_S, 0.0)] == ["bob", "ada", "eve"]


def test_a_silent_run_that_should_go_on_is_not_called_running() -> None:
    assert state_words(make_summary(), NOW_S) == "RUNNING"
    assert state_words(make_summary(updated_time_s=NOW_S - 720), NOW_S) == "silent 12 min"
    assert state_words(make_summary(updated_time_s=NOW_S - 720, state="COMPLETED"), NOW_S) == "COMPLETED"
    assert state_words(make_summary(state=None), NOW_S) == "–"


def test_a_run_without_a_diagnosis_is_not_called_healthy() -> None:
    assert finding_words(make_summary(is_judged=False)) == "–"
    assert finding_words(make_summary()) == "none"
    assert finding_words(make_summary(is_drill=True)) == "answer first"
    solved = [
        best_words(make_summary(is_drill=True, is_solved=is_solved)) for is_solved in (True, False, None)
    ]
    assert solved == ["solved", "given up", "not yet"]
    assert best_words(make_summary()) == ""


def test_a_completed_run_whose_loss_is_not_finite_has_not_finished() -> None:
    broken = make_summary(1, state="COMPLETED", code="NUM001", severity=Severity.CRITICAL)
    warned = replace(broken, uid=2, code="NUM008", severity=Severity.WARNING)
    cohort = Cohort("/shared", people_of([broken, warned], {1: "ada", 2: "bob"}, None))
    [count] = counts_of(cohort)
    assert (count.num_finished, count.num_active, count.num_failed) == (1, 0, 1)
    assert (best_words(broken), best_words(warned)) == ("", "COMPLETED NUM008")


def test_a_run_whose_last_step_is_old_against_its_own_steps_is_stalled() -> None:
    stuck = make_summary(last_step_time_s=NOW_S - 380, step_gap_s=0.1)
    assert state_words(stuck, NOW_S) == "no step 6 min"
    [person] = people_of([stuck], {1000: "emil"}, None)
    assert verdict_words(Cohort("/shared", (person,)), NOW_S) == [
        "emil ddp: last step 6 min ago, while it runs"
    ]
    for spared in (
        {"step_gap_s": 90.0},
        {"is_drill": True},
        {"state": "COMPLETED"},
        {"last_step_time_s": None},
    ):
        assert replace(stuck, **spared).stalled_s(NOW_S) is None


def rung(
    at: int, rate: float | None, state: str = "COMPLETED", group_id: str = "g-1", **more: Any
) -> Summary:
    figure = (None, 1000.0) if at == 0 else (1.5, None)
    place = OnLadder("demos", group_id, at, *figure)
    return make_summary(
        run_id=f"{group_id}-{at}", state=state, samples_per_s=rate, step=200, ladder=place, **more
    )


def test_a_ladder_is_one_line_with_the_best_rung_its_ratio_and_the_rungs_that_reached_their_figure() -> None:
    runs = [rung(0, 1100.0), rung(1, 2090.0), rung(2, 1200.0), rung(3, 1700.0)]
    [person] = people_of([*runs, make_summary(1000)], {1000: "ada"}, None)
    alone, ladder = person.runs
    assert (alone.thing, ladder.thing, ladder.samples_per_s) == ("ddp", "ladder demos", 2090.0)
    assert best_words(ladder) == "3/4 rungs, 1.9 ×"
    [count] = counts_of(Cohort("/shared", people_of(runs, {1000: "ada"}, None)))
    assert (count.thing, count.num_finished) == ("ladder demos", 1)


def test_a_ladders_run_that_goes_stands_for_those_that_wait_for_it() -> None:
    waiting = {"created_time_s": NOW_S - 5000}
    runs = [
        rung(0, 900.0, **waiting),
        rung(1, 100.0, "RUNNING", **waiting),
        rung(2, None, "PENDING", **waiting),
    ]
    people = people_of(runs, {1000: "ada"}, None)
    assert waiting_long(Cohort("/shared", people), NOW_S) == []
    assert (people[0].runs[0].state, best_words(people[0].runs[0])) == ("RUNNING", "0/3 rungs, 1.0 ×")
    [person] = people_of([rung(0, 900.0), rung(1, 100.0, "FAILED")], {1000: "ada"}, None)
    assert state_words(person.runs[0], NOW_S) == "FAILED"


def test_a_ladder_without_a_figure_that_can_be_tested_has_only_a_ratio_and_few_steps_have_none() -> None:
    runs = [
        replace(rung(at, 100.0 * (at + 1)), ladder=OnLadder("mine", "g", at, None, None)) for at in range(2)
    ]
    [person] = people_of(runs, {1000: "ada"}, None)
    assert best_words(person.runs[0]) == "2.0 ×"
    [person] = people_of([replace(each, step=18) for each in runs], {1000: "ada"}, None)
    assert best_words(person.runs[0]) == ""


def test_an_earlier_ladder_that_finished_stays_the_best_result() -> None:
    runs = [rung(0, 1000.0, created_time_s=1.0), rung(0, 500.0, "FAILED", "g-2", created_time_s=2.0)]
    [person] = people_of(runs, {1000: "ada"}, None)
    [newest] = person.runs
    assert (newest.state, best_words(person.best_of(newest))) == ("FAILED", "1/1 rungs, 1.0 ×")
