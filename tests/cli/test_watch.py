"""`coach watch` of runs on this machine: news as they come, the cause at the end, the exit status."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from coach.analysis.jobs.watched_jobs import News
from coach.cli import watch
from coach.config import load
from coach.model.errors import UserError
from coach.workflows.watching.until_ended import EndWatch
from tests.forked import typed_coach
from tests.waiting import wait_until

Coach = Callable[..., "subprocess.CompletedProcess[str]"]
BAD = "import pathlib\nwhile not pathlib.Path('go').exists(): pass\nraise ValueError('11 classes')\n"


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "COACH_HOME": str(tmp_path / "home"), "COACH_AS_ROOT": "1"}


@pytest.fixture
def coach(env: dict[str, str], tmp_path: Path) -> Coach:
    def call(*words: str) -> subprocess.CompletedProcess[str]:
        return typed_coach(words, env, cwd=tmp_path, timeout_s=120)

    return call


def launch(coach: Coach, folder: Path, name: str, program: str, *more: str) -> str:
    (folder / f"{name}.py").write_text(program)
    words = ("--backend", "local", "--gpus", "0", "--format", "json", *more)
    done = coach("launch", f"{name}.py", *words)
    answer, _ = json.JSONDecoder().raw_decode(done.stdout)
    return str(answer["run_id"])


def test_a_run_is_followed_to_its_end_and_its_cause(
    coach: Coach, env: dict[str, str], tmp_path: Path
) -> None:
    run_id = launch(coach, tmp_path, "bad", BAD)
    said = tmp_path / "said"
    with said.open("w") as out:
        command = [sys.executable, "-m", "coach", "watch", "--backend", "local"]
        watching = subprocess.Popen(command, env=env, stdout=out, stderr=subprocess.STDOUT)
    wait_until(lambda: "RUNNING" in said.read_text(), 60, "it is seen to run")
    (tmp_path / "go").touch()
    assert watching.wait(60) == 1
    text = said.read_text()
    assert f"{run_id}  FAILED: it ended with ValueError\n" in text
    assert "critical COD001: ValueError: 11 classes" in text
    assert text.count("COD001") == 1
    again = coach("watch", run_id, "--backend", "local", "--format", "json")
    (verdict,) = json.loads(again.stdout)["jobs"]
    assert (again.returncode, verdict["findings"][0]["rule"]) == (1, "COD001")
    lenient = coach("watch", run_id, "--backend", "local", "--fail-on", "critical")
    assert lenient.returncode == 1


def test_a_healthy_run_is_one_line_and_status_0(coach: Coach, tmp_path: Path) -> None:
    run_id = launch(coach, tmp_path, "fine", "print('step 1 loss 0.5')\n", "--wait")
    done = coach("watch", run_id, "--backend", "local")
    assert done.returncode == 0
    (line,) = done.stdout.splitlines()
    assert f"{run_id}  COMPLETED" in line


def test_watch_says_that_no_job_waits_or_runs(coach: Coach) -> None:
    done = coach("watch", "--backend", "local")
    assert (done.returncode, done.stdout) == (0, "You have no pending or running job.\n")


def test_ctrl_c_leaves_the_run_alone_and_says_so(coach: Coach, env: dict[str, str], tmp_path: Path) -> None:
    run_id = launch(coach, tmp_path, "bad", BAD)
    command = [sys.executable, "-m", "coach", "watch", run_id, "--backend", "local"]
    watching = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert watching.stdout is not None
    assert run_id in watching.stdout.readline()
    watching.send_signal(signal.SIGINT)
    _, said = watching.communicate(timeout=60)
    assert (watching.returncode, said) == (130, "coach: stopped watching; 1 goes on as before\n")
    assert coach("cancel", run_id, "--yes").returncode == 0


def test_a_file_has_no_end_to_wait_for(coach: Coach, tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("step 1\n")
    done = coach("watch", "train.log", "--backend", "local")
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == "coach: train.log: a file has no end to wait for"


class _Unreadable(EndWatch):
    """A job that has ended, and about which nothing can be read any more."""

    def __init__(self, *_: object) -> None:
        pass

    def follow(self, tell: Callable[[News], object], tell_problem: Callable[[str | None], object]) -> None:
        tell(News(0.0, "17", "Slurm does not know it any more", True))

    def verdict(self, name: str) -> Mapping[str, Any]:
        raise UserError(f"{name}: no run, job or file of that name")


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_job_whose_end_cannot_be_read_does_not_count_as_well(
    form: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(watch, "EndWatch", _Unreadable)
    parser = argparse.ArgumentParser()
    watch.configure(parser)
    args = parser.parse_args(["17", "--format", form, "--backend", "local"])
    assert watch.run(args, load({"COACH_HOME": str(tmp_path)})) == 2
    said = capsys.readouterr()
    assert "17  Slurm does not know it any more: 17: no run, job" in (
        said.err if form == "json" else said.out
    )
