"""The GPUs screen, driven by keys."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from coach.lookback.history import History
from coach.tui.messages import ScreenOpened
from tests.tui.driving import Driver, opened
from tests.tui.fake_session import (
    RUN_ID,
    FakeSession,
    make_history,
    make_job,
    make_run,
    make_snapshot,
    make_target,
)
from tests.tui.gpu_jobs import make_gpu_job


def watching(history: History, **changes: object) -> FakeSession:
    resources = {"num_nodes": max(1, len(history.nodes)), "gpus_per_node": 8, "nproc_per_node": 8}
    run = make_run(**{"resources": resources, **changes})
    target = replace(make_target(run, make_job()), sensor_gaps=())
    snapshot = make_snapshot(runs=(run,), targets=MappingProxyType({RUN_ID: target}))
    return FakeSession(snapshot, {RUN_ID: history})


async def open_gpus(driver: Driver) -> None:
    await driver.press("r")
    await driver.press("enter")
    await driver.press("D")
    await driver.reaches("gpus")


async def test_from_a_run_to_its_gpus_their_past_and_its_processes_and_back() -> None:
    session = watching(make_gpu_job())
    async with opened(session, size=(80, 24)) as driver:
        await open_gpus(driver)
        assert session.watches[-1].targets == (RUN_ID,)
        await driver.sees("8 GPUs on 1 node")
        await driver.sees("POWER/LIMIT")
        await driver.sees("node01:3")
        await driver.press("v")
        await driver.sees("loss 0.5")
        await driver.sees("newest")
        await driver.press("v")
        await driver.sees("GPU MEM")
        await driver.press("v", "v")
        await driver.sees("POWER/LIMIT")
        await driver.press("escape")
        await driver.reaches("job")


async def test_64_nodes_are_one_map_and_a_filter_leads_to_one_of_them() -> None:
    async with opened(watching(make_gpu_job(64, 8, 2)), size=(80, 24)) as driver:
        await open_gpus(driver)
        await driver.sees("512 GPUs on 64 nodes")
        for node in ("node01", "node16", "node17", "node64"):
            await driver.sees(node)
        await driver.sees("power over limit %  min 16 node01:3")
        await driver.press("M")
        await driver.sees("utilization % (power over limit: median 7")
        await driver.press("slash", *"node64", "enter")
        await driver.sees("8 GPUs on 1 node")
        await driver.sees("POWER/LIMIT")
        await driver.press("M")
        await driver.sees("there is no heat map here")
        await driver.press("v", "v")
        await driver.sees(" 511 ")
        assert " 503 " not in driver.text()
        await driver.press("escape")
        await driver.press("v", "v")
        await driver.sees("512 GPUs on 64 nodes")


async def test_a_run_without_gpus_says_so_and_still_shows_its_loss() -> None:
    session = watching(make_history(), resources={"num_nodes": 2, "gpus_per_node": 0, "nproc_per_node": 1})
    async with opened(session, size=(80, 24)) as driver:
        await open_gpus(driver)
        await driver.sees("no GPU was requested")
        await driver.sees("2 ranks, none far from the others")
        await driver.press("v", "v")
        await driver.sees("─ loss")


async def test_a_job_that_coach_did_not_launch_has_the_same_screen_once_it_is_measured() -> None:
    session = FakeSession(make_snapshot(), {"18": make_gpu_job()})
    async with opened(session, size=(80, 24)) as driver:
        driver.app.screen.post_message(ScreenOpened("job", "18"))
        await driver.reaches("job")
        await driver.press("D")
        await driver.reaches("gpus")
        await driver.sees("8 GPUs on 1 node")
        assert session.watches[-1].targets == ("18",)


async def test_a_job_that_nothing_measures_names_the_key_that_measures_it() -> None:
    async with opened(size=(80, 24)) as driver:
        driver.app.screen.post_message(ScreenOpened("job", "18"))
        await driver.reaches("job")
        await driver.press("D")
        await driver.sees("no GPU was measured; t on the job measures inside it")


async def test_another_user_s_gpus_are_not_measured() -> None:
    async with opened(size=(80, 24)) as driver:
        driver.app.screen.post_message(ScreenOpened("job", "12"))
        await driver.reaches("job")
        await driver.press("D")
        await driver.sees("bob's, not yours")
        assert driver.place == "job"
