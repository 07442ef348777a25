"""Keys that arrive bunched are done in the order in which they were typed, in every field."""

from __future__ import annotations

import pytest
from textual import events
from textual.widgets import Input

from coach.tui.screens.plan import PlanField, PlanScreen
from coach.tui.screens.recipes import ParameterField
from coach.tui.widgets.filter_line import FilterLine
from tests.tui.driving import Driver, opened
from tests.tui.fake_ports import FakePorts


async def burst(driver: Driver, *keys: str) -> None:
    """All keys arrive before the first one is handled, as from one read of the terminal.

    A text that begins with `paste:` is pasted.
    """
    for key in keys:
        kind, _, text = key.partition("paste:")
        if text and not kind:
            driver.app.post_message(events.Paste(text))
        else:
            name = {"/": "slash", " ": "space"}.get(key, key)
            driver.app.post_message(events.Key(name, key if len(key) == 1 else None))
    await driver.settle()


async def open_form(driver: Driver) -> list[ParameterField]:
    await driver.press("R")
    await driver.reaches("recipes")
    await driver.until(lambda: driver.app.screen.query(ParameterField), "the form")
    fields = list(driver.app.screen.query(ParameterField))
    driver.app.screen.set_focus(fields[0])
    await driver.settle()
    return fields


async def open_plan(driver: Driver) -> PlanField:
    await driver.press("2")
    await driver.sees("submits exactly this script")
    field = driver.app.focused
    assert isinstance(field, PlanField)
    return field


async def test_backspaces_and_digits_in_one_packet_replace_a_value() -> None:
    async with opened() as driver:
        field, *_ = await open_form(driver)
        await burst(driver, *"100")
        await burst(driver, *["backspace"] * 3, *"200")
        assert field.value == "200"
        await burst(driver, "home", "delete", "right", "left", *"1", "end", "backspace", *"9", "ctrl+a", *"7")
        assert field.value == "7109"
        await burst(driver, "ctrl+u", *"a b", "ctrl+w", "paste:c\x1bd\nrest", "left", *"x", "end", *"!")
        assert field.value == "a cxd109!"
        await burst(driver, "left", "left", "ctrl+k", *"8")
        assert field.value == "a cxd108"


async def test_tab_in_a_packet_leads_to_the_next_field_and_selects_its_value() -> None:
    async with opened() as driver:
        first, second, *_ = await open_form(driver)
        await burst(
            driver, *"11", "tab", *"22", "tab", "shift+tab", *"33", "backspace", "shift+tab", "end", *"4"
        )
        assert (first.value, second.value) == ("114", "3")


async def test_enter_in_a_packet_submits_the_characters_before_it() -> None:
    ports = FakePorts()
    async with opened(ports=ports) as driver:
        field, *_ = await open_form(driver)
        await burst(driver, *"0.13", "backspace", "enter")
        await driver.reaches("plan")
        await driver.until(lambda: ports.launches.requests, "the plan")
        assert dict(ports.launches.requests[-1].set) == {field.parameter.name: "0.1"}


async def test_a_value_belongs_to_the_recipe_in_whose_form_it_was_typed() -> None:
    ports = FakePorts()
    async with opened(ports=ports) as driver:
        field, *_ = await open_form(driver)
        await burst(driver, *"0.5", "escape", *"j")
        await driver.until(lambda: field not in driver.app.screen.query(ParameterField), "the next form")
        await burst(driver, "enter")
        await driver.until(lambda: ports.launches.requests, "the plan")
        assert ports.launches.requests[-1].recipe != field.launch_name
        assert dict(ports.launches.requests[-1].set) == {}


async def test_a_filter_typed_and_entered_in_one_packet_stands() -> None:
    async with opened() as driver:
        before = driver.text()
        await burst(driver, *"/zzq", "backspace", "enter", "slash")
        line = driver.app.screen.query_one(FilterLine)
        assert line.display
        assert line.value == "zz"
        await burst(driver, "ctrl+u", "enter")
        assert not line.display
        await driver.until(lambda: driver.text().splitlines()[2:-2] == before.splitlines()[2:-2], "all rows")


