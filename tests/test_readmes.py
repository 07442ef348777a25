"""Each room has a page about its content, and the page names only existing files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import stories
from tests.installed import REPOSITORY

MAX_LINES, MAX_WIDTH, MAX_OVERVIEW = 30, 110, 80
ROOMS = (
    *sorted(
        path.relative_to(REPOSITORY).as_posix()
        for path in (REPOSITORY / "coach").iterdir()
        if (path / "__init__.py").is_file()
    ),
    "trainers",
    "recipes",
    "tests",
)
OVERVIEW = REPOSITORY / "docs" / "architecture.md"

_FILE = re.compile(r"`([\w./-]+\.(?:py|md|toml|coach))`")
_LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")
_MADE_BY_COACH = {"config.toml", "remembered.toml"}


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_has_a_page_that_is_read_in_a_minute(room: str) -> None:
    lines = (REPOSITORY / room / "README.md").read_text().partition("## Stories")[0].splitlines()
    assert lines[0].startswith("# ")
    assert len(lines) <= MAX_LINES
    assert [line for line in lines if len(line) > MAX_WIDTH] == []


@pytest.mark.parametrize("room", ROOMS)
def test_a_rooms_page_names_files_that_exist(room: str) -> None:
    text = (REPOSITORY / room / "README.md").read_text()
    missing = [name for name in _FILE.findall(text) if not _exists(name, room)]
    assert missing == []


def test_each_story_of_the_tests_is_a_test() -> None:
    named = stories()
    assert len(named) >= 50
    missing = [
        story
        for story in sorted(named)
        for file, test in [story.split("::")]
        if f"def {test.partition('[')[0]}(" not in (REPOSITORY / "tests" / file).read_text()
    ]
    assert missing == []


def _exists(name: str, room: str) -> bool:
    """A path from the room, from coach/ or from the top, or a bare name in one of the room's corridors."""
    if Path(name).name in _MADE_BY_COACH or "NAME" in name:
        return True
    if any((place / name).exists() for place in (REPOSITORY / room, REPOSITORY / "coach", REPOSITORY)):
        return True
    return "/" not in name and any((REPOSITORY / room).rglob(name))


def test_the_overview_fits_on_a_page_and_leads_to_each_room() -> None:
    text = OVERVIEW.read_text()
    assert len(text.splitlines()) <= MAX_OVERVIEW
    linked = {(OVERVIEW.parent / link).resolve() for link in _LINK.findall(text)}
    assert {path for path in linked if not path.exists()} == set()
    assert {room for room in ROOMS if REPOSITORY / room / "README.md" not in linked} == set()
