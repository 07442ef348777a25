"""One table of keys: the same letter means the same everywhere."""

from __future__ import annotations

import pytest
from textual.binding import Binding

from coach.tui.app import CoachApp
from coach.tui.keys import KEYS, bindings_of, keys_of, launch_keys, reason_off, why_dead
from coach.tui.mode import Mode
from coach.tui.ports import RecipeKey
from coach.tui.screen_specs import SCREENS, ScreenSpec, by_name
from coach.tui.widgets.keyed_table import KeyedTable
from coach.tui.widgets.lines import LinesView

MEANINGS = {"enter": {"open", "findings", "proof", "submit", "choose"}, "slash": {"filter", "find"}}
"""Keys that several entries have on different screens, because they mean the same there: Enter goes on with
what the cursor is on."""
LETTERS = {
    "l": "log",
    "D": "gpus",
    "S": "stacks",
    "c": "compare",
    "Y": "copy",
    "plus": "new_launch",
    "E": "explain",
    "n": "next",
    "N": "previous",
    "colon": "go_to",
    "question_mark": "help",
    "q": "leave",
}
"""What people know from elsewhere, or have learned here: it stays."""


def test_a_letter_means_the_same_on_every_screen() -> None:
    meanings: dict[str, set[str]] = {}
    for key in KEYS:
        meanings.setdefault(key.key, set()).add(key.id)
    assert {key: ids for key, ids in meanings.items() if len(ids) > 1} == MEANINGS
    assert {key: meanings[key] for key in LETTERS} == {key: {name} for key, name in LETTERS.items()}
    assert len({key.id for key in KEYS}) == len(KEYS)


@pytest.mark.parametrize("spec", SCREENS, ids=lambda spec: spec.name)
def test_a_screen_binds_exactly_the_keys_of_the_table(spec: ScreenSpec) -> None:
    screen = spec.load()
    assert bindings_of(spec) == screen.BINDINGS
    for key in keys_of(spec):
        name = key.action.partition("(")[0]
        owner, method = (CoachApp, name[4:]) if name.startswith("app.") else (screen, name)
        assert hasattr(owner, f"action_{method}"), f"{key.id} does nothing on the {spec.name} screen"


def test_no_letter_of_the_table_moves_in_a_list_or_a_text() -> None:
    moves = {
        press
        for binding in (*LinesView.BINDINGS, *KeyedTable.BINDINGS)
        if isinstance(binding, Binding)
        for press in binding.key.split(",")
    }
    assert {press for press in moves if len(press) == 1} == set("jkgG")
    assert not moves & {key.key for key in KEYS}


@pytest.mark.parametrize("spec", SCREENS, ids=lambda spec: spec.name)
def test_a_key_of_another_screen_names_its_action_and_its_screen(spec: ScreenSpec) -> None:
    here = {key.key for key in keys_of(spec)}
    for name in sorted({key.key for key in KEYS} - here):
        words = why_dead(name, None, spec)
        assert words is not None, f"{name} needs `elsewhere`"
        assert len(words) <= 64, "it stands beside the keys of a narrow screen"


@pytest.mark.parametrize("place", sorted(by_name()))
def test_no_key_is_bound_twice_on_a_screen(place: str) -> None:
    keys = [key.key for key in keys_of(by_name()[place])]
    assert len(keys) == len(set(keys))
    assert "escape" in keys


@pytest.mark.parametrize("place", ["confirm", "fix"])
def test_enter_answers_no_question_that_cannot_be_undone(place: str) -> None:
    assert "enter" not in {key.key for key in keys_of(by_name()[place])}


def test_read_only_takes_launch_cancel_and_fix_away_and_says_why() -> None:
    off = {key.id for key in keys_of(by_name()["job"]) if reason_off(key, Mode.READONLY)}
    assert off == {
        "cancel",
        "fix",
        "hold",
        "release",
        "requeue",
        "timelimit",
        "resubmit",
        "resume",
        "shell",
        "attach",
        "stacks",
    }
    (launch,) = launch_keys([RecipeKey("1", "baseline", "One device")])
    assert "read-only" in (reason_off(launch, Mode.READONLY) or "")
    assert "recording" in (reason_off(launch, Mode.REPLAY) or "")
    assert reason_off(launch, Mode.LIVE) is None


def test_launch_keys_work_where_one_looks_and_not_where_one_is_asked() -> None:
    more = launch_keys([RecipeKey("1", "baseline", "One device")])
    assert "launch_1" in {key.id for key in keys_of(by_name()["job"], more)}
    assert "launch_1" not in {key.id for key in keys_of(by_name()["plan"], more)}
