"""One home, seen by a wrong clock, in the C locale, by another machine and by two coaches at once: nothing
is lost, nothing crashes, and the state of a run is not made up."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from coach import runs
from coach.node import own_run
from coach.sources.machine.user import user_name
from tests.faults.kill_points import forked
from tests.faults.world import World, Worlds

RUN = "20260101-000000-train-0001"


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Worlds:
    return Worlds(tmp_path_factory.mktemp("homes"))


@pytest.fixture
def world(worlds: Worlds) -> Iterator[World]:
    made = worlds.make()
    yield made
    made.end()


def running(world: World, **more: object) -> runs.RunPaths:
    """A local run whose command is this very test."""
    paths = runs.create_run_dir(world.runs_root, RUN)
    paths.metrics_dir.mkdir()
    value = {
        "run_id": RUN,
        "recipe": "train",
        "backend": "local",
        "job_id": RUN,
        "user": user_name(),
        "state": "RUNNING",
        "created_time_s": time.time() - 60.0,
        "started_time_s": time.time() - 60.0,
        "supervisor": {"pid": 2**22 - 3, "node": socket.gethostname(), "create_time_s": 1.0},
        "process": own_run.identify(os.getpid()),
    }
    runs.write_json(paths.run_json, {**value, **more})
    return paths


@pytest.mark.parametrize("ahead_s", [3600.0, -3600.0], ids=["ahead", "behind"])
def test_a_clock_an_hour_wrong_ends_no_run_and_makes_no_finding(
    world: World, monkeypatch: pytest.MonkeyPatch, ahead_s: float
) -> None:
    running(world)
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + ahead_s)
    assert [run["state"] for run in world.listed()] == ["RUNNING"]
    told = json.loads(world.coach("jobs", "--backend", "local", "--format", "json").stdout)
    assert [job["state"] for job in told["jobs"]] == ["RUNNING"]
    (used_s,) = (job["time_used_s"] for job in told["jobs"])
    assert used_s >= 3600 if ahead_s > 0 else used_s == 0, "the clock is wrong, and no time is negative"
    found = json.loads(world.coach("check", RUN, "--format", "json").stdout)
    assert [each["rule"] for each in found["findings"] if each["severity"] != "info"] == []
    monkeypatch.setattr(time, "time", right)
    assert [run["state"] for run in world.listed()] == ["RUNNING"], "the clock was set right"


def test_in_the_c_locale_accents_are_kept_and_unprintable_characters_are_question_marks(
    world: World,
) -> None:
    folder = world.home / "müll é"
    folder.mkdir()
    (folder / "größe.log").write_text(
        "Traceback (most recent call last):\n"
        '  File "/home/é/train.py", line 9, in <module>\n'
        "    loss.backward()\n"
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n",
        encoding="utf-8",
    )
    path = str(folder / "größe.log")

    def check(env: dict[str, str], *words: str) -> bytes:
        # A start of its own: Python sets its encodings once.
        argv = [sys.executable, "-m", "coach", "check", path, *words]
        done = subprocess.run(argv, env={**world.env, **env}, stdin=subprocess.DEVNULL, capture_output=True)
        assert (done.returncode, b"Traceback" in done.stderr) == (1, False), done.stderr
        return done.stdout

    found = json.loads(check({"LC_ALL": "C"}, "--format", "json"))["findings"][0]
    assert (found["rule"], found["evidence"][0]["file"]) == ("MEM001", path)
    plain = check({"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"})
    assert plain.isascii()
    assert b"MEM001" in plain


def test_a_run_of_another_machine_in_the_same_home_is_named_as_such_and_kept(world: World) -> None:
    other = {"node": "other-login", "boot_id": "of-the-other"}
    running(
        world,
        supervisor={"pid": 1, "create_time_s": 1.0, **other},
        process={"pid": 1, "start_ticks": 1, **other},
    )
    (run,) = world.listed()
    assert (run["state"], run["host"], run["is_visible"]) == ("RUNNING", "other-login", False)
    assert b"other-login" in world.coach("runs").stdout
    told = world.coach("runs", "clean", RUN, "--yes", status=None)
    assert b"not visible from here" in told.stdout + told.stderr
    assert Path(run["run_dir"]).is_dir()


def test_two_coaches_in_one_home_list_the_same_runs_and_tear_no_cache(world: World) -> None:
    for number in range(150):  # enough for an index
        paths = runs.create_run_dir(world.runs_root, f"20260101-{number:06d}-train-0000")
        value = {"run_id": paths.run_dir.name, "backend": "slurm", "job_id": str(number)}
        runs.write_json(paths.run_json, {**value, "state": "COMPLETED", "ended_time_s": 1000.0 + number})
    together = [forked(world.body(("runs", "--format", "json"))) for _ in range(2)]
    for each in together:
        each.go()
    assert [each.wait() for each in together] == [0, 0], world.output
    assert "Traceback" not in world.output
    assert world.output.count('"run_id"') == 300
    assert len(world.listed()) == 150
