"""The palette lists the actions of the screen below it, and runs them there."""

from __future__ import annotations

import asyncio

import pytest
from textual.command import CommandList

from coach.tui.app import CoachApp
from coach.tui.mode import Mode
from coach.tui.ports import RecipeKey
from tests.tui.driving import Driver, opened
from tests.tui.fake_ports import FakePorts, FakeRecipes

UNKEYED = RecipeKey(None, "/home/ada/my-ddp", "My own")


class ManyRecipes(FakeRecipes):
    def recipe_keys(self) -> tuple[RecipeKey, ...]:
        return (*super().recipe_keys(), UNKEYED)


def offered(app: CoachApp) -> dict[str, str]:
    return {command.title: command.help for command in app.get_system_commands(app.screen)}


async def open_palette(driver: Driver) -> CommandList:
    await driver.pilot.press("ctrl+p")
    await driver.until(lambda: driver.app.screen.query(CommandList), "the palette")
    commands = driver.app.screen.query_one(CommandList)
    await driver.until(lambda: commands.option_count, "its commands")
    return commands


async def choose(driver: Driver, words: str) -> None:
    """Search for these words and take the first command."""
    commands = await open_palette(driver)
    below = driver.app.screen_stack[-2]
    await driver.pilot.press(*("space" if letter == " " else letter for letter in words))
    await driver.until(
        lambda: commands.option_count == 1 and words in str(commands.options[0].prompt), f"only {words!r}"
    )
    await driver.pilot.press("down", "enter")
    await driver.until(lambda: below in driver.app.screen_stack, "the screen below")
    await driver.settle()


async def test_the_palette_lists_the_keys_of_the_screen_below_it_and_a_launch_for_each_recipe() -> None:
    async with opened(ports=FakePorts(recipes=ManyRecipes())) as driver:
        commands = await open_palette(driver)
        listed = [str(option.prompt) for option in commands.options]
        assert any(text.startswith("All your runs\nr  ") for text in listed), listed
        assert any(text.startswith("Filter") for text in listed), listed
        assert "launch baseline\n1  One device" in listed
        assert "launch my-ddp\nMy own" in listed
        assert "Open the row under the cursor" in driver.text()


async def test_every_screen_offers_its_own_keys_and_the_launches() -> None:
    async with opened() as driver:
        at_home = offered(driver.app)
        await driver.press("R")
        await driver.reaches("recipes")
        at_recipes = offered(driver.app)
        await driver.press("escape", "1")
        await driver.reaches("plan")
        at_plan = offered(driver.app)
    assert "All recipes, step by step" in at_home.keys() - at_recipes.keys()
    assert "The next view" in at_recipes.keys() - at_home.keys()
    for place in (at_home, at_recipes, at_plan):
        assert {"launch baseline", "launch ddp", "Leave coach from anywhere"} <= place.keys()
    assert "Submit exactly what is shown" not in at_plan, "a plan is confirmed where it is read"


async def test_a_command_is_done_on_the_screen_below() -> None:
    async with opened() as driver:
        await choose(driver, "All your runs")
        await driver.reaches("runs")
        await choose(driver, "Mark a run to compare")
        assert driver.app.context.marked, "the run under the cursor"


async def test_a_recipe_without_a_key_is_launched_by_its_name() -> None:
    ports = FakePorts(recipes=ManyRecipes())
    async with opened(ports=ports) as driver:
        await choose(driver, "launch my-ddp")
        await driver.reaches("plan")
        await driver.until(lambda: ports.launches.requests, "its plan")
    assert [request.recipe for request in ports.launches.requests] == ["/home/ada/my-ddp"]
    assert not ports.launches.submitted


async def test_a_command_works_while_a_field_has_the_focus() -> None:
    async with opened() as driver:
        await driver.press("R")
        await driver.reaches("recipes")
        await driver.press("tab")
        await choose(driver, "Every key that works here")
        await driver.reaches("help")


@pytest.mark.parametrize("mode", [Mode.READONLY, Mode.REPLAY])
async def test_nothing_that_changes_something_is_offered_where_nothing_may_be_changed(mode: Mode) -> None:
    async with opened(mode=mode) as driver:
        listed = offered(driver.app)
        screen = driver.app.top
        assert screen is not None
        keys = screen.keys()
        off = {key.description for key in keys if screen.reason_off(key) is not None}
    assert "All your runs" in listed
    assert "Cancel your job" in off
    assert not off & listed.keys()
    assert not [title for title in listed if title.lower().startswith("launch")]


async def test_markup_in_a_name_is_shown_as_it_stands() -> None:
    class Marked(FakeRecipes):
        def recipe_keys(self) -> tuple[RecipeKey, ...]:
            named = RecipeKey(None, "[red]x [ \x1b[31m", "[@click=app.quit]y[/]")
            return (*super().recipe_keys(), named)

    async with opened(ports=FakePorts(recipes=Marked())) as driver:
        commands = await open_palette(driver)
        shown = commands.options[-1].prompt
        assert str(shown) == "launch [red]x [ \u241b[31m\n[@click=app.quit]y[/]"


async def test_quitting_during_a_search_of_the_palette_is_no_error() -> None:
    async with opened() as driver:
        search = driver.app.run_worker(asyncio.Event().wait())
        await driver.settle()
        driver.app.exit()
        assert search.is_cancelled
