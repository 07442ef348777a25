"""A teacher looks at a course: the table and the JSON of a directory that several people share in."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from coach.cli import guarded, run_command
from coach.node.share import share
from tests.json_documents import check_printed
from tests.node.test_share import a_run
from tests.sources.runs.test_cohort_directory import summary

ME = os.geteuid()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COACH_HOME", str(tmp_path / "home"))
    place = tmp_path / "shared"
    place.mkdir()
    place.chmod(0o1777)
    return place


def put(place: Path, run_id: str, uid: int = ME, **more: Any) -> None:
    path = place / f"{uid}-{run_id}.json"
    path.write_text(json.dumps(summary(run_id, updated_time_s=time.time(), **more)))
    if uid != ME:
        os.chown(path, uid, -1)


def coach(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = guarded(lambda: run_command("cohort", words))
    out, err = capfd.readouterr()
    check_printed(["cohort", *words], out)
    return status, out, err


def test_the_teacher_reads_the_summary_that_a_run_has_shared(
    tmp_path: Path, place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert share(a_run(tmp_path, place), {"code": "NUM001", "severity": "critical"}) is None
    status, out, _ = coach(capfd, str(place))
    assert status == 0
    [row] = [line.split() for line in out.splitlines() if "RUNNING" in line]
    assert row[1:] == ["ddp", "RUNNING", "–", "–", "critical", "NUM001", "–", "–"]


@pytest.mark.root
def test_learners_are_known_by_the_owner_of_their_files_and_missing_ones_are_named(
    tmp_path: Path, place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for uid in (60001, 60002):
        put(place, "run-1", uid, user="root", finding=None)
    put(place, "run-2", 60001, recipe=None, drill="typo", is_solved=True)
    put(place, "run-4", 60002, recipe=None, drill="typo", state="FAILED", is_spoiled=True)
    put(
        place, "run-3", 60002, recipe="fsdp", state="PENDING", created_time_s=time.time() - 1500, finding=None
    )
    (place / "60001-run-9.json").write_text("{")
    roster = tmp_path / "roster"
    roster.write_text("60001\n60002\nabsent\n")
    status, out, _ = coach(capfd, str(place), "--roster", str(roster))
    assert status == 0
    rows = [line.split() for line in out.splitlines()]
    assert ["60001", "typo", "RUNNING", "–", "512", "solved", "–"] in rows
    assert ["60001", "ddp", "RUNNING", "–", "512", "none", "–", "–"] in rows
    assert ["60002", "typo", "FAILED", "–", "512", "spoiled", "not", "yet", "–"] in rows
    assert ["typo", "1", "1", "0"] in rows
    assert "pending for 10 min or longer: 60002 25 min" in out
    assert "nothing yet: 1 of 3: absent" in out
    assert "not read: 60001-run-9.json: not valid JSON" in out
    _, out, _ = coach(capfd, str(place), "--roster", str(roster), "--format", "json")
    people = {person["user"]: person for person in json.loads(out)["people"]}
    assert [run["drill"] for run in people["60001"]["runs"]] == [None, "typo"]
    assert people["60002"]["is_pending_long"] is True
    assert people["60002"]["runs"][1]["pending_s"] >= 1500
    assert (people["absent"]["runs"], people["absent"]["is_expected"]) == ([], True)


def test_a_second_run_does_not_hide_the_completed_one(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    done = {"state": "COMPLETED", "finding": None, "created_time_s": 1.0, "job_id": "4755"}
    put(place, "run-1", **done, samples_per_s=1234.56789)
    put(place, "run-2", state="CANCELLED", finding=None, created_time_s=2.0, samples_per_s=9.5)
    put(place, "run-3", recipe=None, drill="typo", is_solved=True, created_time_s=1.0)
    put(place, "run-4", recipe=None, drill="typo", created_time_s=2.0)
    put(place, "run-5", recipe="=cmd", state="TIMEOUT", finding=None, samples_per_s=None)
    roster = tmp_path / "roster"
    roster.write_text("absent\n")
    _, out, _ = coach(capfd, str(place), "--format", "json")
    told = json.loads(out)
    runs = {run["run_id"]: run for run in told["people"][0]["runs"]}
    assert [runs[name]["best"]["run_id"] for name in ("run-2", "run-4", "run-5")] == [
        "run-1",
        "run-3",
        "run-5",
    ]
    assert runs["run-2"]["best"]["job_id"] == "4755"
    assert [each["num_finished"] for each in told["counts"]] == [0, 1, 1]
    _, out, _ = coach(capfd, str(place), "--roster", str(roster), "--format", "csv")
    head, *rows = out.splitlines()
    assert head == "user,'=cmd,'=cmd samples/s,ddp,ddp samples/s,drill typo"
    assert rows[0] == "absent,,,,,"
    assert rows[1].endswith(",TIMEOUT,,COMPLETED,1234.57,solved")


def test_the_members_of_a_group_are_expected(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    _, out, _ = coach(capfd, str(place), "--group", "root", "--format", "json")
    assert "root" in [person["user"] for person in json.loads(out)["people"]]
    status, _, err = coach(capfd, str(place), "--group", "no-such-group")
    assert status == 2
    assert "no-such-group: no such group" in err


def test_the_config_gives_the_cohort_directory_and_the_roster(
    tmp_path: Path, place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    status, _, err = coach(capfd)
    assert status == 2
    assert "coach cohort DIR" in err
    (tmp_path / "home").mkdir()
    (tmp_path / "roster").write_text("absent\n")
    config = tmp_path / "home" / "config.toml"
    config.write_text(f'[launch]\nshare = "{place}"\n[cohort]\nroster = "{tmp_path}/roster"\n')
    status, out, _ = coach(capfd)
    assert status == 0
    assert "nothing yet: 1 of 1: absent" in out
    config.write_text('[launch]\nshare = "shared"\n')
    status, _, err = coach(capfd)
    assert status == 2
    assert "a path from the root" in err


@pytest.mark.parametrize("words", [("--long-wait", "soon"), ("--long-wait", "-1")])
def test_a_wait_is_a_number_of_minutes(
    words: tuple[str, ...], place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        run_command("cohort", [str(place), *words])
    assert "expected a number of minutes" in capfd.readouterr().err
