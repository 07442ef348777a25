"""Texts that name a key name the one that the config chose."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from coach import tui
from coach.config import Settings
from coach.config.keys import SCREEN_KEYS
from coach.tui.keys import SHIPPED
from coach.tui.widgets.lines import LinesView
from tests.tui.texts import walk

OTHERS = [chr(code) for start in (0x3B1, 0x430) for code in range(start, start + 64) if chr(code).isalpha()]
"""Greek and Cyrillic letters: no screen shows them for anything else."""
CHOSEN = dict(zip(sorted(SCREEN_KEYS), OTHERS, strict=False))
LABELS = {SHIPPED[key_id].label for key_id in SCREEN_KEYS} - {":", "?"}
VERB = r"(?P<verb>[a-z]{2,}s|launch|drills)\b"
HINT = re.compile(rf"(?:^|(?<=[\s(·;:,]))(?P<label>\S|\^\w|Enter|Tab|Space)\s{VERB}")
NO_HINT = re.compile(
    # a question's own keys stay as they are, and so does Enter in a field
    r"Enter (submits|names|shows|goes)|y (submits|relaunches|takes|sends|does|runs)"
    # the article
    r"|[aA] (loss|process|class|series|status|progress|launch|heterogeneous)"
)


def hints(text: str) -> Iterator[str]:
    """Shipped labels with a verb behind them, as `l opens`."""
    for found in HINT.finditer(text):
        if found["label"] in LABELS and not NO_HINT.match(found[0]):
            yield found[0]


def literals(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The texts of a module, without its docstrings."""
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told:
            yield node.lineno, node.value


def test_the_pattern_finds_a_hint() -> None:
    assert [
        *hints(" · l opens the log"),
        *hints("(Enter lists)"),
        *hints("asked 2 s ago, ^r asks again"),
    ] == [
        "l opens",
        "Enter lists",
        "^r asks",
    ]
    assert len(CHOSEN) == len(SCREEN_KEYS)


def test_no_text_of_the_screens_has_a_shipped_key_written_into_it() -> None:
    room = Path(tui.__file__).parent
    written = [
        f"{path.name}:{number}: {hint}"
        for path in sorted(room.rglob("*.py"))
        for number, text in literals(ast.parse(path.read_text()))
        for hint in hints(text)
        if not hint.startswith(", ")  # punctuation looks the same as the key of the story
    ]
    assert written == []


async def test_with_every_key_remapped_no_screen_names_a_shipped_one() -> None:
    settings = Settings(Path("/runs"), Path("/cache"), Path("/config"), chosen_keys=CHOSEN)
    shipped: set[str] = set()
    chosen: set[str] = set()
    places: set[str] = set()
    async for driver in walk(settings):
        places.add(driver.place)
        text = driver.text()
        shipped.update(f"{driver.place}: {hint}" for hint in hints(text))
        for view in driver.app.screen.query(LinesView):
            marked = {span.text.strip() for row in view.lines for span in row if span.tone == "key"}
            shipped.update(f"{driver.place}: {label}" for label in marked & (LABELS - {"Enter"}))
        chosen.update(letter for letter in CHOSEN.values() if re.search(rf"{letter} [a-z]", text))
    assert shipped == set()
    assert len(places) > 15
    assert len(chosen) > 25, "the walk shows hints at all"
