"""The brake of a sweep: only runs that have ended, and failed alike, keep the next one from beginning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coach.node.__main__ import main as node_main
from coach.node.brake import look, reason


def ended(runs: Path, name: str, state: str | None, rule: str | None = None, **more: Any) -> str:
    folder = runs / name
    folder.mkdir()
    if state is not None:
        (folder / "exit.json").write_text(json.dumps({"schema": 1, "state": state, "exit_code": 1, **more}))
    if rule is not None:
        findings = [
            {"rule": rule, "summary": more.get("summary", f"words of {name}")},
            {"rule": "NUM001", "summary": "more"},
        ]
        (folder / "verdict.json").write_text(json.dumps({"schema": 1, "findings": findings}))
    return name


def asked(runs: Path, *names: str, after: int = 2) -> str | None:
    return reason((look(runs / name) for name in names), after)


def test_two_runs_that_failed_by_one_rule_are_the_reason_and_named(tmp_path: Path) -> None:
    names = [ended(tmp_path, name, "FAILED", "COD001") for name in ("a", "b")]
    told = asked(tmp_path, *names)
    assert told == ("stopped by the sweep's brake: the first 2 runs failed alike (COD001: words of a)")
    assert asked(tmp_path, *names, after=3) is None


@pytest.mark.parametrize(
    ("rule", "first", "second", "is_alike"),
    [
        ("COD001", "IndexError: Target 10 is out of bounds.", "IndexError: Target 7 is out of bounds.", True),
        ("COD001", "IndexError: Target 10 is out of bounds.", "KeyError: 'lr'", False),
        ("COD001", "KeyboardInterrupt", "KeyError: 'lr'", False),
        ("END001", "FAILED; the cause is not recognised: a", "FAILED; the cause is not recognised: a", True),
        ("END001", "FAILED; the cause is not recognised: a", "FAILED; the cause is not recognised: b", False),
        ("MEM001", "rank 0 ran out of memory", "rank 1 ran out of memory", True),
    ],
)
def test_two_exceptions_of_different_types_and_two_unknown_errors_are_not_alike(
    tmp_path: Path, rule: str, first: str, second: str, is_alike: bool
) -> None:
    ended(tmp_path, "a", "FAILED", rule, summary=first)
    ended(tmp_path, "b", "FAILED", rule, summary=second)
    assert (asked(tmp_path, "a", "b") is not None) is is_alike


def test_runs_without_a_verdict_are_compared_by_exit_status(tmp_path: Path) -> None:
    same = [ended(tmp_path, name, "FAILED", exit_code=3) for name in ("a", "b")]
    assert "(FAILED, exit status 3)" in (asked(tmp_path, *same) or "")
    assert asked(tmp_path, *same, ended(tmp_path, "c", "FAILED", exit_code=4)) is None


@pytest.mark.parametrize("state", ["COMPLETED", "TIMEOUT"])
def test_a_run_that_went_well_or_failed_otherwise_releases_the_brake(tmp_path: Path, state: str) -> None:
    names = [ended(tmp_path, name, "FAILED", "COD001") for name in ("a", "b")]
    assert asked(tmp_path, *names, ended(tmp_path, "c", state)) is None


def test_unfinished_cancelled_and_braked_runs_do_not_count(
    tmp_path: Path,
) -> None:
    refused = {"cause": "sweep_brake", "text": "x", "node": "n"}
    names = [
        ended(tmp_path, "a", "FAILED", "COD001"),
        ended(tmp_path, "running", None),
        ended(tmp_path, "cancelled", "CANCELLED", "JOB005"),
        ended(tmp_path, "braked", "FAILED", "JOB020", refused=refused),
        "never made",
    ]
    assert asked(tmp_path, *names) is None
    assert asked(tmp_path, *names, ended(tmp_path, "b", "FAILED", "COD001")) is not None


@pytest.mark.parametrize("text", ["[]", "{", "\0", '{"state": 3}', '{"state": "FAILED", "exit_code": "x"}'])
def test_no_file_of_a_run_breaks_the_brake(tmp_path: Path, text: str) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    for name in ("exit.json", "verdict.json"):
        (folder / name).write_text(text)
    assert asked(tmp_path, "a", after=2) is None


def test_the_command_prints_the_reason_or_lets_the_run_begin(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [ended(tmp_path, name, "FAILED", "MEM001") for name in ("a", "b")]
    ask = ["brake", "--runs-dir", str(tmp_path), "--after"]
    assert node_main([*ask, "3", *names]) == 1
    assert capsys.readouterr().out == ""
    assert node_main([*ask, "2", *names]) == 0
    assert "MEM001" in capsys.readouterr().out
