"""A run is mine or seen: of another user's run nothing is started, signalled or changed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.attacks.mallory import Mallory
from tests.installed import InstalledCoach

pytestmark = pytest.mark.root

RUN = "20261121-142233-baseline-4f2a"
START_S = 1795271000.0


def plant(mallory: Mallory, folder: Path, python: Path, **more: Any) -> Path:
    """A failed run of hers, whose record names a program of hers as the interpreter."""
    run_dir = folder / RUN
    (run_dir / "metrics").mkdir(parents=True)
    record: Mapping[str, Any] = {
        "schema": 1,
        "run_id": RUN,
        "recipe": "baseline",
        "parameters": {"lr": 5.0, "max_steps": 100},
        "resources": {"num_nodes": 1, "gpus_per_node": 0, "nproc_per_node": 1},
        "launch": {"recipe": "baseline", "python": str(python), "setup": [str(python)]},
        "backend": "local",
        "job_id": RUN,
        "state": "FAILED",
        "created_time_s": START_S,
        "started_time_s": START_S,
        **more,
    }
    steps = [
        {"step": step, "loss": 2.0 if step < 20 else "NaN", "lr": 5.0, "time_s": START_S + step}
        for step in range(1, 60)
    ]
    lines = "".join(json.dumps(step) + "\n" for step in steps)
    for name, text in (
        ("run.json", json.dumps(record)),
        ("metrics/rank-0.jsonl", lines),
        ("job.sh", f"#!/bin/bash\n{python}\n"),
    ):
        (run_dir / name).write_text(text)
    for path in (run_dir, *run_dir.rglob("*")):
        mallory.own(path)
    return run_dir


@pytest.fixture
def program(mallory: Mallory, marks: Path) -> Path:
    mallory.make_folder("venv")
    mallory.make_folder("venv/bin")
    return mallory.program_that_marks("venv/bin/python", marks / "ran")


def test_the_fixes_of_another_users_run_are_shown_and_nothing_is_started(
    local_coach: InstalledCoach, mallory: Mallory, program: Path, marks: Path
) -> None:
    run_dir = plant(mallory, mallory.folder, program)
    for options in (("--list",), (), ("--dry-run",), ("--trial",)):
        done = local_coach("fix", run_dir, *options)
        assert done.returncode == 0
        assert "Learning rate 5 → 0.5" in done.stdout
        assert f"{run_dir}: belongs to uid 64999: coach starts nothing from this run" in done.stderr
    refused = local_coach("fix", run_dir, "--yes", "--change-learning")
    assert refused.returncode == 2
    assert "belongs to uid 64999" in refused.stderr
    rows = json.loads(local_coach("fix", run_dir, "--list", "--format", "json").stdout)["fixes"]
    assert [(row["rule"], row["why_not"]) for row in rows] == [("NUM001", "not a run of yours")]
    assert not list(marks.iterdir())


def test_root_runs_nothing_of_a_user_and_a_read_only_coach_nothing_at_all(
    local_coach: InstalledCoach, mallory: Mallory, program: Path, marks: Path
) -> None:
    run_dir = plant(mallory, mallory.folder, program)
    env = {name: value for name, value in os.environ.items() if name != "COACH_AS_ROOT"}
    for more in ({}, {"COACH_AS_ROOT": "1"}):
        argv = [sys.executable, "-m", "coach", "fix", str(run_dir), "--list"]
        done = subprocess.run(argv, env={**env, **more}, capture_output=True, text=True)
        assert "belongs to uid 64999" in done.stderr
    config = local_coach.user.home / "config.toml"
    config.write_text("readonly = true\n")
    done = local_coach("fix", run_dir, "--list", env={"COACH_HOME": str(config.parent)})
    assert done.returncode == 0
    assert not list(marks.iterdir())


def test_a_run_planted_in_ones_own_root_is_neither_cancelled_nor_launched_again(
    local_coach: InstalledCoach, mallory: Mallory, program: Path, marks: Path
) -> None:
    """Its record names a process of the victim's, which has nothing to do with it."""
    user = local_coach.user
    sleeper = subprocess.Popen(user.argv(["sleep", "600"]), env=user.env())
    try:
        process = psutil.Process(sleeper.pid)
        deadline_s = time.monotonic() + 10
        while process.name() != "sleep" and time.monotonic() < deadline_s:
            os.sched_yield()
        supervisor = {"pid": process.pid, "create_time_s": process.create_time(), "node": os.uname().nodename}
        root = user.home / "coach" / "runs"
        run_dir = plant(mallory, root, program, state="RUNNING", supervisor=supervisor)
        for folder in (root.parent, root):
            os.chown(folder, user.uid, user.gid)
        for command in ("cancel", "resubmit", "stacks"):
            done = local_coach(command, RUN, *(() if command == "stacks" else ("--yes",)))
            assert done.returncode == 2, command
            assert f"{run_dir}: belongs to uid 64999" in done.stderr
        assert sleeper.poll() is None
        assert RUN in local_coach("runs").stdout, "it can be seen"
    finally:
        sleeper.kill()
        sleeper.wait()
    assert not list(marks.iterdir())


