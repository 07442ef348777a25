"""The Recipes screen, driven by keys: read a step, see its changes, fill in its form, and reach the plan."""

from __future__ import annotations

from pathlib import Path
from threading import Event
from types import MappingProxyType

import pytest

from coach.model.launching.launch import SweepPoint
from coach.tui.key_guard import GUARD_S
from coach.tui.mode import Mode
from coach.tui.screens.recipes import ParameterField
from tests.tui.driving import Driver, opened
from tests.tui.fake_ports import FakeRecipes
from tests.tui.fake_session import FakeSession, make_history, make_pages, make_run, make_snapshot, make_target


async def open_recipes(driver: Driver) -> None:
    await driver.press("R")
    await driver.reaches("recipes")
    await driver.sees("3 recipes")


async def test_the_ladder_is_read_step_by_step_with_lesson_and_diff() -> None:
    async with opened() as driver:
        await open_recipes(driver)
        await driver.sees("A training loop")
        await driver.press("j")
        await driver.sees("Gradients are averaged")
        assert "0.02 (calculated)" in driver.text()
        await driver.press("v")
        await driver.sees("+model = DDP(SimpleCNN())")
        assert "what ddp changes from baseline" in driver.text()


async def test_typing_into_the_form_shows_its_changes_in_the_script() -> None:
    async with opened() as driver:
        await open_recipes(driver)
        await driver.press("j", "tab")
        await driver.sees("Learning rate of SGD")
        assert "usual 0.0001 to 1" in driver.text()
        await driver.press("0", ".", "3")
        await driver.sees("+srun --kill-on-bad-exit=1 coach run -- torchrun trainers/ddp.py --lr 0.3")


@pytest.mark.parametrize("is_early", [False, True])
async def test_one_tab_leads_into_the_first_field_and_a_number_launches_nothing(
    monkeypatch: pytest.MonkeyPatch, is_early: bool
) -> None:
    pages, can_read = make_pages(), Event()
    async with opened(size=(80, 24)) as driver:
        monkeypatch.setattr(FakeRecipes, "recipe_pages", lambda self: (can_read.wait(60) and pages, ()))
        if is_early:
            await driver.press("R", "tab")
            can_read.set()
        else:
            can_read.set()
            await open_recipes(driver)
            await driver.until(lambda: driver.app.screen.query(ParameterField), "the form")
            await driver.press("tab")
        await driver.until(lambda: isinstance(driver.app.focused, ParameterField), "a field has the focus")
        await driver.press("0", ".", "3")
        field = driver.app.focused
        assert isinstance(field, ParameterField)
        assert (field.parameter.name, field.value) == ("lr", "0.3")
        assert driver.place == "recipes"
        assert not driver.ports.launches.submitted


async def test_the_page_can_be_scrolled_by_keys_and_left_for_the_ladder() -> None:
    async with opened() as driver:
        await open_recipes(driver)
        await driver.until(lambda: driver.app.screen.query(ParameterField), "the form")
        await driver.press("shift+tab")
        assert driver.app.focused is driver.app.screen.query_one("#page")
        await driver.press("tab", "j")
        await driver.sees("Gradients are averaged")


async def test_a_narrow_form_shows_a_line_for_each_value() -> None:
    for width, is_beside in ((80, False), (120, True)):
        async with opened(size=(width, 24)) as driver:
            await open_recipes(driver)
            await driver.sees("goes into the form: meaning, unit, limits")
            meanings = driver.app.screen.query("#form .plan-meaning")
            assert {meaning.display for meaning in meanings} == {is_beside}
            assert {row.outer_size.height for row in driver.app.screen.query("#form .parameter-row")} == {1}


async def test_an_impossible_value_shows_its_error_beside_its_meaning() -> None:
    async with opened() as driver:
        await open_recipes(driver)
        await driver.press("j", "tab", "-", "1")
        await driver.sees("must be above 0")


async def test_enter_in_the_form_opens_the_plan_with_its_values_and_enter_submits_it() -> None:
    async with opened() as driver:
        await open_recipes(driver)
        await driver.press("j", "tab", "0", ".", "3", "enter")
        await driver.reaches("plan")
        await driver.sees("submits exactly this script")
        driver.clock.turn(GUARD_S + 0.1)
        await driver.press("enter")
        await driver.until(lambda: driver.ports.launches.submitted, "submitted")
        assert driver.ports.launches.submitted[0].parameters["lr"] == 0.3


async def test_a_user_s_own_recipe_is_launched_by_its_path() -> None:
    async with opened() as driver:
        await open_recipes(driver)
        await driver.sees("ddp (yours)")
        await driver.press("G", "enter")
        await driver.reaches("plan")
        await driver.until(lambda: driver.ports.launches.requests, "asked for a plan")
        assert driver.ports.launches.requests[-1].recipe == "/home/ada/my-ddp/ddp.toml"


async def test_esc_leaves_the_form_first_and_then_the_screen() -> None:
    async with opened() as driver:
        await open_recipes(driver)
        await driver.press("tab", "escape")
        assert driver.place == "recipes"
        await driver.press("escape")
        await driver.reaches("cluster")


async def test_a_recording_can_be_read_and_launches_nothing() -> None:
    async with opened(mode=Mode.REPLAY) as driver:
        await open_recipes(driver)
        await driver.press("enter")
        await driver.sees("nothing can be launched")
        assert driver.place == "recipes"


async def test_it_fits_a_small_terminal() -> None:
    async with opened(size=(80, 24)) as driver:
        await open_recipes(driver)
        await driver.press("j")
        await driver.sees("Data parallelism")
        assert "max_steps" in driver.text()
        await driver.press("v")
        await driver.sees("+model = DDP(SimpleCNN())")


async def test_a_sweep_is_one_table_from_any_of_its_runs() -> None:
    ids = ("20261121-142233-scale-0001", "20261121-142233-scale-0002")
    group = [
        make_run(
            run_id, recipe="scale", job_id=str(30 + i), sweep=SweepPoint(ids[0], "world_size", i + 1, i, 2)
        )
        for i, run_id in enumerate(ids)
    ]
    targets = {run.run_id: make_target(run) for run in group}
    snapshot = make_snapshot(runs=tuple(group), jobs=(), targets=MappingProxyType(targets))
    histories = {run_id: make_history(num_ranks=i + 1) for i, run_id in enumerate(ids)}
    async with opened(FakeSession(snapshot, histories)) as driver:
        await driver.press("r")
        await driver.sees("world_size 2")
        await driver.press("c")
        await driver.reaches("group")
        await driver.sees("a run for each world_size")
        assert "50 ± 3 %" in driver.text()
        assert set(driver.session.watches[-1].targets) == set(ids)


async def test_five_keys_open_five_plans_from_anywhere() -> None:
    from coach.config import Settings
    from coach.workflows.launching.recipes import recipe_keys

    names = {key: name for key, name, _ in recipe_keys(Settings(Path("/r"), Path("/c"), Path("/d")))}
    assert [names.get(key) for key in "12345"] == ["baseline", "ddp", "amp", "fsdp", "deepspeed_zero"]


async def test_one_key_opens_the_plan_of_the_ladder_with_this_recipe() -> None:
    async with opened() as driver:
        await open_recipes(driver)
        await driver.press("j", "=")
        await driver.reaches("plan")
        await driver.until(lambda: driver.ports.launches.requests, "the plan of the ladder")
        asked = driver.ports.launches.requests[-1]
        assert asked.ladder is not None
        assert [rung.recipe for rung in asked.ladder.rungs] == ["baseline", "ddp"]
