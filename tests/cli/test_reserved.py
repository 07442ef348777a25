"""`coach nodes --reserved` lists the reservations, as text and as JSON, and says what the site hides."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from coach.cli import reserved
from coach.config import Settings
from tests.forked import typed_coach
from tests.json_documents import check_printed
from tests.sources.scripted_io import captured

SCONTROL = """#!/bin/sh
case "$*" in
    *reservations*) exec cat {folder}/reservations ;;
    *config*) exec cat {folder}/config ;;
esac
exit 1
"""
Coach = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """scontrol, with what it answers beside it."""
    (tmp_path / "reservations").write_bytes(captured("reservations-24.11.txt"))
    (tmp_path / "config").write_text("PrivateData             = none\n")
    (tmp_path / "scontrol").write_text(SCONTROL.format(folder=tmp_path))
    (tmp_path / "scontrol").chmod(0o755)
    return tmp_path


@pytest.fixture
def coach(folder: Path) -> Coach:
    env = {"PATH": f"{folder}:{os.environ['PATH']}", "COACH_HOME": str(folder), "HOME": str(folder)}

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        return typed_coach(["nodes", "--reserved", *words], env)

    return call


def test_a_reservation_is_a_line_with_its_nodes_and_who_may_use_them(coach: Coach) -> None:
    done = coach("--backend", "slurm")
    assert (done.returncode, done.stderr) == (0, "")
    header, *rows = done.stdout.splitlines()
    assert " ".join(header.split()) == "NAME STATE FROM TO COUNT NODES PARTITION USERS ACCOUNTS FLAGS"
    answer = json.loads(coach("--backend", "slurm", "--format", "json").stdout)
    assert set(answer) == {"schema", "reservations"}
    found = answer["reservations"]
    assert len(found) == len(rows) > 0
    for row, each in zip(rows, found, strict=True):
        assert row.split()[:2] == [each["name"], each["state"]]
        assert str(each["nodes"]) in row


def test_a_site_that_hides_the_reservations_of_others_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setattr(reserved, "user_name", lambda: "ada")  # nothing is hidden from root
    (folder / "config").write_text("PrivateData             = reservations\n")
    (folder / "reservations").write_text("No reservations in the system\n")
    settings = Settings(folder / "runs", folder / "cache", folder / "config.toml")
    assert reserved.run(argparse.Namespace(format="text", backend="slurm"), settings) == 0
    assert "others' reservations are hidden" in capsys.readouterr().err
    assert reserved.run(argparse.Namespace(format="json", backend="slurm"), settings) == 0
    told = capsys.readouterr().out
    check_printed(["nodes", "--reserved", "--format", "json"], told)
    assert json.loads(told) == {"schema": 1, "reservations": [], "hidden": ["reservations"]}


def test_a_line_that_cannot_be_read_is_counted_and_not_shown(coach: Coach, folder: Path) -> None:
    with (folder / "reservations").open("a") as file:
        file.write("something else\n")
    assert json.loads(coach("--backend", "slurm", "--format", "json").stdout)["num_bad_rows"] == 1
    assert "not shown: 1 row" in coach("--backend", "slurm").stderr


def test_slurm_s_own_words_are_the_error_where_it_does_not_answer(coach: Coach, folder: Path) -> None:
    (folder / "scontrol").write_text(
        "#!/bin/sh\necho 'slurm_load_reservations error: Zero Bytes' >&2; exit 1\n"
    )
    done = coach("--backend", "slurm")
    assert done.returncode == 2
    assert "Zero Bytes" in done.stderr


def test_where_no_slurm_is_nothing_can_be_reserved(coach: Coach) -> None:
    assert json.loads(coach("--backend", "local", "--format", "json").stdout)["reservations"] == []


def test_a_filter_of_nodes_beside_it_is_refused(coach: Coach) -> None:
    done = coach("state:idle")
    assert (done.returncode, "leave out the filter" in done.stderr) == (2, True)
