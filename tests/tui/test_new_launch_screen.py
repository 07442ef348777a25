"""A new launch: `+` lists the launchable programs here, Enter opens the plan of one."""

from __future__ import annotations

from pathlib import Path

import pytest

from coach.config import Settings
from coach.model.errors import UserError
from coach.tui.key_guard import GUARD_S
from coach.tui.live_ports import LiveLaunchables, Reach
from coach.tui.mode import Mode
from coach.workflows.launching.launchables import Origin
from tests.tui.driving import Driver, opened
from tests.tui.fake_ports import FakeLaunchables, FakePorts


async def list_all(driver: Driver) -> None:
    await driver.press("plus")
    await driver.reaches("new_launch")
    await driver.sees("4 programs")


@pytest.mark.parametrize("size", [(80, 24), (120, 36)])
async def test_the_project_stands_before_commands_files_and_recipes(size: tuple[int, int]) -> None:
    async with opened(size=size) as driver:
        await list_all(driver)
        rows = [row.split()[:2] for row in driver.text().splitlines() if row.split()[:1]]
        found = [row for row in rows if row[0] in {"yours", "recent", "file", "recipe"}]
        assert found == [
            ["yours", "pretrain"],
            ["recent", "./train.sh"],
            ["file", "tools/finetune.py"],
            ["recipe", "ddp"],
        ]
        await driver.sees("from  /home/ada/project")
        await driver.sees("2 more files are not shown")
        await driver.sees("2 h ago")


async def test_the_filter_finds_by_name_and_by_origin() -> None:
    async with opened() as driver:
        await list_all(driver)
        await driver.press("slash", *"finetune", "enter")
        await driver.sees('filter "finetune": 1')
        await driver.press("enter")
        await driver.reaches("plan")
        assert [row.name for row in driver.ports.launchables.opened] == ["tools/finetune.py"]


async def test_enter_plans_and_only_the_plan_submits() -> None:
    async with opened() as driver:
        await list_all(driver)
        await driver.press("down", "enter")
        await driver.reaches("plan")
        await driver.sees("submits exactly this script")
        assert driver.ports.launches.submitted == []
        (row,) = driver.ports.launchables.opened
        assert row.origin is Origin.RECENT
        (request,) = driver.ports.launches.requests
        assert (request.recipe, request.backend) == ("train", "slurm")
        assert request.own is not None
        driver.clock.turn(GUARD_S + 0.1)
        await driver.press("enter")
        await driver.until(lambda: driver.ports.launches.submitted, "submitted")


async def test_why_a_file_cannot_be_launched_is_shown_whole_and_can_be_left() -> None:
    why = "tools/plain.sh: its first line does not name an interpreter, so Slurm would refuse it: " + "x" * 60
    ports = FakePorts(launchables=FakeLaunchables(refusal=UserError(why, "write #!/bin/bash there")))
    async with opened(ports=ports) as driver:
        await list_all(driver)
        await driver.press("enter")
        await driver.reaches("plan")
        await driver.sees("x" * 60)
        await driver.sees("write #!/bin/bash there")
        assert driver.ports.launches.requests == []
        await driver.press("escape")
        await driver.reaches("new_launch")


async def test_several_enters_open_one_plan() -> None:
    async with opened() as driver:
        await list_all(driver)
        await driver.pilot.press("enter", "enter", "enter")
        await driver.reaches("plan")
        await driver.press("escape")
        await driver.reaches("new_launch")


@pytest.mark.parametrize("mode", [Mode.READONLY, Mode.REPLAY])
async def test_where_nothing_may_be_launched_the_list_is_shown_and_enter_says_why(mode: Mode) -> None:
    async with opened(mode=mode) as driver:
        await list_all(driver)
        await driver.press("enter")
        await driver.sees("nothing can be launched or changed")
        assert driver.place == "new_launch"


async def test_files_written_meanwhile_are_found_by_reading_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "first.py").write_text("")
    ports = FakePorts()
    ports.launchables = LiveLaunchables(  # type: ignore[assignment]  # the real one
        Reach(Settings(tmp_path / "runs", tmp_path / "cache", tmp_path / "config"), {})
    )
    async with opened(ports=ports) as driver:
        await driver.press("plus")
        await driver.sees("first.py")
        (tmp_path / "second.sbatch").write_text("#!/bin/sh\n")
        await driver.press("ctrl+r")
        await driver.sees("second.sbatch")
        (tmp_path / "third.sh").write_text("#!/bin/sh\n")
        await driver.press("d")
        await driver.reaches("doctor")
        await driver.press("escape")
        await driver.sees("third.sh")
