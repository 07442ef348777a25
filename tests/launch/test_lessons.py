"""The lessons of the recipes: one order, one picture, one exercise, and commands that coach accepts."""

from __future__ import annotations

import re
import shlex

import pytest

from coach.launch.recipe import Recipe, find_recipes, lesson_of
from tests.launch.test_topics import parsed, shipped

MAX_LINES, MAX_WIDTH, MAX_WIDTH_OF_PICTURE, MAX_LINES_OF_PICTURE = 60, 110, 78, 12
ORDER = (
    "**What it teaches.**",
    "**What differs",
    "**What to expect",
    "**Exercise.**",
    "**Duration.**",
    "**Rules worth watching.**",
    "**Next.**",
)
REFUSED = {"gpu_data": {"num_workers"}}
"""Parameters that an exercise names for coach to refuse them."""
RECIPES = find_recipes()[0]
MINE = "mine"
"""The copy that an exercise makes by `coach recipes eject`."""


@pytest.fixture(params=RECIPES, ids=[recipe.name for recipe in RECIPES])
def recipe(request: pytest.FixtureRequest) -> Recipe:
    return request.param  # type: ignore[no-any-return]


def pictures_in(text: str) -> list[list[str]]:
    """Its blocks of code that launch nothing, each as its lines."""
    blocks = re.findall(r"^ {4}.*\n(?:\n* {4}.*\n)*", text, re.MULTILINE)
    return [block.splitlines() for block in blocks if "coach " not in block]


def test_a_lesson_has_its_parts_in_order_and_fits_a_page(recipe: Recipe) -> None:
    text = lesson_of(recipe)
    lines = text.splitlines()
    assert lines[0] == f"# {recipe.title}"
    assert len(lines) <= MAX_LINES
    assert [line for line in lines if len(line) > MAX_WIDTH and not line.startswith("|")] == []
    places = [text.find(f"\n{part}") for part in ORDER]
    assert -1 not in places, ORDER[places.index(-1)]
    assert places == sorted(places)
    assert "**Answer.** " in text[places[3] : places[4]]


def test_a_lesson_draws_its_idea_before_it_tells_the_difference(recipe: Recipe) -> None:
    before = lesson_of(recipe).partition(ORDER[1])[0]
    drawn = pictures_in(before)
    assert drawn
    for rows in drawn:
        assert len(rows) <= MAX_LINES_OF_PICTURE
        assert max(map(len, rows)) - 4 <= MAX_WIDTH_OF_PICTURE
        assert "\n".join(rows).isascii()


def commands_of(text: str) -> list[list[str]]:
    """Its commands of coach that have arguments, as words, without variables of the shell."""
    spans = re.findall(r"`(coach [^`]+)`", " ".join(text.split("\n")))
    rows = re.findall(r"^ {4,}(.*\bcoach .+)$", text.replace("\\\n", " "), re.MULTILINE)
    parts = [part.strip() for each in (*spans, *rows) for part in each.partition(" #")[0].split(";")]
    found = [part[part.index("coach ") :] for part in parts if "coach " in part]
    words = [[word for word in shlex.split(each)[1:] if not word.startswith(("$", "…"))] for each in found]
    return [each for each in words if len(each) > 1]


def test_every_command_of_a_lesson_is_one_that_coach_has(recipe: Recipe) -> None:
    for words in commands_of(lesson_of(recipe)):
        args = parsed(words)
        if words[0] == "launch" and args.what != MINE:
            assert args.what in shipped(), words
            named = {word.partition("=")[0] for word in args.set or []}
            of_sweep = {"world_sizes"} if shipped()[args.what].sweep else set()
            assert named - REFUSED.get(args.what, set()) <= {*shipped()[args.what].parameters} | of_sweep, (
                words
            )