def test_ones_own_run_that_others_may_write_is_not_launched_again_until_they_may_not(
    local_coach: InstalledCoach, mallory: Mallory, program: Path
) -> None:
    run_dir = plant(mallory, local_coach.user.home / "coach" / "runs", program)
    for path in (run_dir.parent.parent, run_dir.parent, run_dir, *run_dir.rglob("*")):
        os.chown(path, local_coach.user.uid, local_coach.user.gid)
    (run_dir / "run.json").chmod(0o666)
    done = local_coach("resubmit", RUN, "--dry-run")
    assert done.returncode == 2
    assert f"{run_dir}/run.json: others may write to it" in done.stderr
    (run_dir / "run.json").chmod(0o644)
    assert "coach starts nothing" not in local_coach("resubmit", RUN, "--dry-run").stderr


def test_a_bare_word_is_a_recipe_a_run_or_a_job_before_a_file_of_that_name(
    local_coach: InstalledCoach, mallory: Mallory, program: Path
) -> None:
    home = local_coach.user.home
    (home / "baseline").write_text("#!/bin/sh\ntouch ran\n")
    (home / "baseline").chmod(0o755)
    done = local_coach("launch", "baseline", "--backend", "local", "--dry-run")
    assert "baseline is a recipe; ./baseline names the file" in done.stderr
    assert "baseline.py" in done.stdout
    run_dir = plant(mallory, home / "coach" / "runs", program)
    for word, target in ((RUN, run_dir), ("baseline-4f2a", run_dir)):
        (home / word).write_text("Killed\n")
        done = local_coach("check", word)
        assert "NUM001" in done.stdout, target
        assert f"{word} is a run; ./{word} names the file" in done.stderr
    assert "NUM001" not in local_coach("check", f"./{RUN}").stdout


def test_a_repositorys_own_configuration_starts_no_program_of_a_plan(
    local_coach: InstalledCoach, mallory: Mallory, marks: Path
) -> None:
    monitor = mallory.program_that_marks("monitor", marks / "ran")
    user = local_coach.user
    folder = user.home

    def git(*words: str) -> None:
        env = user.env({"GIT_AUTHOR_NAME": "v", "GIT_COMMITTER_NAME": "v", "EMAIL": "v@x"})
        subprocess.run(user.argv(["git", "-C", str(folder), *words]), env=env, check=True)

    (folder / "train.py").write_text("print('step 1 loss 1.0')\n")
    os.chown(folder / "train.py", user.uid, user.gid)
    git("init", "-q")
    git("add", "train.py")
    git("commit", "-qm", "first")
    git("config", "core.fsmonitor", str(monitor))
    done = local_coach("launch", "train.py", "--backend", "local", "--dry-run")
    assert '"is_dirty": false' in done.stdout
    assert not list(marks.iterdir())