async def test_text_typed_into_the_palette_stays_in_order() -> None:
    async with opened() as driver:
        await driver.press("ctrl+p")
        await driver.until(lambda: isinstance(driver.app.focused, Input), "the palette")
        await burst(driver, *"qui", "backspace", "backspace", *"x", "home", *"a")
        assert isinstance(driver.app.focused, Input)
        assert driver.app.focused.value == "aqx"


async def test_enter_behind_an_edit_launches_nothing_until_the_new_plan_was_shown() -> None:
    ports = FakePorts()
    async with opened(ports=ports) as driver:
        field = await open_plan(driver)
        driver.clock.turn(5)
        await burst(driver, *"4", "enter", "tab", "enter")
        await driver.until(lambda: len(ports.launches.requests) == 2, "the new plan")
        await driver.sees("submits exactly this script")
        assert not ports.launches.submitted
        assert field.value == "4"
        await driver.press("enter")
        assert not ports.launches.submitted, "the plan has just been painted"
        driver.clock.turn(0.6)
        await driver.press("enter")
        await driver.until(lambda: ports.launches.submitted, "the submission")
        assert ports.launches.submitted[-1].resources.num_nodes == 4


async def test_keys_after_enter_change_neither_the_launch_nor_the_value_shown() -> None:
    ports = FakePorts()
    async with opened(ports=ports) as driver:
        field = await open_plan(driver)
        driver.clock.turn(5)
        shown = field.value
        await burst(driver, "enter", *"4", "backspace", "paste:7")
        await driver.until(lambda: ports.launches.submitted, "the submission")
        assert field.value == shown
        assert str(ports.launches.submitted[-1].resources.num_nodes) == shown
        assert len(ports.launches.requests) == 1


async def test_a_value_that_no_plan_was_asked_for_yet_stops_the_launch() -> None:
    """The field's own message has not arrived yet; the text in the field counts."""
    ports = FakePorts()
    async with opened(ports=ports) as driver:
        field = await open_plan(driver)
        driver.clock.turn(5)
        with field.prevent(Input.Changed):
            field.value = "4"
        await driver.press("enter")
        assert not ports.launches.submitted


async def test_a_plan_that_comes_in_leaves_text_that_was_typed_meanwhile() -> None:
    ports = FakePorts()
    async with opened(ports=ports) as driver:
        field = await open_plan(driver)
        screen = driver.app.screen
        assert isinstance(screen, PlanScreen)
        assert screen.plan is not None
        with field.prevent(Input.Changed):
            field.value = "4"
        screen.set_focus(None)
        await screen.set_plan(screen.plan, ports.launches.requests[-1], screen.edit)
        assert field.value == "4"


async def test_a_new_form_keeps_text_that_was_typed_while_it_was_built() -> None:
    ports = FakePorts()
    async with opened(ports=ports) as driver:
        field = await open_plan(driver)
        screen = driver.app.screen
        assert isinstance(screen, PlanScreen)
        rows = [row.field for row in screen.query(PlanField)]
        field.value = "34"
        await screen._replace_fields(tuple(row for row in rows if row.name != "environment"))
        assert "environment" not in [row.field.name for row in screen.query(PlanField)]
        assert driver.app.focused is field
        assert field.value == "34"
        await driver.until(lambda: len(ports.launches.requests) == 2, "the plan of what is shown")
        assert ports.launches.requests[-1].num_nodes == 34


@pytest.mark.parametrize("keys", [("q", "d"), ("ctrl+q", "r"), ("q", "question_mark")])
async def test_keys_typed_while_coach_leaves_open_nothing(keys: tuple[str, ...]) -> None:
    async with opened() as driver:
        await burst(driver, *keys)
        await driver.until(lambda: not driver.app.is_running, "coach ends")
        assert driver.app.crash is None
        assert not driver.app.return_code


async def test_text_pasted_outside_of_a_field_does_nothing_and_says_so() -> None:
    async with opened() as driver:
        await burst(driver, "paste:q d R")
        await driver.sees("pasted text is no key")
        assert driver.place == "cluster"


async def test_a_number_typed_right_after_the_tab_into_the_form_stands_in_its_first_field() -> None:
    async with opened() as driver:
        field, *_ = await open_form(driver)
        driver.app.screen.set_focus(driver.app.screen.query_one("#ladder"))
        await driver.settle()
        await burst(driver, "tab", *"0.3")
        assert (driver.app.focused, field.value) == (field, "0.3")
        assert driver.place == "recipes"
