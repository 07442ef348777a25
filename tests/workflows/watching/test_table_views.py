"""Table settings are kept; an error in the file is reported, and its values are ignored."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from coach.model.errors import UserError
from coach.workflows.watching.table_views import FILE_NAME, SAVED_FILE_NAME, SavedView, View, ViewStore


def test_a_view_is_the_same_at_the_next_start(tmp_path: Path) -> None:
    views = {"queue": View('name:"café 5"', "-gpu", "id,gpu"), "nodes": View()}
    ViewStore(tmp_path / "cache").keep(views)
    assert ViewStore(tmp_path / "cache").read() == (views, None)


def test_at_the_first_start_there_is_no_view_and_no_error(tmp_path: Path) -> None:
    assert ViewStore(tmp_path).read() == ({}, None)


@pytest.mark.parametrize("said", [b"", b"\x00\xff", b"[" * 60_000, b'{"tables": {"queue"'])
def test_a_damaged_file_is_reported_in_one_line_and_ignored(tmp_path: Path, said: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(said)
    views, problem = ViewStore(tmp_path).read()
    assert views == {}
    assert problem is not None
    assert problem.endswith("not in the form that coach writes; it is ignored")


@pytest.mark.parametrize(
    "said",
    [
        '{"tables": [1]}',
        '{"tables": {"queue": 3}}',
        "7",
        '{"tables": {"queue": {"filter": 5, "sort": "\\u001b[31m", "columns": "' + "x" * 2000 + '"}}}',
    ],
)
def test_another_user_s_file_does_no_harm(tmp_path: Path, said: str) -> None:
    (tmp_path / FILE_NAME).write_text(said)
    views, problem = ViewStore(tmp_path).read()
    assert views in ({}, {"queue": View()})
    assert problem is None


def test_a_pipe_in_its_place_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / FILE_NAME)
    assert ViewStore(tmp_path).read()[0] == {}


def test_a_place_that_cannot_be_written_is_an_error_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(UserError, match="cannot be written"):
        ViewStore(tmp_path / "cache").keep({"queue": View()})


def test_a_saved_view_is_the_same_at_the_next_start_and_lies_with_the_config(tmp_path: Path) -> None:
    store = ViewStore(tmp_path / "cache", tmp_path / "config")
    views = {
        'my "best" ü': SavedView('my "best" ü', View('name:"café 5"', "-gpu", "id,gpu"), is_all=True),
        "a.b": SavedView("a.b"),
    }
    store.keep_saved(views)
    assert store.read_saved() == (views, None)
    assert (tmp_path / "config" / SAVED_FILE_NAME).stat().st_mode & 0o777 == 0o600
    assert store.read() == ({}, None)


@pytest.mark.parametrize("said", ["[", "a = ", "\x00", "x = 1\nx = 2"])
def test_a_damaged_file_of_saved_views_is_reported_and_ignored(tmp_path: Path, said: str) -> None:
    (tmp_path / SAVED_FILE_NAME).write_text(said)
    views, problem = ViewStore(tmp_path, tmp_path).read_saved()
    assert views == {}
    assert problem is not None
    assert problem.endswith("; it is ignored")


def test_only_the_valid_parts_of_saved_views_count(tmp_path: Path) -> None:
    text = 'mine = 3\n["\\u001b[31m"]\nall = true\n[big]\nfilter = 7\nsort = "-gpu"\nall = "yes"\n'
    (tmp_path / SAVED_FILE_NAME).write_text(text)
    assert ViewStore(tmp_path, tmp_path).read_saved() == ({"big": SavedView("big", View(sort="-gpu"))}, None)
