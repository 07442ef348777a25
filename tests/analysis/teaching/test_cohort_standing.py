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
from coach.model.teaching.cohort import Cohort
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
