"""One table of keys: the same letter means the same everywhere."""

from __future__ import annotations

import pytest

from coach.tui.keys.table import KEYS, keys_of, launch_keys, reason_off, why_dead
from coach.tui.mode import Mode
from coach.tui.ports import RecipeKey
from coach.tui.screen_specs import SCREENS, ScreenSpec, by_name


def test_a_letter_means_the_same_on_every_screen() -> None:
    meanings: dict[str, set[str]] = {}
    for key in KEYS:
        meanings.setdefault(key.key, set()).add(key.id)
    assert {k: ids for k, ids in meanings.items() if len(ids) > 1} == {
        "enter": {"open", "findings", "submit", "choose"}
    }


@pytest.mark.parametrize("spec", SCREENS, ids=lambda spec: spec.name)
def test_a_key_of_another_screen_says_what_it_does_and_where(spec: ScreenSpec) -> None:
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
