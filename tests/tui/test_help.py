"""`?` shows the footer's keys on its first page, and all others below it."""

from __future__ import annotations

import re

import pytest

from coach.render.text import plain
from coach.tui.bases.screen import CoachScreen
from coach.tui.keys import keys_of
from coach.tui.render.header import MAX_HINTS
from coach.tui.widgets.lines import LinesView
from tests.tui.driving import opened

SIZES = [(80, 24), (120, 36)]
PATHS = [[], ["enter"], ["r"], ["R"], ["enter", "D"], ["x"], ["1", "shift+tab"], ["d"]]


def labels_in(rows: list[str]) -> list[str]:
    """The keys of lines of the help."""
    found = (re.match(r"(?=.{8}  \S) +(\S+)  \S", row) for row in rows)
    return [match[1] for match in found if match is not None]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("path", PATHS, ids="-".join)
async def test_help_begins_with_the_footer_and_has_each_key_once(
    size: tuple[int, int], path: list[str]
) -> None:
    """The help is one list with one scroll bar."""
    async with opened(size=size) as driver:
        await driver.press(*path)
        below = driver.app.screen
        assert isinstance(below, CoachScreen)
        footer = [label for _, label, _, _ in below.first_keys()]
        assert all(f"{label} " in driver.text().splitlines()[-1] for label in footer)
        wanted = {key.label for key in keys_of(below.spec, driver.app.context.launch_keys)}
        await driver.press("question_mark")
        await driver.reaches("help")

        shown = labels_in(driver.text().splitlines())
        assert shown[: len(footer)] == footer
        assert len(shown) <= MAX_HINTS

        body = driver.app.screen.query_one("#body", LinesView)
        rows = [plain(row) for row in body.lines]
        listed = labels_in(rows)
        assert sorted(set(listed) - {"1-2"}) == sorted(wanted)
        assert len(listed) == len(set(listed))
        assert max(map(len, rows)) <= body.room.width
        scrolled = [each for each in driver.app.screen.query(LinesView) if each.show_vertical_scrollbar]
        assert scrolled == ([body] if len(rows) > body.room.height else [])


async def test_below_the_first_page_the_keys_stand_in_groups() -> None:
    async with opened(size=(80, 24)) as driver:
        await driver.press("question_mark")
        await driver.sees("Keys on the cluster screen  PgDn:")
        assert "Rows and tables" not in driver.text()
        await driver.press("pagedown")
        await driver.sees("Rows and tables")
        await driver.press("end")
        await driver.sees("In every list and text")
