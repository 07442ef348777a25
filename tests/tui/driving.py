"""Open the app on a scripted session and drive it by keys, with a clock that the test turns."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from textual.command import CommandList
from textual.pilot import Pilot

from coach.config import NoticeSettings, Settings
from coach.tui.app import CoachApp
from coach.tui.keys import keys_in_force
from coach.tui.mode import Mode
from coach.tui.palette import GoTo
from coach.tui.wiring import Opening
from coach.workflows.watching.table_views import ViewStore
from tests.tui.fake_ports import FakePorts
from tests.tui.fake_session import RUN_ID, FakeSession, make_history, make_snapshot


class Clock:
    """Goes on only when told."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s

    def turn(self, seconds: float) -> None:
        self.now_s += seconds


@dataclass
class Driver:
    app: CoachApp
    pilot: Pilot[None]
    session: FakeSession
    ports: FakePorts
    clock: Clock

    def text(self) -> str:
        """The text of the screen, line by line."""
        return "\n".join(strip.text.rstrip() for strip in self.app.screen._compositor.render_strips())

    @property
    def place(self) -> str:
        return self.app.top.spec.name if self.app.top is not None else ""

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.settle()

    async def settle(self) -> None:
        await self.pilot.pause()
        await self.pilot.pause()

    async def until(self, condition: Callable[[], object], what: str) -> None:
        """Let the app work until something is so."""
        for _ in range(200):
            if condition():
                return
            await self.pilot.pause(0.02)
        raise AssertionError(f"it did not happen: {what}\n{self.text()}")

    async def sees(self, text: str) -> None:
        await self.until(lambda: text in self.text(), f"{text!r} on the screen")

    async def reaches(self, place: str) -> None:
        await self.until(lambda: self.place == place, f"the {place} screen")


async def go_to(driver: Driver, words: str, name: str | None = None) -> None:
    """Type `:` and these words, wait until this name (else the words) is the first answer, and press
    Enter."""
    await driver.pilot.press("colon")
    await driver.until(lambda: isinstance(driver.app.screen, GoTo), "it asks for a name")
    below = driver.app.screen_stack[0]
    commands = driver.app.screen.query_one(CommandList)
    await driver.until(lambda: commands.option_count, "its places")
    await driver.pilot.press(*("space" if letter == " " else letter for letter in words))
    await driver.until(
        lambda: commands.option_count and (name or words) in str(commands.options[0].prompt),
        f"{name or words!r} is the first",
    )
    await driver.pilot.press("enter")
    await driver.until(lambda: not isinstance(driver.app.screen, GoTo), "it is gone")
    assert below in driver.app.screen_stack
    await driver.settle()


@asynccontextmanager
async def opened(
    session: FakeSession | None = None,
    ports: FakePorts | None = None,
    *,
    mode: Mode = Mode.LIVE,
    size: tuple[int, int] = (120, 36),
    are_all_shown: bool = True,
    views: ViewStore | None = None,
    settings: Settings | None = None,
    notices: NoticeSettings | None = None,
    offered: Path | None = None,
) -> AsyncIterator[Driver]:
    session = session or FakeSession(make_snapshot(), {RUN_ID: make_history(lost_at=150)})
    ports = ports or FakePorts()
    clock = Clock()
    opening = Opening(session, ports, mode, "ada", "slurm · tiger", "slurm", views=views)
    opening = replace(opening, notices=notices or NoticeSettings(), offered=offered)
    if settings is not None:
        opening = replace(opening, keys=keys_in_force(settings))
    app = CoachApp(opening, clock)
    app.context.are_all_shown = are_all_shown
    async with app.run_test(size=size) as pilot:
        driver = Driver(app, pilot, session, ports, clock)
        await driver.until(lambda: app.context.launch_keys, "the recipes")
        await driver.settle()
        yield driver
        app.workers.cancel_all()  # as `CoachApp.exit` does; a test ends without it
