"""Trainings found in a directory, their order, and the files that are skipped."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from coach.config import Settings
from coach.launch.own_program import own_request, read_own_program
from coach.launch.record import said
from coach.model.errors import UserError
from coach.model.launching.launch import LaunchRequest, OwnKind
from coach.sources.io import SystemIo
from coach.workflows.launching import launchables
from coach.workflows.launching.launchables import (
    Launchable,
    Origin,
    find_launchables,
    find_programs,
    request_of,
)


def make(folder: Path, *paths: str) -> None:
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("import argparse\n")


def settings_of(tmp_path: Path) -> Settings:
    return Settings(tmp_path / "runs", tmp_path / "cache", tmp_path / "config")


def record(tmp_path: Path, name: str, request: LaunchRequest, created_s: float = 1.0) -> None:
    run = tmp_path / "runs" / name
    run.mkdir(parents=True)
    value = {
        "schema": 1,
        "run_id": name,
        "recipe": request.recipe,
        "backend": "local",
        "created_time_s": created_s,
        "launch": said(request),
    }
    (run / "run.json").write_text(json.dumps(value))


def own(directory: Path, what: str, *behind: str, **changes: object) -> LaunchRequest:
    program = read_own_program(what, behind, directory)
    return own_request(program, LaunchRequest("", **changes))  # type: ignore[arg-type]  # by name


def test_programs_are_found_three_folders_deep_the_nearest_first(tmp_path: Path) -> None:
    make(tmp_path, "z.py", "a/job.sbatch", "a/b/run.sh", "a/b/c/too_deep.py", "notes.txt", "a/data.json")
    assert find_programs(tmp_path) == (("z.py", "a/job.sbatch", "a/b/run.sh"), ())


def test_hidden_folders_environments_and_links_to_folders_are_not_entered(tmp_path: Path) -> None:
    make(
        tmp_path,
        "train.py",
        ".hidden.py",
        ".git/hook.py",
        "venv/bin/activate.py",
        "__pycache__/x.py",
        "torch-env/pyvenv.cfg",
        "torch-env/tool.py",
        "conda/conda-meta/x.py",
        "conda/tool.py",
        "package/__init__.py",
    )
    (tmp_path / "loop").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe.py")
    assert find_programs(tmp_path) == (("train.py",), ())


def test_more_than_five_hundred_files_are_cut_and_counted(tmp_path: Path) -> None:
    make(tmp_path, *(f"{number:03}.py" for number in range(503)))
    files, notes = find_programs(tmp_path)
    assert (len(files), files[0], notes) == (500, "000.py", ("3 more files are not shown",))


def test_a_folder_of_very_many_entries_is_not_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launchables, "MAX_ENTRIES", 10)
    make(tmp_path, *(f"{number:03}.py" for number in range(30)))
    files, notes = find_programs(tmp_path)
    assert len(files) == 10
    assert notes == ("only the first 10 entries of this directory were looked at",)


def test_a_folder_that_cannot_be_read_is_passed_over(tmp_path: Path) -> None:
    make(tmp_path, "train.py")
    assert find_programs(tmp_path / "gone") == ((), ())


def test_everything_is_listed_in_the_order_of_its_origin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "project"
    make(folder, "train.py", "other.py")
    (folder / "coach.toml").write_text('[training.pretrain]\nscript = "train.py"\ntitle = "The corpus"\n')
    monkeypatch.chdir(folder)
    record(tmp_path, "20260101-000000-train-aaaa", own(folder, "train.py", "--lr", "0.1"), 5.0)
    found = find_launchables(settings_of(tmp_path), SystemIo({}))
    rows = [(row.origin, row.name) for row in found.rows if row.origin is not Origin.RECIPE]
    assert rows == [
        (Origin.YOURS, "pretrain"),
        (Origin.RECENT, "train.py"),
        (Origin.FILE, "other.py"),
        (Origin.FILE, "train.py"),
    ]
    assert found.rows[0].about == "The corpus"
    assert found.rows[1].about == "--lr 0.1"
    assert found.rows[1].launched_time_s == 5.0
    assert found.rows[-1].origin is Origin.RECIPE
    assert found.directory == str(folder)


def test_a_command_is_listed_once_with_its_last_resources_and_only_where_it_was_launched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    for folder in (here, elsewhere):
        make(folder, "train.py", "other.py")
    monkeypatch.chdir(here)
    record(tmp_path, "20260101-000000-train-aaaa", own(here, "train.py", num_nodes=1), 1.0)
    record(tmp_path, "20260102-000000-other-aaaa", own(here, "other.py"), 2.0)
    record(tmp_path, "20260103-000000-train-aaaa", own(here, "train.py", num_nodes=2), 3.0)
    record(tmp_path, "20260104-000000-train-aaaa", own(here, "train.py", set={"lr": "0.5"}), 4.0)
    record(tmp_path, "20260105-000000-train-aaaa", own(elsewhere, "train.py"), 5.0)
    record(tmp_path, "20260106-000000-ddp-aaaa", LaunchRequest("ddp"), 6.0)
    rows = find_launchables(settings_of(tmp_path), SystemIo({})).rows
    recent = [row for row in rows if row.origin is Origin.RECENT]
    assert [(row.name, row.about) for row in recent] == [
        ("train.py", "lr=0.5"),
        ("train.py", ""),
        ("other.py", ""),
    ]
    assert recent[1].request.num_nodes == 2
    assert recent[1].request.own is not None
    assert recent[1].request.own.words == ("train.py",)


def test_a_command_is_shown_with_the_values_that_its_run_got(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fix changed the learning rate, and a form the seed, which is not on the command line."""
    make(tmp_path, "train.py")
    monkeypatch.chdir(tmp_path)
    words = ("--lr", "0.4", "--log_every=1")
    record(tmp_path, "20260101-000000-train-aaaa", own(tmp_path, "train.py", *words), 1.0)
    changed = own(tmp_path, "train.py", *words, set={"lr": 0.04, "seed": "7"})
    record(tmp_path, "20260102-000000-train-bbbb", changed, 2.0)
    recent = [
        (row.name, row.about)
        for row in find_launchables(settings_of(tmp_path), SystemIo({})).rows
        if row.origin is Origin.RECENT
    ]
    assert recent == [
        ("train.py", "--lr 0.04 --log_every=1 seed=7"),
        ("train.py", "--lr 0.4 --log_every=1"),
    ]


