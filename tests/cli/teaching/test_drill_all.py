"""`coach drill --all` on the command line: its output and its exit status. tests/drills tests the runs."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from coach.cli import guarded, run_command
from coach.model.errors import UserError
from tests.json_documents import check_printed

FIELDS = {"name", "planted", "run_dir", "found", "diagnosed", "seconds_to_finding", "skipped"}


@dataclass
class Prepared:
    """Launches whose runs have a prepared primary finding, by the recipe."""

    causes: dict[str, str | None] = field(default_factory=dict)
    signal_at: str = ""
    number: signal.Signals = signal.SIGINT

    def run(self, request: Any, **_: object) -> Any:
        if request.recipe == self.signal_at:
            os.kill(os.getpid(), self.number)
        if request.recipe not in self.causes:
            raise UserError("no partition takes it")
        cause = self.causes[request.recipe]
        primary = SimpleNamespace(cause=cause) if cause is not None else None
        submitted = SimpleNamespace(run_dir=f"/runs/{request.recipe}")
        return SimpleNamespace(primary=primary, submitted=submitted, seconds_to_finding=7.2)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COACH_HOME", str(tmp_path))


def coach(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = guarded(lambda: run_command("drill", ("--backend", "local", *words)))
    out, err = capfd.readouterr()
    check_printed(["drill", *words], out)
    return status, out, err


def prepare(monkeypatch: pytest.MonkeyPatch, prepared: Prepared) -> None:
    monkeypatch.setattr("coach.cli.teaching.drill_all.Launches", lambda *_: prepared)


def test_a_drill_that_cannot_run_here_is_skipped_with_its_reason_and_is_no_failure(
    capfd: pytest.CaptureFixture[str],
) -> None:
    words = ("--all", "--only", "generous_memory", "--format", "json")
    status, out, err = coach(capfd, *words)
    (drill,) = json.loads(out)["drills"]
    assert status == 0
    assert drill.keys() == FIELDS
    assert (drill["name"], drill["planted"]) == ("generous_memory", "memory_over_request")
    assert (drill["run_dir"], drill["diagnosed"]) == (None, None)
    assert "needs Slurm" in drill["skipped"]
    assert "1 of 1  generous_memory: skipped" in err


def test_a_cause_that_is_not_found_and_a_launch_that_is_refused_fail(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("--all", "--only", "idle_hands,typo,missing_piece")
    prepare(monkeypatch, Prepared({"idle_hands": "input_bound", "typo": None}))
    status, out, err = coach(capfd, *words)
    assert status == 1
    assert "typo was not found" not in out  # its planted cause is named, not the drill
    assert "was not found" in out
    assert "skipped: no partition takes it" in err
    assert out.endswith("1 of 2 found, 1 skipped\n")
    prepare(monkeypatch, Prepared({"idle_hands": "input_bound"}))
    status, out, _ = coach(capfd, "--all", "--only", "idle_hands", "--format", "json")
    (drill,) = json.loads(out)["drills"]
    assert (status, drill["diagnosed"], drill["run_dir"]) == (0, True, "/runs/idle_hands")
    assert drill["seconds_to_finding"] == 7.2


def test_words_that_do_not_belong_together_are_refused(capfd: pytest.CaptureFixture[str]) -> None:
    assert coach(capfd, "--all", "typo")[0] == 2
    assert coach(capfd, "--only", "typo")[0] == 2
    status, _, err = coach(capfd, "--all", "--only", "typos")
    assert status == 2
    assert "no such drill" in err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_closed_terminal_or_a_kill_leaves_nothing_running_and_the_results_are_printed(
    number: signal.Signals, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = Prepared({"idle_hands": "input_bound", "typo": None}, "typo", number)
    prepare(monkeypatch, prepared)
    status, out, _ = coach(capfd, "--all", "--only", "idle_hands,typo")
    assert status == 130
    assert "idle_hands" in out
    assert "typo" not in out
