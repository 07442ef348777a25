"""`coach ladder` as a user types it: the list, and the table in four forms. Slurm's clients are scripts
here."""

from __future__ import annotations

import csv
import json
from dataclasses import replace

import pytest

from coach import cli
from coach.cli import ladder
from coach.model.errors import UserError
from coach.workflows.launching.ladders import get_ladder
from coach.workflows.launching.sweep import submit
from tests.workflows.launching.test_ladders import climb as planned_ladder
from tests.workflows.launching.test_sweep import world as world  # a fixture
from tests.workflows.test_launching import World


def climb(world: World, monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    for name, value in world.env.items():
        monkeypatch.setenv(name, value)
    return ladder.run(cli.arguments_of("ladder", words), world.settings)


@pytest.fixture
def run_id(world: World) -> str:
    """The first run of a ladder that waits in the queue."""
    demos = get_ladder("demos", world.settings)
    ladder = replace(demos, rungs=(replace(demos.rungs[0], source="=cmd\x1b[31m"), *demos.rungs[1:]))
    planned = planned_ladder(world, ladder, partition="gpu", gpus_per_node=0)
    return submit(planned, world.settings, world.env, world.io)[0].run_id


def test_the_ladders_are_listed(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert climb(world, monkeypatch) == 0
    assert capsys.readouterr().out.split()[:4] == ["LADDER", "TITLE", "RUNGS", "demos"]


def test_the_table_is_printed_again_in_each_form(
    world: World, run_id: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def printed(form: str) -> str:
        assert climb(world, monkeypatch, run_id, "--backend", "slurm", "--format", form) == 0
        shown = capsys.readouterr()
        assert f"the table again: coach ladder {run_id}" in shown.err
        return shown.out

    text = printed("text").splitlines()
    assert text[0].split() == ["RUNG", "STATED"]
    assert text[2].split() == ["ddp", "6–7", "×"]
    assert text[-1].split()[:2] == ["combined", "pending"]
    rows = list(csv.DictReader(printed("csv").splitlines()))
    assert [(row["name"], row["samples_per_s"], row["verdict"]) for row in rows][1] == ("ddp", "", "pending")
    assert rows[0]["source"] == "'=cmd␛[31m"
    assert json.loads(printed("json"))["rungs"][1]["stated"] == "6–7 ×"
    assert printed("markdown").splitlines()[:2] == ["| RUNG | STATED | VERDICT |", "| --- | --- | --- |"]


def test_a_ladder_shares_its_runs_in_the_directory_that_the_command_names(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shared = world.root / "shared"
    shared.mkdir(mode=0o700)
    words = ("demos", "--backend", "local", "--set", "rung=baseline", "--dry-run", "--share", str(shared))
    assert climb(world, monkeypatch, *words) == 0
    assert f"shares a summary in {shared}" in capsys.readouterr().err


def test_a_name_that_is_no_ladder_is_one_clear_line(
    world: World, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match="unknown ladder 'demo'") as error:
        climb(world, monkeypatch, "demo", "--backend", "slurm")
    assert error.value.hint == "did you mean demos?"
