"""A walk through all screens at the three sizes: no half stays empty while content is cut off, and all text
is readable in 16 colours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from rich.color import Color, ColorSystem
from rich.style import Style
from textual.strip import Strip

from coach.render.text import Span
from coach.tui.bases.screen import CoachScreen
from coach.tui.widgets.lines import LinesView
from tests.installed import REPOSITORY
from tests.tui.driving import Driver, opened
from tests.tui.every_screen import arguments, screen_classes
from tests.tui.fake_session import RUN_ID, FakeSession, make_history, make_snapshot, nan_diagnosis

SIZES = [(80, 24), (120, 36), (200, 50)]
SCREENS_MAY = {
    ("help", "empty lower half"): "its first page has the keys that count here; the others begin on the next",
}
"""What a screen may do all the same, and the reason. This only shrinks."""
MOST_SNAPSHOTS = 20


def empty_halves(screen: CoachScreen, strips: Sequence[Strip]) -> Iterator[str]:
    """The halves between the top line and the keys that are empty while a pane has more than it shows."""
    body = [strip.text for strip in strips[1:-1]]
    middle = len(strips[0].text) // 2
    views = [view for view in screen.query("*") if view.display and view.region.area and view.is_scrollable]
    if any(view.max_scroll_y > 0 for view in views) and not any(
        row.strip() for row in body[len(body) // 2 : -1]
    ):
        yield "lower"
    if any(view.max_scroll_x > 0 for view in views) and not any(row[middle:].strip() for row in body):
        yield "right"


def hidden_text(strips: Sequence[Strip]) -> Iterator[str]:
    """Texts in the colour of their background on a terminal with 16 colours."""
    for strip in strips:
        for text, style, _ in strip:
            if style is not None and text.strip() and len(set(in_16(style))) == 1:
                yield text


def in_16(style: Style) -> tuple[int | None, ...]:
    """The numbers of the text's colour and of that behind it; None is the terminal's own."""
    return tuple(
        colour.downgrade(ColorSystem.STANDARD).number if colour is not None else default
        for colour, default in ((style.color, -1), (style.bgcolor, -2))
    )


async def faults_of(driver: Driver) -> set[tuple[str, str]]:
    """Screen → its faults."""
    found = set()
    for cls in screen_classes():
        driver.app.push_screen(cls(driver.app.context, **arguments(cls, "")))
        await driver.pilot.pause()
        screen, name = driver.app.screen, cls.spec.name
        assert isinstance(screen, CoachScreen)
        strips = screen._compositor.render_strips()
        found |= {(name, f"empty {half} half") for half in empty_halves(screen, strips)}
        found |= {(name, f"not seen: {text}") for text in hidden_text(strips)}
        if screen.__class__ is cls:
            driver.app.pop_screen()
    return found


@pytest.mark.parametrize("size", SIZES, ids=lambda size: "x".join(map(str, size)))
async def test_every_screen_uses_its_room_and_hides_nothing(size: tuple[int, int]) -> None:
    session = FakeSession(make_snapshot(diagnoses={RUN_ID: nan_diagnosis()}), {RUN_ID: make_history()})
    async with opened(session, size=size) as driver:
        found = await faults_of(driver)
        assert found - SCREENS_MAY.keys() == set()
        assert SCREENS_MAY.keys() - found == set(), "strike what no longer needs an exception"


async def test_a_line_longer_than_its_pane_ends_in_a_mark() -> None:
    async with opened() as driver:
        await driver.press("question_mark")
        view = driver.app.screen.query_one("#body", LinesView)
        view.set_lines(((Span("x" * 500),),))
        await driver.settle()
        rows = [row.rstrip() for row in driver.text().splitlines() if "xxx" in row]
        assert [row[-1] for row in rows] == ["›"]


def test_colours_that_16_colours_merge_are_found() -> None:
    same = Style(color=Color.parse("#0f1318"), bgcolor=Color.parse("#101010"))
    apart = Style(color=Color.parse("#ffffff"), bgcolor=Color.parse("#101010"))
    assert len(set(in_16(same))) == 1
    assert len(set(in_16(apart))) == 2


def test_few_tests_compare_whole_pictures() -> None:
    texts = [path.read_text() for path in (REPOSITORY / "tests").rglob("test_*.py")]
    fixture = "snap" + "_compare"
    assert sum(text.count(f"{fixture}(") for text in texts) <= MOST_SNAPSHOTS
