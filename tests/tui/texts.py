"""Print every text of the screens, to check its English: `python -m tests.tui.texts` walks all screens at 80
columns and 24 lines, and prints each distinct line under the first screen that shows it.

The walk uses the scripted session, once with jobs and once without. On each screen it goes through all pages,
then presses each key and keeps the note beside the keys.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Iterator
from types import MappingProxyType
from unittest.mock import patch

from textual.await_complete import AwaitComplete

from coach.config import Settings
from coach.tui.bases.screen import CoachScreen
from coach.tui.mode import Mode
from coach.tui.screens.job import JobScreen
from tests.tui.driving import Driver, opened
from tests.tui.every_screen import arguments, screen_classes
from tests.tui.fake_session import RUN_ID, FakeSession, make_history, make_snapshot

MAX_PAGES = 12


def sessions() -> Iterator[FakeSession]:
    """With jobs and runs, and with none."""
    yield FakeSession(make_snapshot(), {RUN_ID: make_history(lost_at=150)})
    nothing = MappingProxyType[str, object]({})
    yield FakeSession(make_snapshot(runs=(), jobs=(), diagnoses=nothing, targets=nothing))


async def walk(settings: Settings | None = None, size: tuple[int, int] = (80, 24)) -> AsyncIterator[Driver]:
    """The driver, each time that the screen shows something else. The screen is `driver.app.top`."""
    kinds = [(cls, arguments(cls, "")) for cls in screen_classes()]
    kinds += [(JobScreen, {"name": "12"}), (JobScreen, {"name": RUN_ID}), (JobScreen, {"name": "gone"})]
    for session in sessions():
        async with opened(session, mode=Mode.LIVE, size=size, settings=settings) as driver:
            yield driver
            for cls, values in kinds:
                screen = cls(driver.app.context, **values)
                driver.app.push_screen(screen)
                await driver.settle()
                async for _ in _pages(driver, screen):
                    yield driver
                async for _ in _notes(driver, screen):
                    yield driver
                while screen in driver.app.screen_stack:
                    driver.app.pop_screen()
                await driver.settle()


async def _pages(driver: Driver, screen: CoachScreen) -> AsyncIterator[None]:
    shown = ""
    for _ in range(MAX_PAGES):
        if shown == driver.text() or driver.app.screen is not screen:
            break
        shown = driver.text()
        yield
        await driver.press("pagedown")
    await driver.press("home")


async def _notes(driver: Driver, screen: CoachScreen) -> AsyncIterator[None]:
    """The notes of a screen's keys, without leaving the screen. The screens that keys would open are not
    built, because the walk visits each of them anyway."""
    with patch.object(driver.app, "push_screen", lambda *_, **__: AwaitComplete()):
        keys = screen.keys()
        for key in keys:
            if key.action.startswith("app.") or key.is_answer or driver.app.screen is not screen:
                continue
            await driver.app.run_action(key.action, default_namespace=screen)
            await driver.settle()
            if driver.app.screen is screen:
                yield


async def _print_all() -> None:
    """A reader that has closed the pipe (head) has read enough: the walk ends."""
    seen: set[str] = set()
    place = ""
    async with contextlib.aclosing(walk()) as drivers:
        async for driver in drivers:
            new = [text for text in map(_one_line, driver.text().splitlines()) if _is_said(text)]
            new = [text for text in dict.fromkeys(new) if text not in seen]
            seen.update(new)
            if new and driver.place != place:
                place = driver.place
                new = ["", f"== {place}", *new]
            try:
                sys.stdout.write("".join(f"{text}\n" for text in new))
                sys.stdout.flush()
            except BrokenPipeError:
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python flushes at exit
                return


def _one_line(row: str) -> str:
    return " ".join(row.split())


def _is_said(text: str) -> bool:
    return any(letter.isalpha() for letter in text)


if __name__ == "__main__":
    asyncio.run(_print_all())
