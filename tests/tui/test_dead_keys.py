"""A key without an action here shows the reason, in one line beside the keys."""

from __future__ import annotations

from functools import partial
from types import MappingProxyType

import pytest

from coach.tui.widgets.filter_line import FilterLine
from tests.tui.driving import Driver, opened
from tests.tui.fake_session import FakeSession, make_snapshot


def last_line(driver: Driver) -> str:
    return driver.text().splitlines()[-1]


def ends_with(driver: Driver, words: str) -> bool:
    return last_line(driver).endswith(words)


DEAD = [
    (["d"], "c", "c compares two runs: open one with r"),
    (["d"], "x", "x cancels a job: choose one in the queue first"),
    (["r"], "r", "r opens this screen: you are there"),
    (["enter", "l"], "l", "l opens this screen: you are there"),
    (["question_mark"], "R", "R lists the recipes: leave this with Esc first"),
    (["1", "shift+tab"], "m", "m marks a run to compare: list them with r first"),
    (["1", "tab"], "2", ""),
    (["x"], "enter", "Enter opens a row of a list: there is none to open here"),
    ([], "0", "0 is no key: ? lists the keys"),
    ([], "X", "X is no key: ? lists the keys"),
    ([], "8", "no recipe has the key 8: [keys] in config.toml gives it one"),
    (["d"], "1", "1 launches a recipe: leave this first"),
]


@pytest.mark.parametrize("size", [(80, 24), (120, 36)])
async def test_a_dead_key_says_where_it_works_and_its_action(size: tuple[int, int]) -> None:
    """Each from the first screen on, in one app: to start it costs more than the keys."""
    async with opened(size=size) as driver:
        for path, key, words in DEAD:
            for each in path:
                await driver.press(each)
            place = driver.place
            await driver.press(key)
            if words:
                await driver.until(partial(ends_with, driver, words), words)
            else:
                assert "launches" not in last_line(driver)
            assert driver.place == place
            while driver.place != "cluster":
                await driver.press("escape")
        assert driver.ports.launches.submitted == []
        assert driver.ports.job_actions.performed == []


async def test_the_words_are_gone_with_the_next_key() -> None:
    async with opened() as driver:
        await driver.press("m")
        await driver.sees("m marks a run to compare")
        await driver.press("down")
        assert "marks" not in driver.text()


async def test_keys_typed_into_a_field_are_text() -> None:
    async with opened() as driver:
        await driver.press("slash", *"m0Bx")
        assert driver.app.screen.query_one(FilterLine).value == "m0Bx"
        assert "is no key" not in driver.text()
        assert "marks" not in driver.text()


async def test_many_dead_keys_at_once_leave_one_line() -> None:
    async with opened() as driver:
        await driver.press("d")
        await driver.reaches("doctor")
        await driver.press(*"xhUQTAxhUQTA", "0")
        assert last_line(driver).endswith("0 is no key: ? lists the keys")
        assert driver.text().count(" job: ") == 0
        await driver.press("escape")
        await driver.reaches("cluster")
        assert "is no key" not in driver.text()


@pytest.mark.parametrize(("place", "keys"), [("runs", "rm"), ("findings", "f"), ("history", "H")])
async def test_where_no_row_is_enter_says_so(place: str, keys: str) -> None:
    snapshot = make_snapshot(runs=(), jobs=(), diagnoses=MappingProxyType({}), targets=MappingProxyType({}))
    async with opened(FakeSession(snapshot)) as driver:
        for key in keys:
            await driver.press(key)
            await driver.reaches(place)
        if place != "runs":
            await driver.press("enter")
        await driver.sees("there is no row under the cursor")


@pytest.mark.parametrize("key", ["ctrl+c", "ctrl+z"])
async def test_the_keys_that_end_or_stop_other_programs_name_the_key_that_leaves(key: str) -> None:
    async with opened() as driver:
        await driver.press(key, key)
        await driver.sees("^q leaves coach")
        assert "Do you want to quit" not in driver.text()
