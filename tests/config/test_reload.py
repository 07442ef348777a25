"""A running coach reads changed files, and keeps its settings if a new file is broken."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from coach import config
from coach.config.reload import Follower
from coach.model.reading import Reading
from coach.sources.io import SystemIo
from coach.workflows.watching.settings_source import SettingsSource
from tests.config.site import Place


def test_nothing_is_read_while_nothing_changed(place: Place) -> None:
    place.site('[launch]\nqos = "a"\n')
    settings = config.load(place.environment)

    def refuse(env: object) -> config.Settings:
        raise AssertionError("read again")

    assert not Follower(settings, place.environment, refuse).look()


@pytest.mark.parametrize("which", ["site", "user", "remembered"])
def test_a_file_that_changes_comes_or_goes_is_read(place: Place, which: str) -> None:
    place.site("")
    settings = config.load(place.environment)
    text = '[launch]\nqos = "new"\n'
    if which == "remembered":
        place.user("")
        (place.user_file.parent / "remembered.toml").write_text('["tiger".launch]\nqos = "new"\n')
    else:
        place.site(text) if which == "site" else place.user(text)
    follower = Follower(settings, place.environment)
    assert follower.look()
    assert follower.settings.launch.qos == "new"
    assert not follower.look()


def test_a_missing_site_file_that_was_named_is_an_error_when_it_goes(place: Place) -> None:
    site = place.site("")
    env = place.environment
    settings = config.load(env)
    site.unlink()
    follower = Follower(settings, env)
    assert follower.look()
    assert "no such file" in (follower.problem or "")


def test_a_broken_new_file_is_reported_once_and_the_old_settings_stay(place: Place) -> None:
    site = place.site('[launch]\nqos = "good"\n')
    follower = Follower(config.load(place.environment), place.environment)
    assert not follower.look()
    place.site("[launch]\nqos = 3\n")
    assert follower.look()
    assert follower.problem == (
        f"{site}:2: launch.qos = 3: expected a string; the earlier settings stay in force"
    )
    assert follower.settings.launch.qos == "good"
    assert not follower.look()
    place.site('[launch]\nqos = "better"\n')
    assert follower.look()
    assert follower.problem is None
    assert follower.settings.launch.qos == "better"


def test_a_file_written_within_the_same_tick_is_seen_by_its_size_or_its_inode(place: Place) -> None:
    site = place.site('[launch]\nqos = "aa"\n')
    follower = Follower(config.load(place.environment), place.environment)
    before = site.stat()
    new = site.with_suffix(".new")
    new.write_text('[launch]\nqos = "bb"\n')
    new.replace(site)
    os.utime(site, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert follower.look()
    assert follower.settings.launch.qos == "bb"


def test_runs_do_not_move_under_a_session(place: Place) -> None:
    place.site('runs_root = "/tmp"\n')
    follower = Follower(config.load(place.environment), place.environment)
    place.site('runs_root = "/var/tmp"\nreadonly = true\n')
    assert follower.look()
    assert (follower.settings.runs_root, follower.settings.is_readonly) == (Path("/tmp"), True)
    assert "takes effect at the next start" in follower.settings.notes[-1]


def test_the_source_hands_on_new_settings_and_shows_a_problem_until_it_is_mended(place: Place) -> None:
    place.site("")
    taken: list[config.Settings] = []
    follower = Follower(config.load(place.environment), place.environment)
    source = SettingsSource(follower, SystemIo({}), taken.append)

    def told() -> str | None:
        (reading,) = source.poll()
        assert isinstance(reading, Reading)
        return reading.error

    assert (told(), taken) == (None, [])
    place.site("oh = 1\n")
    assert "unknown key oh" in (told() or "")
    assert "unknown key oh" in (told() or "")
    place.site("readonly = true\n")
    assert told() is None
    assert [settings.is_readonly for settings in taken] == [True]
