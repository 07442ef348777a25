"""Attention decides the number of queries: keys, focus, and an hour without either."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest
from textual import events

from coach.model.politeness import ACTIVE_S, Attention, Spending
from coach.render.text import plain
from coach.tui.app import AGES_S
from coach.tui.render.header import SLOW_S, asleep_line, spending_line
from tests.tui.driving import opened
from tests.tui.fake_session import FakeSession, make_snapshot, status


async def test_after_an_hour_without_a_key_the_screen_says_so_and_the_next_key_only_wakes() -> None:
    async with opened() as driver:
        await driver.press("down")
        driver.clock.turn(3700)
        await driver.until(
            lambda: driver.session.attentions and driver.session.attentions[-1].is_asleep, "coach sleeps"
        )
        await driver.sees("no key for 62 min")
        assert "any key continues" in driver.text()
        await driver.press("?")
        assert driver.place == "cluster", "what was on the screen was old: nothing is done by that key"
        assert driver.session.attentions[-1] == Attention()
        assert "no key for" not in driver.text()
        await driver.press("?")
        await driver.reaches("help")


async def test_a_terminal_without_the_focus_makes_coach_ask_less_until_it_is_back() -> None:
    async with opened() as driver:
        driver.app.post_message(events.AppBlur())
        await driver.until(
            lambda: driver.session.attentions and not driver.session.attentions[-1].is_focused,
            "it looks away",
        )
        assert not driver.session.attentions[-1].is_active
        driver.app.post_message(events.AppFocus())
        await driver.until(lambda: driver.session.attentions[-1].is_active, "it is back")


async def test_two_minutes_without_a_key_are_idle_and_a_key_ends_that_at_once() -> None:
    async with opened() as driver:
        driver.clock.turn(ACTIVE_S + 1)
        await driver.until(
            lambda: driver.session.attentions and not driver.session.attentions[-1].is_active, "idle"
        )
        await driver.press("down")
        assert driver.session.attentions[-1].is_active


async def test_the_counter_stands_in_the_footer_and_a_note_wins_over_it() -> None:
    snapshot = replace(make_snapshot(), spending=Spending(7, 24.0, is_waiting=True))
    async with opened(FakeSession(snapshot)) as driver:
        await driver.sees("coach waits, to spare Slurm · 7 RPC/min of 24")
        last = driver.text().rstrip().splitlines()[-1]
        assert last.rstrip().endswith("7 RPC/min of 24")
        driver.app.top.note("no fix here")  # type: ignore[union-attr]
        await driver.sees("no fix here")
        assert "RPC/min" not in driver.text()


@pytest.mark.parametrize(("duration_s", "is_slow"), [(0.4, False), (SLOW_S, True), (None, False)])
def test_the_footer_names_a_controller_slow_when_its_answer_takes_long(
    duration_s: float | None, is_slow: bool
) -> None:
    sources = MappingProxyType({"jobs": replace(status("jobs"), duration_s=duration_s)})
    spending = Spending(3, 1.5, is_waiting=True)
    shown = plain(spending_line(replace(make_snapshot(sources=sources), spending=spending), 100))
    assert shown.endswith("3 RPC/min of 1.5")
    assert ("controller slow, backing off" in shown) is is_slow


def test_where_slurm_is_not_asked_there_is_no_counter() -> None:
    assert spending_line(make_snapshot(), 80) == ()


def test_the_line_of_a_sleeping_coach_fits_a_narrow_terminal() -> None:
    assert "no key for" in plain(asleep_line(3700.0, 30))


@pytest.mark.parametrize(("age_s", "num_looks"), [(2.0, 0), (AGES_S + 1, 1)])
async def test_back_on_the_first_screen_queue_and_nodes_are_read_at_once_unless_they_are_new(
    age_s: float, num_looks: int
) -> None:
    snapshot = make_snapshot(sources=MappingProxyType({"jobs": status("jobs", age_s=age_s)}))
    session = FakeSession(snapshot)
    async with opened(session) as driver:
        assert session.num_looks_at_cluster == 0
        await driver.press("r")
        await driver.reaches("runs")
        await driver.press("escape")
        await driver.reaches("cluster")
        await driver.until(
            lambda: session.num_looks_at_cluster == num_looks, "it is read as often as it has to be"
        )
