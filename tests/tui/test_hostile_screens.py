"""Every screen there is, with hostile text in every field of everything that it shows."""

from __future__ import annotations

from typing import Any

import pytest
from textual.command import CommandList

from coach.tui.screens.job import JobScreen
from tests.hostile import HOSTILE, LONG, assert_fills, assert_harmless, poisoned
from tests.tui.driving import Driver, opened
from tests.tui.every_screen import arguments, screen_classes
from tests.tui.fake_ports import FakePorts
from tests.tui.fake_session import (
    RUN_ID,
    FakeSession,
    make_history,
    make_snapshot,
    nan_diagnosis,
)

STRANGE = "".join(text for text in HOSTILE if text != LONG)


class _Poisoning:
    """Any answer of a port, with hostile text in it."""

    def __init__(self, inner: object, text: str, *, is_filled: bool = False) -> None:
        self._inner = inner
        self._text = text
        self._is_filled = is_filled

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found
        return lambda *args, **more: poisoned(found(*args, **more), self._text, is_filled=self._is_filled)


def poisoned_ports(text: str, *, is_filled: bool = False) -> FakePorts:
    made: dict[str, Any] = {
        name: _Poisoning(port, text, is_filled=is_filled) for name, port in vars(FakePorts()).items()
    }
    return FakePorts(**made)


def check(driver: Driver, where: str) -> None:
    strips = driver.app.screen._compositor.render_strips()
    rows = [strip.text for strip in strips]
    for row in rows:
        assert_harmless(row, where)
    assert_fills(rows, driver.app.size.width, where)
    for strip in strips:
        for segment in strip:
            meta = segment.style.meta if segment.style is not None else {}
            assert not any(key.startswith("@") and "app.quit" in str(value) for key, value in meta.items()), (
                where
            )
            assert segment.style is None or segment.style.link is None, where


def test_all_screens_are_found() -> None:
    assert {"ClusterScreen", "JobScreen", "PlanScreen"} <= {cls.__name__ for cls in screen_classes()}


@pytest.mark.parametrize(
    ("text", "size", "is_filled"),
    [
        (STRANGE, (120, 36), False),
        (STRANGE, (80, 24), True),
        (LONG, (80, 24), False),
    ],
    ids=["120x36", "80x24, every field", "10 kB"],
)
async def test_no_screen_lets_hostile_text_do_anything(
    text: str, size: tuple[int, int], is_filled: bool
) -> None:
    snapshot = poisoned(make_snapshot(diagnoses={RUN_ID: nan_diagnosis()}), text, is_filled=is_filled)
    session = FakeSession(snapshot, {RUN_ID: make_history()})
    ports = poisoned_ports(text, is_filled=is_filled)
    async with opened(session, ports, size=size) as driver:
        check(driver, "home")
        opened_as = [(cls, arguments(cls, text)) for cls in screen_classes()]
        opened_as += [(JobScreen, {"name": RUN_ID}), (JobScreen, {"name": "13"})]
        for cls, values in opened_as:
            driver.app.push_screen(cls(driver.app.context, **values))
            await driver.pilot.pause()
            check(driver, cls.__name__)
            await driver.press("end")
            check(driver, f"{cls.__name__} at its end")
            if driver.app.screen.__class__ is cls:
                driver.app.pop_screen()


async def test_the_palette_shows_recipes_as_they_are_named() -> None:
    async with opened(ports=poisoned_ports(STRANGE)) as driver:
        await driver.press("ctrl+p", *"launch")
        await driver.until(lambda: "launch" in _commands(driver), "the launches")
        commands = _commands(driver)
        assert len(commands.split("launch ")) == 3, "both recipes"
        assert "[@click=app.quit]x" in commands, "shown, not obeyed"
        for key in ("down", "down", "up"):
            check(driver, "palette")
            await driver.press(key)


def _commands(driver: Driver) -> str:
    """The palette's list after its search has ended."""
    listed = "\n".join(str(option.prompt) for option in driver.app.screen.query_one(CommandList).options)
    return listed if "All your runs" not in listed else ""
