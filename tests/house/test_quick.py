"""`make quick` picks the tests of a changed file with the reason, and lists the tests that it leaves out."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.house import measures, quick, ratchet
from tests.house.quick import GUARDS, MAX_BY_IMPORT, PROOFS, ROOMS, command, pick, texts_of_tests
from tests.installed import REPOSITORY

TESTS = {
    "tests/cli/test_why.py": "from coach.cli import check, why\n",
    "tests/cli/test_check.py": "from coach.cli.check import run\n",
    "tests/rules/test_ends.py": "ENDED = {'stale': 'ENV017'}\n",
    "tests/waiting.py": "from coach.cli.why import run\n",
}


@pytest.mark.parametrize(
    ("changed", "picked"),
    [
        ("coach/cli/why.py", {"tests/cli/test_why.py": "is named after coach/cli/why.py"}),
        (
            "coach/cli/check.py",
            {
                "tests/cli/test_check.py": "is named after coach/cli/check.py",
                "tests/cli/test_why.py": "uses coach/cli/check.py",
            },
        ),
        (
            "coach/rules/environment/env017_stale_handle.py",
            {"tests/rules/test_ends.py": "uses coach/rules/environment/env017_stale_handle.py"},
        ),
        ("tests/cli/test_why.py", {"tests/cli/test_why.py": "is changed"}),
    ],
)
def test_a_changed_file_brings_its_own_tests_with_the_reason(changed: str, picked: dict[str, str]) -> None:
    run = pick([changed], TESTS).run
    rooms = {test for tests in ROOMS.values() for test in tests}
    assert {test: why for test, why in run.items() if test not in GUARDS and test not in rooms} == picked
    assert GUARDS.keys() <= run.keys()


def test_for_a_module_imported_everywhere_the_smallest_tests_run_and_the_others_are_named() -> None:
    tests = {f"tests/x/test_{number}.py": "from coach import runs\n" + "#" * number for number in range(9)}
    picks = pick(["coach/runs.py"], tests)
    assert sum(why == "uses coach/runs.py" for why in picks.run.values()) == MAX_BY_IMPORT
    (said,) = picks.left_out
    assert "tests/x/test_8.py" in said
    assert "tests/x/test_0.py" not in said


def test_a_file_picked_for_another_change_is_not_listed_as_left_out() -> None:
    tests = {f"tests/x/test_{number}.py": "from coach import runs\n" + "#" * number for number in range(5)}
    tests["tests/x/test_4.py"] += "\nfrom coach import late\n"
    (said,) = pick(["coach/runs.py", "coach/late.py"], tests).left_out
    assert said == "1 more test files use coach/runs.py: tests/x/test_3.py"


@pytest.mark.parametrize(
    ("test", "text"),
    [
        ("tests/fuzz/test_runs.py", ""),
        ("tests/x/test_runs.py", "pytestmark = pytest.mark.cluster\n"),
        ("tests/x/test_runs.py", "#" * 50_000),
        ("tests/x/test_runs.py", "from tests.tui.texts import walk\n"),
    ],
)
def test_a_slow_or_waiting_or_distant_test_is_left_out(test: str, text: str) -> None:
    picks = pick(["coach/late.py"], {test: f"from coach import late\n{text}"})
    assert test not in picks.run
    assert picks.left_out == [f"1 more test files use coach/late.py: {test}"]


def test_only_the_proofs_of_the_changed_rule_run() -> None:
    picks = pick(["coach/rules/environment/env017_stale_handle.py"], {PROOFS: ""})
    assert PROOFS in picks.run
    assert "(not test_proofs or ENV017)" in " ".join(command(picks, []))


def test_a_wide_line_fails_before_any_test_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wide = tmp_path / "coach" / "wide.py"
    wide.parent.mkdir()
    wide.write_text(f"# {'x' * 120}\n")
    for module in (quick, measures, ratchet):
        monkeypatch.setattr(module, "REPOSITORY", tmp_path)
    monkeypatch.setattr(quick, "texts_of_tests", dict)
    monkeypatch.setattr(quick, "command", None)  # whatever would run a test fails
    monkeypatch.setattr(sys, "argv", ["quick", "--files", "coach/wide.py"])
    assert quick.main() == 1
    assert "wide-lines: coach/wide.py: 1, at most 0: break the line at 110" in capsys.readouterr().out


def test_a_file_without_tests_is_named() -> None:
    assert "no test is named after it" in pick(["LICENSE"], TESTS).left_out[0]


def test_all_tests_of_the_rooms_and_all_guards_are_there() -> None:
    named = {*GUARDS, *(test for tests in ROOMS.values() for test in tests)}
    assert [test for test in named if not (REPOSITORY / test).exists()] == []
    assert "tests/house/test_quick.py" in texts_of_tests()


def test_tests_that_wait_for_a_cluster_are_left_out_of_the_call() -> None:
    words = command(pick(["coach/cli/why.py"], TESTS), ["-x"])
    assert "cluster" in words[words.index("-m", 3) + 1]
    assert words[-1] == "-x"
