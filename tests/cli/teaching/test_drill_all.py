"""`coach drill --all` on the command line: its output and its exit status. tests/workflows and tests/drills
test the runs."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from coach.analysis.comparing.steady_state import Estimate
from coach.cli import guarded, run_command
from coach.workflows.teaching.every_drill import DrillResult
from tests.json_documents import check_printed

MET = DrillResult(
    "idle_hands",
    "input_bound",
    run_dir="/runs/1",
    found="input_bound",
    is_diagnosed=True,
    seconds_to_finding=7.2,
    mended_by="DataLoader workers 0 → 2 per rank",
    is_fixed=True,
    throughput_ratio=Estimate(0.98, 0.03, 100),
)
MISSED = DrillResult(
    "typo", "nan_loss", run_dir="/runs/2", found="hang", is_diagnosed=False, is_fixed=True, misses=("not it",)
)
FIELDS = {"name", "planted", "run_dir", "diagnosed", "seconds_to_finding", "fixed", "throughput_ratio"}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COACH_HOME", str(tmp_path))


def coach(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = guarded(lambda: run_command("drill", ("--backend", "local", *words)))
    out, err = capfd.readouterr()
    check_printed(["drill", *words], out)
    return status, out, err


def told(monkeypatch: pytest.MonkeyPatch, *results: DrillResult) -> None:
    def run_drills(*_: object) -> Iterator[DrillResult]:
        yield from results

    monkeypatch.setattr("coach.cli.teaching.drill_all.run_drills", run_drills)


def test_a_drill_that_cannot_run_here_is_skipped_with_its_reason_and_is_no_failure(
    capfd: pytest.CaptureFixture[str],
) -> None:
    words = ("--all", "--only", "generous_memory", "--format", "json")
    status, out, err = coach(capfd, *words)
    (drill,) = json.loads(out)["drills"]
    assert status == 0
    assert drill.keys() > FIELDS
    assert (drill["name"], drill["planted"]) == ("generous_memory", "memory_over_request")
    assert (drill["run_dir"], drill["diagnosed"], drill["fixed"]) == (None, None, None)
    assert "needs Slurm" in drill["skipped"]
    assert "1 of 1  generous_memory: skipped" in err


def test_a_bar_that_is_missed_is_named_and_fails(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told(monkeypatch, MISSED, MET)
    status, out, _ = coach(capfd, "--all")
    assert status == 1
    assert "0.98 ± 0.03" in out
    assert "typo: not it" in out
    assert out.index("idle_hands") < out.index("typo")
    assert out.endswith("1 of 2 passed, 0 skipped\n")
    told(monkeypatch, MET)
    status, out, _ = coach(capfd, "--all", "--format", "json")
    (drill,) = json.loads(out)["drills"]
    assert status == 0
    assert (drill["diagnosed"], drill["fixed"], drill["seconds_to_finding"]) == (True, True, 7.2)
    assert (drill["throughput_ratio"], drill["throughput_ratio_noise"]) == (0.98, 0.03)


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
    cleaned: list[bool] = []

    def run_drills(*_: object) -> Iterator[DrillResult]:
        try:
            yield MET
            os.kill(os.getpid(), number)
            yield MISSED
        finally:
            cleaned.append(True)

    monkeypatch.setattr("coach.cli.teaching.drill_all.run_drills", run_drills)
    status, out, _ = coach(capfd, "--all")
    assert (status, cleaned) == (130, [True])
    assert "idle_hands" in out
    assert "typo" not in out
