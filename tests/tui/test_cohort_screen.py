"""The Cohort screen, driven by keys: forty learners in a small terminal, the missing ones, and the
refresh."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coach.model.errors import UserError
from coach.model.judging.finding import Severity
from coach.tui.mode import Mode
from coach.tui.screens.cohort import REREAD_S
from tests.tui.driving import opened
from tests.tui.fake_ports import FakePorts, FakeQuestions
from tests.tui.fake_session import NOW_S, RUN_ID, make_cohort, make_summary


async def test_forty_people_are_scrolled_through_in_a_small_terminal() -> None:
    async with opened(
        ports=FakePorts(questions=FakeQuestions(cohort=make_cohort(40))), size=(80, 24)
    ) as driver:
        await driver.press("L")
        await driver.reaches("cohort")
        await driver.sees("41 people · /course/shared")
        await driver.sees("nothing yet: 1 of 41: zoe")
        await driver.sees("ddp 40 active")
        await driver.sees("not read: x.json: not valid JSON")
        await driver.sees("learner00")
        assert "learner39" not in driver.text()
        for title in ("USER", "RECIPE OR DRILL", "NEWEST", "SAMPLES/S", "FINDING", "BEST"):
            assert title in driver.text()
        await driver.press("end")
        await driver.sees("1 person")
        await driver.sees("learner39")
        await driver.press("enter")
        await driver.sees("no run of theirs has shared")


async def test_a_learner_s_trouble_is_named_in_words_and_a_filter_finds_it() -> None:
    cohort = make_cohort(3)
    runs = (
        make_summary(1000, "a", code="NUM001", severity=Severity.CRITICAL),
        make_summary(1000, "b", thing="typo", is_drill=True),
        make_summary(1000, "c", thing="fsdp", state="PENDING", created_time_s=NOW_S - 1500),
        make_summary(1000, "d", thing="tp", updated_time_s=NOW_S - 720),
        make_summary(1000, "e", thing="amp", last_step_time_s=NOW_S - 380, step_gap_s=0.1, step=20),
    )
    done = {"c": make_summary(1000, "0", thing="fsdp", state="COMPLETED")}
    people = (replace(cohort.people[0], runs=runs, best=done), *cohort.people[1:])
    ports = FakePorts(questions=FakeQuestions(cohort=replace(cohort, people=people)))
    async with opened(ports=ports, size=(80, 24)) as driver:
        await driver.press("L")
        await driver.sees("✖ NUM001")
        await driver.sees("answer first")
        await driver.sees("PENDING 25 min")
        await driver.sees("silent 12 min")
        await driver.sees("no step 6 min")
        await driver.sees("COMPLETED")
        await driver.sees("▲ learner00 amp: last step 6 min ago, while it runs")
        await driver.sees("pending for 10 min or longer: learner00 25 min")
        await driver.press("slash", *"num001", "enter")
        await driver.sees('filter "num001": 1')
        await driver.press("escape")
        await driver.until(lambda: 'filter "' not in driver.text(), "all are shown again")
        assert driver.place == "cohort"


async def test_the_directory_is_read_again_while_the_screen_is_watched() -> None:
    ports = FakePorts()
    async with opened(ports=ports) as driver:
        await driver.press("L")
        await driver.sees("3 people")
        ports.questions.cohort = make_cohort(5)
        driver.clock.turn(REREAD_S + 1)
        await driver.sees("6 people")


async def test_enter_opens_ones_own_run_and_the_summary_of_others() -> None:
    cohort = make_cohort(1)
    mine = replace(cohort.people[0], runs=(make_summary(run_id=RUN_ID),))
    other = replace(cohort.people[0], user="zac", runs=(make_summary(run_id="other"),))
    ports = FakePorts(questions=FakeQuestions(cohort=replace(cohort, people=(mine, other))))
    async with opened(ports=ports) as driver:
        await driver.press("L")
        await driver.sees("zac")
        await driver.press("end", "enter")
        await driver.reaches("explained")
        await driver.sees("only zac can open it")
        await driver.sees("coach ticket")
        await driver.press("escape", "home", "enter")
        await driver.reaches("job")


async def test_the_board_reads_again_each_time_it_is_opened() -> None:
    ports = FakePorts()
    async with opened(ports=ports) as driver:
        await driver.press("L")
        await driver.sees("3 people")
        ports.questions.cohort = make_cohort(5)
        await driver.press("escape", "L")
        await driver.sees("6 people")


async def test_without_a_shared_directory_the_screen_names_the_setting() -> None:
    refusal = UserError("no shared directory is known", "set share in [launch]")
    async with opened(ports=FakePorts(questions=FakeQuestions(refusal=refusal)), size=(120, 24)) as driver:
        await driver.press("L")
        await driver.sees("not available: no shared directory is known (set share in [launch])")


@pytest.mark.parametrize("mode", [Mode.REPLAY, Mode.DEMO])
async def test_a_recording_has_no_cohort(mode: Mode) -> None:
    async with opened(mode=mode) as driver:
        await driver.press("L")
        await driver.sees("this is a recording")
