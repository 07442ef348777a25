"""Root is read-only unless it gives `--as-root`; every refusal has a reason."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest

from coach.config import Lock, Settings
from coach.model.errors import UserError
from coach.tui.keys import keys_of, reason_off
from coach.tui.mode import Mode
from coach.tui.screen_specs import by_name
from coach.workflows.readonly import held_back, is_held_back, refuse_if_readonly, why_readonly
from tests.forked import typed_coach


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(runs_root=tmp_path / "runs", cache_dir=tmp_path / "cache", config_dir=tmp_path)


def test_root_is_stopped_and_the_error_names_the_option(settings: Settings) -> None:
    held = held_back(settings, {}, uid=0)
    assert is_held_back(held)
    with pytest.raises(UserError) as refused:
        refuse_if_readonly(held, "launches nothing")
    assert refused.value.message == "coach is read-only and launches nothing: you are root"
    assert "--as-root" in (refused.value.hint or "")


def test_an_ordinary_user_and_root_with_as_root_are_not_stopped(settings: Settings) -> None:
    for free in (held_back(settings, {}, uid=1000), held_back(settings, {"COACH_AS_ROOT": "1"}, uid=0)):
        assert free == settings
        refuse_if_readonly(free, "launches nothing")


def test_a_user_s_own_wish_and_a_site_s_lock_are_named_by_their_place(settings: Settings) -> None:
    wished = replace(
        settings, is_readonly=True, origins=MappingProxyType({"readonly": "/home/ada/config.toml:3"})
    )
    assert why_readonly(held_back(wished, {}, uid=0)) == (
        "readonly = true in /home/ada/config.toml:3",
        "set readonly = false there",
    )
    locked = replace(wished, locks={"readonly": Lock("exam week", "/etc/coach/site.toml:9")})
    assert why_readonly(locked) == ("locked by the site (/etc/coach/site.toml:9): exam week", "ask the site")


def test_on_the_screens_every_key_that_changes_something_says_why_it_is_off() -> None:
    off = {key.id: reason_off(key, Mode.ROOT) for key in keys_of(by_name()["job"])}
    assert "you are root" in (off["cancel"] or "")
    assert off["quit"] is None


@pytest.mark.root
@pytest.mark.parametrize("words", [("--as-root", "launch"), ("launch", "--as-root")])
def test_the_option_may_stand_before_the_command_or_behind_it(tmp_path: Path, words: tuple[str, str]) -> None:
    env = {key: value for key, value in os.environ.items() if key != "COACH_AS_ROOT"}
    env["COACH_HOME"] = str(tmp_path)

    def launch(*args: str) -> subprocess.CompletedProcess[str]:
        return typed_coach((*args, "no-such-recipe", "--backend", "local"), env)

    assert "you are root" in launch("launch").stderr
    assert "unknown recipe" in launch(*words).stderr
