"""Reading the shared directory: everything that others may write into it, and the result."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from coach.model.errors import UserError
from coach.model.judging.finding import Severity
from coach.model.teaching.cohort import OnLadder
from coach.runs import MAX_SUMMARY_BYTES
from coach.sources.runs import cohort_directory as cohort
from coach.sources.runs.cohort_directory import parse_summary, read_roster, read_shared

ME = os.geteuid()


def summary(run_id: str | None = "run-1", **more: Any) -> dict[str, Any]:
    return {
        "schema": 1,
        "user": "ada",
        "run_id": run_id,
        "recipe": "ddp",
        "drill": None,
        "state": "RUNNING",
        "samples_per_s": 512.0,
        "is_solved": None,
        "is_judged": True,
        "created_time_s": 1.0,
        "started_time_s": 2.0,
        "ended_time_s": None,
        "updated_time_s": 3.0,
        "finding": {"code": "NUM001", "severity": "critical"},
        **more,
    }


def put(place: Path, value: Any, name: str = f"{ME}-run-1.json") -> Path:
    path = place / name
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def test_a_summary_becomes_a_value_that_belongs_to_the_owner_of_its_file(tmp_path: Path) -> None:
    put(tmp_path, summary(user="somebody else"))
    [found] = read_shared(tmp_path).summaries
    assert (found.uid, found.run_id, found.thing, found.is_drill) == (ME, "run-1", "ddp", False)
    assert (found.code, found.severity, found.samples_per_s) == ("NUM001", Severity.CRITICAL, 512.0)
    assert found.updated_time_s == 3.0


def test_a_ladder_has_a_name_a_group_and_a_rung(tmp_path: Path) -> None:
    at = {"name": "demos", "group_id": "g-1", "rung": 1, "ratio": 6, "samples_per_s": None}
    put(tmp_path, summary(ladder=at))
    assert read_shared(tmp_path).summaries[0].ladder == OnLadder("demos", "g-1", 1, 6.0, None)
    put(tmp_path, summary(ladder={**at, "rung": None}))
    assert read_shared(tmp_path).problems == (
        f"{ME}-run-1.json: ladder: expected a name, a group and a rung",
    )


def test_links_pipes_and_folders_are_named_and_never_opened(tmp_path: Path) -> None:
    secret = tmp_path / "elsewhere"
    secret.mkdir()
    put(secret, summary())
    place = tmp_path / "place"
    place.mkdir()
    (place / f"{ME}-run-1.json").symlink_to(secret / f"{ME}-run-1.json")
    os.mkfifo(place / f"{ME}-run-2.json")
    (place / f"{ME}-run-3.json").mkdir()
    (place / f"{ME}-run-4.json").symlink_to("/dev/zero")
    found = read_shared(place)
    assert found.summaries == ()
    assert len(found.problems) == 4
    assert all("not a plain file" in problem for problem in found.problems)


def test_unfinished_files_and_other_files_are_skipped(tmp_path: Path) -> None:
    put(tmp_path, "{", ".1000-run-1.json.abc")
    put(tmp_path, "read me", "README")
    assert read_shared(tmp_path) == cohort.Shared((), (), {})


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("", "not valid JSON"),
        ("\0\x1b[2J", "not valid JSON"),
        ("[" * 1500, ""),
        ("[]", "schema 1"),
        (summary(schema=2), "schema 1"),
        (summary(run_id="run-2"), "must be its name"),
        (summary(run_id=None), "must be its name"),
        (summary(recipe=None), "a recipe or a drill"),
        (summary(drill="typo"), "a recipe or a drill"),
        (summary(state=["RUNNING"]), "state"),
        (summary(state="x" * 300), "state"),
        (summary(samples_per_s=-1), "samples_per_s"),
        (summary(samples_per_s=True), "samples_per_s"),
        (summary(created_time_s="1"), "created_time_s"),
        (json.dumps(summary()).replace("512.0", "NaN"), "samples_per_s"),
        (json.dumps(summary()).replace("512.0", "1" + "0" * 1200), "samples_per_s"),
        (summary(updated_time_s=None), "updated_time_s"),
        (summary(is_judged="yes"), "is_judged"),
        (summary(is_solved=1), "is_solved"),
        (summary(finding="NUM001"), "finding"),
        (summary(finding={"code": "\x1b[31m", "severity": "critical"}), "finding"),
        (summary(finding={"code": "NUM001", "severity": []}), "finding"),
        (summary(state=" " * MAX_SUMMARY_BYTES), "larger than"),
    ],
)
def test_a_file_of_another_form_is_named_with_its_mistake(tmp_path: Path, value: Any, why: str) -> None:
    put(tmp_path, summary("run-0"), f"{ME}-run-0.json")
    put(tmp_path, value)
    found = read_shared(tmp_path)
    assert [each.run_id for each in found.summaries] == ["run-0"]
    [problem] = found.problems
    assert problem.startswith(f"{ME}-run-1.json: ")
    assert why in problem


def test_a_file_in_another_user_s_name_is_refused() -> None:
    data = json.dumps(summary()).encode()
    assert parse_summary(data, "1000-run-1.json", 1000).uid == 1000
    with pytest.raises(ValueError, match="must be its name"):
        parse_summary(data, "1000-run-1.json", 1001)


@pytest.mark.parametrize("is_solved", [None, True, False])
def test_the_cause_of_a_drill_is_dropped_even_from_a_file_that_holds_it(is_solved: bool | None) -> None:
    drill = summary(recipe=None, drill="typo", is_solved=is_solved)
    told = parse_summary(json.dumps(drill).encode(), "1000-run-1.json", 1000)
    assert (told.code, told.severity, told.is_judged, told.is_solved) == (None, None, False, is_solved)


def test_a_user_with_thousands_of_files_displaces_no_other_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cohort, "MAX_FILES_PER_USER", 2)
    for n in range(5):
        path = put(tmp_path, summary(f"run-{n}"), f"{ME}-run-{n}.json")
        os.utime(path, (n, n))
    found = read_shared(tmp_path)
    assert sorted(each.run_id for each in found.summaries) == ["run-3", "run-4"]
    assert found.left_out == {ME: 3}


@pytest.mark.root
def test_thousands_of_files_of_one_user_hide_no_other_user_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mallory's file names begin with his own uid, or with Ada's and an older run; they may even come first
    in the directory."""
    monkeypatch.setattr(cohort, "MAX_FILES", 500)
    ada, mallory, run_id = 61001, 61002, "20261121-101010-ddp-0001"
    for n in range(2000):
        claimed, day = (mallory, 2099) if n % 2 else (ada, 2025)
        os.chown(put(tmp_path, "", f"{claimed}-{day}1120-235959-ddp-{n:04x}.json"), mallory, -1)
    os.chown(put(tmp_path, summary(run_id), f"{ada}-{run_id}.json"), ada, -1)
    found = read_shared(tmp_path)
    assert [(each.uid, each.run_id) for each in found.summaries] == [(ada, run_id)]
    assert found.left_out == {None: 1501, mallory: 199}


def test_a_missing_directory_is_one_line_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="No such file") as error:
        read_shared(tmp_path / "nowhere")
    assert "--share" in (error.value.hint or "")


def test_a_roster_has_a_name_on_each_line(tmp_path: Path) -> None:
    roster = put(tmp_path, "ada  # the first\n\n# nobody\nbob\r\n", "roster")
    assert read_roster(roster) == {"ada", "bob"}
    put(tmp_path, "\ufeffada\r\nbob\r\n", "roster")  # as Windows' Notepad writes it
    assert read_roster(roster) == {"ada", "bob"}
    put(tmp_path, "ada\nbob, eve\n", "roster")
    with pytest.raises(UserError, match=r"roster:2: 2 words"):
        read_roster(roster)
    put(tmp_path, "# nobody\n", "roster")
    with pytest.raises(UserError, match="no name"):
        read_roster(roster)
