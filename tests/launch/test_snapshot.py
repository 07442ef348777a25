"""The code from which a job starts: programs, and nothing that is written for people."""

from __future__ import annotations

from coach.launch.snapshot import snapshot_files


def test_a_page_about_the_trainers_makes_no_other_program() -> None:
    names = set(snapshot_files())
    assert {"trainers/baseline.py", "coach/node/__main__.py", "coach/runs.py"} <= names
    assert {name for name in names if name.endswith(".md")} == set()
