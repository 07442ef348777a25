"""The permission to change something follows the settings while coach is open, with the reason of the user or
the site."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from coach.config import Lock, Settings, Switch
from coach.tui.app import CoachApp
from coach.tui.key_guard import GUARD_S
from coach.tui.live_ports import Reach
from coach.tui.mode import Mode
from coach.tui.wiring import Opening, _standing
from tests.tui.driving import Clock, Driver
from tests.tui.fake_ports import FakePorts
from tests.tui.fake_session import FakeSession, make_snapshot

SETTINGS = Settings(Path("/r"), Path("/c"), Path("/d"))
CLOSED = replace(
    SETTINGS,
    is_readonly=True,
    origins={"readonly": "site.toml:1"},
    locks={"readonly": Lock("an exam is on", "site.toml:3")},
)


def test_a_site_that_closes_takes_the_launch_keys_away_and_says_why() -> None:
    assert _standing(SETTINGS, False) == (Mode.LIVE, None, {})
    assert _standing(SETTINGS, True) == (Mode.READONLY, None, {})
    mode, why, _ = _standing(CLOSED, False)
    assert mode is Mode.READONLY
    assert why == "coach is read-only: locked by the site (site.toml:3): an exam is on"


async def test_an_open_coach_goes_read_only_and_back_with_the_settings() -> None:
    reach = Reach(SETTINGS, {})
    session, ports, clock = FakeSession(make_snapshot()), FakePorts(), Clock()
    opening = Opening(
        session, ports, Mode.LIVE, "ada", "slurm", "slurm", lambda: _standing(reach.settings, False)
    )
    app = CoachApp(opening, clock)
    async with app.run_test(size=(120, 36)) as pilot:
        driver = Driver(app, pilot, session, ports, clock)
        await driver.until(lambda: app.context.launch_keys, "the recipes")
        reach.use(CLOSED)
        session.push(make_snapshot())
        await driver.until(lambda: app.context.mode is Mode.READONLY, "the site's word")
        await driver.press("1")
        await driver.sees("an exam is on")
        assert ports.launches.requests == []
        reach.use(SETTINGS)
        session.push(make_snapshot())
        await driver.until(lambda: app.context.mode is Mode.LIVE, "the site has opened again")
        clock.turn(GUARD_S + 0.1)
        await driver.press("1")
        await driver.reaches("plan")


KEYS = {
    Switch.CANCEL: "x",
    Switch.HOLD: "h",
    Switch.REQUEUE: "Q",
    Switch.TIMELIMIT: "T",
    Switch.RESUBMIT: "A",
    Switch.SHELL: "exclamation_mark",
    Switch.ATTACH: "t",
    Switch.STACKS: "S",
    Switch.LAUNCH: "1",
}


@pytest.mark.parametrize("switch", KEYS)
async def test_a_key_that_the_site_switches_off_says_so_until_it_is_on_again(switch: Switch) -> None:
    origins = {switch.key: "/etc/coach/site.toml:4"}
    reach = Reach(replace(SETTINGS, switched_off=frozenset({switch}), origins=origins), {})
    session, ports, clock = FakeSession(make_snapshot()), FakePorts(), Clock()
    opening = Opening(
        session, ports, Mode.LIVE, "ada", "slurm", "slurm", lambda: _standing(reach.settings, False)
    )
    app = CoachApp(opening, clock)
    async with app.run_test(size=(160, 36)) as pilot:
        driver = Driver(app, pilot, session, ports, clock)
        await driver.until(lambda: app.context.launch_keys, "the recipes")
        session.push(make_snapshot())
        await driver.settle()
        await driver.press(KEYS[switch])
        await driver.sees(f"is off: switched off by the site: {switch.key} in /etc/coach/site.toml:4")
        assert driver.place == "cluster"
        offer = {Switch.CANCEL: "x cancel", Switch.STACKS: "S stacks", Switch.LAUNCH: " launch "}.get(switch)
        await driver.press("escape")
        assert offer is None or offer not in driver.text()
        reach.use(SETTINGS)
        session.push(make_snapshot())
        await driver.until(lambda: not app.context.switched_off, "it is on again")
        await driver.sees(offer or "")
