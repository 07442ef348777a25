"""The ratchet refuses a worse figure, asks for lower ones, and shrinks its list."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.house import measures
from tests.house.measures import GUARDS, Guard
from tests.house.ratchet import complaints, read_exceptions, shrink

GUARD = Guard(dict, 15, "divide it")
LIST = """# Head.

[[complexity]]
reason = "old"
[complexity.places]
"a.py:f" = 20
"a.py:g" = 18

[[complexity]]
reason = "older"
[complexity.places]
"b.py:h" = 17
"""


def test_a_place_that_is_worse_than_listed_is_refused_with_figure_and_mend() -> None:
    assert complaints(GUARD, {"a.py:f": 21}, {"a.py:f": 20}) == ["a.py:f: 21, at most 20: divide it"]
    assert complaints(GUARD, {"a.py:new": 16}, {}) == ["a.py:new: 16, at most 15: divide it"]


def test_a_figure_that_fell_is_to_be_written_and_a_mended_place_to_be_struck() -> None:
    assert complaints(GUARD, {"a.py:f": 19}, {"a.py:f": 20}) == ['a.py:f: fell from 20: write "a.py:f" = 19']
    for figures in ({"a.py:f": 15}, {}):
        assert complaints(GUARD, figures, {"a.py:f": 20}) == [
            "a.py:f: is within the limit of 15 now, or gone: strike its line"
        ]


def test_places_within_the_limit_or_as_listed_are_not_complained_about() -> None:
    assert complaints(GUARD, {"a.py:f": 20, "a.py:g": 15}, {"a.py:f": 20}) == []


def test_shrinking_lowers_figures_strikes_places_and_never_raises_or_adds() -> None:
    shrunk = shrink(LIST, {"complexity": {"a.py:f": 16, "a.py:g": 99, "a.py:new": 30, "b.py:h": 15}})
    assert read_exceptions(shrunk) == {"complexity": {"a.py:f": 16, "a.py:g": 18}}
    assert "older" not in shrunk


def test_a_place_in_two_groups_or_a_group_without_a_reason_is_refused() -> None:
    with pytest.raises(AssertionError, match="listed twice"):
        read_exceptions(LIST.replace("b.py:h", "a.py:f"))
    with pytest.raises(AssertionError, match="without a reason"):
        read_exceptions(LIST.replace('"old"', '" "'))


SOURCE = """
from __future__ import annotations
from functools import lru_cache
from typing import TYPE_CHECKING
from coach import runs
if TYPE_CHECKING:
    from coach.model import snapshot
seen = []
FIXED = {"a": 1}
@lru_cache(8)
def remembered(word):
    return [x for x in word if x and x > 1] if word else 1 or 2
class Holder:
    def note(self, word):
        from coach.config import load
        seen.append(word)
        local = {}
        local[word] = FIXED[word]
        assert word
def toggled():
    global switch
    switch = 1
"""


@pytest.fixture
def one_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "coach" / "one.py"
    path.parent.mkdir()
    path.write_text(SOURCE + f"# {'x' * 109}\n")
    ast.parse(SOURCE)
    monkeypatch.setattr(measures, "REPOSITORY", tmp_path)
    monkeypatch.setattr(measures, "files", lambda *folders, among: (path,))
    return path


@pytest.mark.parametrize(
    ("guard", "figures"),
    [
        (
            "complexity",
            {"coach/one.py:remembered": 6, "coach/one.py:Holder.note": 2, "coach/one.py:toggled": 1},
        ),
        (
            "function-length",
            {"coach/one.py:remembered": 2, "coach/one.py:Holder.note": 6, "coach/one.py:toggled": 3},
        ),
        ("own-imports", {"coach/one.py": 1}),
        ("late-imports", {"coach/one.py": 1}),
        ("wide-lines", {"coach/one.py": 1}),
        ("state", {"coach/one.py:remembered": 1, "coach/one.py:seen": 1, "coach/one.py:switch": 1}),
    ],
)
def test_each_measure_counts_the_thing_that_its_guard_names(
    guard: str, figures: dict[str, int], one_module: Path
) -> None:
    assert GUARDS[guard].measure(None) == figures
