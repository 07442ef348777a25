"""Where runs go: the first place that can be written."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from coach import config
from coach.config.load import within
from coach.model.errors import UserError
from tests.config.site import Place


def chosen(place: Place, *unwritable: str) -> config.Settings:
    return config.load(
        place.environment,
        why_not=lambda path: "cannot be written" if str(path).startswith(unwritable) else None,
    )


def test_the_first_of_the_site_s_roots_that_can_be_written_is_taken(place: Place) -> None:
    place.env["SCRATCH"] = "/scratch/ada"
    place.site('runs_roots = ["$PROJECT/runs", "/fast/$USER_NAME", "/big/runs"]\n')
    place.env["USER_NAME"] = "ada"
    assert chosen(place, "/none").runs_root == Path("/fast/ada")
    settings = chosen(place, "/fast")
    assert settings.runs_root == Path("/big/runs")
    assert settings.origins["runs_root"] == f"{place.site_file}:1"
    assert "/fast/ada" in (settings.runs_root_text or "")
    assert settings.notes == ()


def test_behind_the_site_s_roots_stand_scratch_and_home(place: Place) -> None:
    place.env["SCRATCH"] = "/scratch/ada"
    place.site('runs_roots = ["/fast"]\n')
    assert chosen(place, "/fast").runs_root == Path("/scratch/ada/coach/runs")
    settings = chosen(place, "/fast", "/scratch")
    assert settings.runs_root == place.home / "coach/runs"
    assert [str(path) for path, _ in settings.runs_root_candidates][:2] == [
        "/fast",
        "/scratch/ada/coach/runs",
    ]


def test_a_locked_runs_root_has_no_fallback(place: Place) -> None:
    place.env |= {"SCRATCH": "/scratch/ada", "COACH_HOME": "/elsewhere"}
    place.site('runs_roots = ["/fast"]\n[locked]\nruns_root = "quotas live there"\n')
    settings = chosen(place, "/fast")
    assert settings.runs_root_candidates == ((Path("/fast"), f"{place.site_file}:1"),)
    assert "environment variable COACH_HOME: runs_root" in settings.notes[0]


def test_the_user_s_runs_root_is_never_replaced_by_another(place: Place) -> None:
    place.site('runs_roots = ["/fast"]\n')
    place.user('runs_root = "/mine"\n')
    assert chosen(place, "/mine").runs_root == Path("/mine")


def test_a_file_system_that_hangs_is_passed_over() -> None:
    hangs = threading.Event()
    try:
        assert within(0.05, lambda: str(hangs.wait(30))) == "does not answer"
    finally:
        hangs.set()
    assert within(30, lambda: None) is None
    assert within(30, lambda: "is full") == "is full"


def test_a_path_of_the_site_whose_variable_is_unset_here_does_not_stop_coach(place: Place) -> None:
    place.site('cache_dir = "$SCRATCH/cache"\n')
    settings = chosen(place)
    assert settings.cache_dir == place.home / ".cache/coach"
    assert "the variable SCRATCH is not set here; it is ignored" in settings.notes[0]


def test_a_path_of_the_user_whose_variable_is_unset_is_refused(place: Place) -> None:
    place.user('\ncache_dir = "$SCRATCH/cache"\n')
    with pytest.raises(UserError, match=r"config\.toml:2: cache_dir = "):
        chosen(place)