def test_a_secret_of_a_command_is_not_shown_and_goes_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, "train.py")
    monkeypatch.chdir(tmp_path)
    record(tmp_path, "20260101-000000-train-aaaa", own(tmp_path, "train.py", "--api_key", "s3cret"))
    (row,) = (
        row
        for row in find_launchables(settings_of(tmp_path), SystemIo({})).rows
        if row.origin is Origin.RECENT
    )
    assert "s3cret" not in row.name + row.about
    assert row.request.own is not None
    assert "s3cret" in row.request.own.words


def test_a_file_gets_its_program_when_it_is_opened(tmp_path: Path) -> None:
    make(tmp_path, "tools/train.py", "-odd.py")
    for name, word in (("tools/train.py", "tools/train.py"), ("-odd.py", "./-odd.py")):
        request = request_of(Launchable(Origin.FILE, name, "", LaunchRequest(name)), tmp_path)
        assert request.own is not None
        assert (request.own.kind, request.own.words) == (OwnKind.SCRIPT, (word,))
        assert request.own.directory == str(tmp_path)
    with pytest.raises(UserError, match="no such file"):
        request_of(Launchable(Origin.FILE, "gone.py", "", LaunchRequest("gone.py")), tmp_path)


def test_a_working_directory_that_is_gone_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(UserError, match="working directory"):
        find_launchables(settings_of(tmp_path), SystemIo({}))
