"""Write permission and free space, found out without writing anything."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from coach.sources.machine.disk import (
    choose_root,
    read_space,
    why_not_writable,
)


def test_a_directory_that_can_be_created_counts_as_writable(tmp_path: Path) -> None:
    assert why_not_writable(tmp_path) is None
    assert why_not_writable(tmp_path / "coach" / "runs") is None
    assert list(tmp_path.iterdir()) == []  # the check leaves nothing behind


def test_a_file_or_a_dead_link_where_a_directory_is_wanted_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "gone").symlink_to(tmp_path / "nothing")
    assert why_not_writable(tmp_path / "file" / "runs") == f"{tmp_path / 'file'} is not a directory"
    assert why_not_writable(tmp_path / "gone" / "runs") == f"{tmp_path / 'gone'} is a link to nowhere"


def test_another_user_s_directory_is_named_as_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_, **__: False)  # root may write everywhere
    assert why_not_writable(tmp_path / "runs") == (
        f"{tmp_path} cannot be written by you, so runs cannot be made in it"
    )
    assert why_not_writable(tmp_path) is not None


def test_the_first_root_that_can_be_written_is_taken_and_the_others_say_why_not() -> None:
    problems = {Path("/site/runs"): "/site cannot be written by you", Path("/scratch/runs"): None}
    choice = choose_root(
        [
            (Path("/site/runs"), "/etc/coach/site.toml:3"),
            (Path("/scratch/runs"), "$SCRATCH"),
            (Path("/home/u/runs"), "home"),
        ],
        lambda path: problems[path],
    )
    assert (choice.path, choice.is_writable) == (Path("/scratch/runs"), True)
    assert choice.text == (
        "/scratch/runs ($SCRATCH); passed over: /site/runs (/etc/coach/site.toml:3): /site cannot be "
        "written by you"
    )


def test_without_a_writable_root_the_last_is_chosen_and_all_reasons_are_given() -> None:
    choice = choose_root([(Path("/a"), "site"), (Path("/b"), "home")], lambda path: f"{path} is full of sand")
    assert (choice.path, choice.is_writable) == (Path("/b"), False)
    assert "/a is full of sand" in choice.text
    assert "/b is full of sand" in choice.text


def test_the_space_of_a_missing_directory_is_that_of_its_parent(tmp_path: Path) -> None:
    here, below = read_space(tmp_path), read_space(tmp_path / "a" / "b")
    assert here is not None
    assert below is not None
    assert here.total_bytes == below.total_bytes > 0
    assert 0 <= here.free_bytes <= here.total_bytes


def test_the_space_of_a_pseudo_file_system_is_unknown() -> None:
    assert read_space(Path("/proc/self")) is None
