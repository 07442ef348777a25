"""A job's own verdict in its line of the cohort's directory, with no coach open."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from coach import runs
from coach.cli import guarded, run_command
from coach.node import judge, share
from coach.sources.machine.user import user_name
from tests.node.test_judge import RUN, write_ended
from tests.ordinary_user import NOBODY

OTHER = f"{NOBODY}-20261121-142233-ddp-0000.json"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory like /tmp, with another user's line."""
    place = tmp_path / "cohort"
    place.mkdir()
    place.chmod(0o1777)
    (place / OTHER).write_text('{"schema": 1, "state": "RUNNING", "finding": null}')
    return place


def an_ended_run(tmp_path: Path, place: Path | None, **record: Any) -> runs.RunPaths:
    paths = write_ended(tmp_path / "runs" / RUN, "FAILED")
    launch = {"share": str(place)} if place is not None else {}
    runs.update_json(paths.run_json, {"launch": launch, "user": user_name(), **record})
    return paths


Judged = Callable[[runs.RunPaths], list[str]]


@pytest.fixture
def judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Judged:
    """Run the job's last step in this process. Returns the lines for its log."""
    monkeypatch.setenv("COACH_HOME", str(tmp_path))

    def call(paths: runs.RunPaths) -> list[str]:
        assert guarded(lambda: run_command("why", ["--write-verdict", str(paths.run_dir)])) == 0
        return capfd.readouterr().out.splitlines()

    return call


def line(place: Path) -> dict[str, Any]:
    """This run's line. The directory holds only one other line, another user's, unchanged."""
    assert json.loads((place / OTHER).read_text())["finding"] is None
    own = place / f"{os.geteuid()}-{RUN}.json"
    assert set(place.iterdir()) == {own, place / OTHER}
    assert own.stat().st_mode & 0o777 == 0o644
    return dict(json.loads(own.read_bytes()))


def test_the_job_s_own_verdict_changes_its_line_while_no_coach_is_open(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge, "PATIENCE_S", 60.0)  # of a machine that is busy with other tests
    paths = an_ended_run(tmp_path, place)
    assert share.share(paths) is None
    assert (line(place)["finding"], line(place)["is_judged"]) == (None, False)
    env = {**os.environ, "COACH_HOME": str(tmp_path)}
    assert b"ValueError" in b"\n".join(judge.judge(paths.run_dir, sys.executable, env))
    told = line(place)
    assert (told["finding"], told["is_judged"]) == ({"code": "COD001", "severity": "critical"}, True)
    assert (told["state"], told["user"]) == ("FAILED", user_name())


def test_a_healthy_job_s_line_says_that_it_was_judged(tmp_path: Path, place: Path, judged: Judged) -> None:
    paths = write_ended(tmp_path / "runs" / RUN, "COMPLETED")
    paths.stderr_log.write_text("")
    runs.update_json(paths.run_json, {"launch": {"share": str(place)}})
    assert judged(paths) == []
    told = line(place)
    assert (told["finding"], told["is_judged"], told["state"]) == (None, True, "COMPLETED")


def test_a_person_s_readonly_keeps_no_job_from_telling_its_own_end(
    tmp_path: Path, place: Path, judged: Judged
) -> None:
    (tmp_path / "config.toml").write_text("readonly = true\n")
    paths = an_ended_run(tmp_path, place)
    assert judged(paths)
    assert (paths.run_dir / "verdict.json").exists()
    assert line(place)["finding"] == {"code": "COD001", "severity": "critical"}


def test_an_open_drill_s_line_names_no_cause(tmp_path: Path, place: Path, judged: Judged) -> None:
    judged(an_ended_run(tmp_path, place, drill="typo"))
    told = line(place)
    assert (told["finding"], told["is_judged"], told["drill"]) == (None, False, "typo")


@pytest.mark.parametrize("launch", [{}, {"share": "none"}, {"share": "relative"}, {"share": 3}, None])
def test_a_run_that_shares_nothing_writes_nothing(
    tmp_path: Path, place: Path, judged: Judged, launch: Any
) -> None:
    paths = an_ended_run(tmp_path, None, launch=launch)
    assert judged(paths)
    assert [file.name for file in place.iterdir()] == [OTHER]


def test_the_cohort_s_summary_is_written_last_and_nothing_waits_for_it(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    paths, seen = an_ended_run(tmp_path, place), []

    def hangs(of: runs.RunPaths, finding: Any, state: Any, patience_s: float) -> None:
        seen.append(((of.run_dir / "verdict.json").exists(), capfd.readouterr().out, patience_s))

    monkeypatch.setenv("COACH_HOME", str(tmp_path))
    monkeypatch.setattr(share, "share_in_time", hangs)
    run_command("why", ["--write-verdict", str(paths.run_dir)])
    ((is_kept, said, patience_s),) = seen
    assert is_kept
    assert "it ended with ValueError" in said
    assert patience_s < judge.PATIENCE_S / 2


def test_output_of_a_judge_before_its_time_limit_is_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "run", _timed_out)
    assert judge.judge(tmp_path, sys.executable, os.environ) == [b"coach: why: ValueError"]


def _timed_out(argv: Sequence[str], **_: Any) -> None:
    raise subprocess.TimeoutExpired(argv, 10.0, b"coach: why: ValueError\ncoach: why: not who")


def test_nothing_of_others_is_followed_or_replaced(tmp_path: Path, place: Path, judged: Judged) -> None:
    victim, own = tmp_path / "victim", place / f"{os.geteuid()}-{RUN}.json"
    victim.write_text('{"finding": {"code": "NUM001", "severity": "critical"}, "is_judged": true}')
    own.symlink_to(victim)
    paths = an_ended_run(tmp_path, place)
    judged(paths)
    assert line(place)["finding"]["code"] == "COD001"
    assert "NUM001" in victim.read_text()
    own.unlink()
    place.chmod(0o777)  # every user could replace the files of others
    assert judged(paths)
    assert [file.name for file in place.iterdir()] == [OTHER]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a run of somebody else")
def test_another_users_run_is_not_shared_under_ones_own_name(
    tmp_path: Path, place: Path, judged: Judged
) -> None:
    paths = an_ended_run(tmp_path, place)
    for path in (paths.run_dir, *paths.run_dir.rglob("*")):
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    judged(paths)
    assert [file.name for file in place.iterdir()] == [OTHER]
