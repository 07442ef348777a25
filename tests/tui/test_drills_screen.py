"""The Drills screen and the short list, driven by keys: launch a planted fault, name it wrong, name it right,
read the lesson."""

from __future__ import annotations

from dataclasses import replace

from coach.analysis.teaching.withheld_findings import as_told
from coach.model.teaching.drill import Answer
from coach.render.text import plain
from coach.tui.key_guard import GUARD_S
from coach.tui.keys import SHIPPED
from coach.tui.mode import Mode
from coach.tui.render.drills import drill_lines
from tests.tui.driving import Driver, opened
from tests.tui.fake_session import (
    RUN_ID,
    FakeSession,
    make_drills,
    make_history,
    make_run,
    make_snapshot,
    make_target,
    nan_diagnosis,
)
from tests.tui.labels import shipped


def a_drill_that_went_wrong() -> FakeSession:
    run = make_run(drill="typo")
    snapshot = make_snapshot(
        runs=(run,),
        targets={RUN_ID: make_target(run)},
        diagnoses={RUN_ID: as_told(nan_diagnosis(), run, {run.drill or ""})},
    )
    return FakeSession(snapshot, {RUN_ID: make_history()})


async def open_run(driver: Driver) -> None:
    await driver.press("r")
    await driver.reaches("runs")
    await driver.press("enter")
    await driver.reaches("job")


async def test_a_drill_is_launched_like_any_recipe_its_plan_first() -> None:
    async with opened() as driver:
        await driver.press("R")
        await driver.reaches("recipes")
        await driver.press("P")
        await driver.reaches("drills")
        await driver.sees("3 drills · 0 solved")
        await driver.sees("The epochs take long")
        assert "input_bound" not in driver.text()
        await driver.press("enter")
        await driver.reaches("plan")
        await driver.until(lambda: driver.ports.launches.requests, "planned")
        assert driver.ports.launches.requests[-1].recipe == "idle_hands"


def test_a_drill_whose_run_waits_for_its_answer_names_the_key_that_identifies_its_cause() -> None:
    entry = replace(make_drills()[0], run=make_run(drill="idle_hands"), lesson="", skipped=None)
    words = [plain(row) for row in drill_lines(entry, 80, shipped)]
    (said,) = [row for row in words if "names its cause" in row]
    assert said.startswith(f" {SHIPPED['answer'].label} names its cause")


async def test_a_drill_that_cannot_show_its_symptom_here_is_not_launched() -> None:
    async with opened() as driver:
        await driver.press("P")
        await driver.sees("3 drills")
        await driver.press("end", "enter")
        await driver.sees("needs a GPU")
        assert driver.place == "drills"


async def test_no_screen_shows_the_cause_before_the_answer() -> None:
    async with opened(a_drill_that_went_wrong(), size=(80, 24)) as driver:
        await driver.press("r")
        await driver.reaches("runs")
        await driver.sees("drill: answer first")
        await driver.press("enter")
        await driver.reaches("job")
        await driver.sees("drill: answer first   i names the cause")
        assert "NUM001" not in driver.text()
        assert "drill: answer first" in driver.text().splitlines()[0]
        await driver.press("enter")
        await driver.reaches("finding")
        await driver.sees("drill: answer first")
        assert "NUM001" not in driver.text()
        await driver.press("f")
        await driver.reaches("findings")
        await driver.sees("1 hidden, drill: answer first")
        assert "NUM001" not in driver.text()


async def test_a_wrong_answer_gets_counter_evidence_and_the_right_one_gets_proof_and_lesson() -> None:
    async with opened(a_drill_that_went_wrong(), size=(80, 24)) as driver:
        await open_run(driver)
        await driver.press("i")
        await driver.reaches("answer")
        await driver.sees("names this cause")
        await driver.press("enter")
        assert driver.ports.drills.answered == []  # typed for the screen before
        driver.clock.turn(GUARD_S + 0.1)
        await driver.press("enter")
        await driver.sees("not slow_storage")
        await driver.sees("GPU000 saw nothing of slow_storage")
        await driver.sees("names this cause")
        driver.clock.turn(GUARD_S + 0.1)
        await driver.press("down", "enter")
        await driver.sees("right: input_bound")
        await driver.sees("rank-0.jsonl:3")
        await driver.press("end")
        await driver.sees("More workers.")
        assert driver.ports.drills.answered == [(RUN_ID, "slow_storage"), (RUN_ID, "input_bound")]


async def test_a_run_that_ended_otherwise_is_neither_right_nor_wrong_and_enter_launches_it_again() -> None:
    async with opened(a_drill_that_went_wrong(), size=(80, 24)) as driver:
        driver.ports.drills.spoiled = "it ended with MEM007 host-out-of-memory: it ran out on node1"
        await open_run(driver)
        await driver.press("i")
        await driver.sees("names this cause")
        driver.clock.turn(GUARD_S + 0.1)
        await driver.press("down", "enter")
        await driver.sees("spoiled: it ended with MEM007 host-out-of-memory: it ran out on node1")
        await driver.sees("launches it again")
        assert "right: input_bound" not in driver.text()
        driver.clock.turn(GUARD_S + 0.1)
        await driver.press("enter")
        await driver.reaches("plan")
        await driver.until(lambda: driver.ports.launches.requests, "planned")
        assert driver.ports.launches.requests[-1].recipe == "typo"
        assert len(driver.ports.drills.answered) == 1


def test_the_list_says_that_a_run_is_spoiled_and_keeps_cause_and_lesson_to_itself() -> None:
    answer = Answer("hang", False, 1.0, num_tries=0, spoiled="it ended with MEM007")
    entry = replace(make_drills()[0], run=make_run(drill="idle_hands"), answer=answer, skipped=None)
    assert (entry.standing, entry.is_solved) == ("spoiled", None)
    words = [plain(row) for row in drill_lines(entry, 80, shipped)]
    assert " spoiled: it ended with MEM007" in words
    assert any("launches it again" in row for row in words)
    assert not any("input_bound" in row or "names its cause" in row for row in words)


async def test_giving_up_is_the_last_line_of_the_short_list() -> None:
    async with opened(a_drill_that_went_wrong()) as driver:
        await open_run(driver)
        await driver.press("i")
        await driver.sees("names this cause")
        driver.clock.turn(GUARD_S + 0.1)
        await driver.press("end", "enter")
        await driver.sees("it is input_bound")
        assert driver.ports.drills.answered == [(RUN_ID, None)]


async def test_a_run_that_is_no_drill_has_no_answer() -> None:
    async with opened() as driver:
        await open_run(driver)
        await driver.press("i")
        await driver.sees("not a drill")
        assert driver.place == "job"


async def test_a_read_only_screen_takes_no_answer() -> None:
    async with opened(a_drill_that_went_wrong(), mode=Mode.READONLY) as driver:
        await open_run(driver)
        await driver.press("i")
        await driver.sees("names this cause")
        driver.clock.turn(GUARD_S + 0.1)
        await driver.press("enter")
        await driver.sees("read-only")
        assert driver.ports.drills.answered == []
