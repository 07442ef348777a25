"""coach from one file: an ordinary user launches, opens the screens and runs `why`, on the real Slurm."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.slurm import ON_CPUS, SlurmCluster
from tests.ordinary_user import User
from tests.single.conftest import OneFile
from tests.terminal.tmux import Terminal
from tests.waiting import wait_until

pytestmark = [pytest.mark.root, pytest.mark.real, pytest.mark.xdist_group("cluster")]

SMALL = (
    *("--gpus", "0", "--cpus-per-task", "1", "--set", "max_steps=5"),
    *("--set", "width=8", "--set", "num_workers=0", "--set", "num_train_samples=512"),
    *("--set", "eval_every_epoch=false", "--wait", "--format", "json"),
)
FAILS = """
import os, time
from pathlib import Path

samples = Path(os.environ["COACH_RUN_DIR"], "telemetry")
end = time.monotonic() + 60
while time.monotonic() < end and not any(file.stat().st_size for file in samples.glob("*.jsonl")):
    time.sleep(0.05)
raise ValueError("the third layer has no name")
"""
"""A training that fails once the sampler beside it has measured."""
MAX_CALLS = 1500
OLD = ("2.7", "3.6", "3.8", "3.9", "3.10")


@pytest.mark.cluster
@pytest.mark.train
@pytest.mark.terminal
def test_a_user_without_an_installation_launches_asks_why_and_opens_the_screens(
    slurm: SlurmCluster,
    user: User,
    train_python: Path,
    one_file: OneFile,
    open_terminal: Callable[..., Terminal],
) -> None:
    def coach(*words: str, status: int = 0) -> str:
        done = one_file.run(user, {**slurm.env, **ON_CPUS}, *words, timeout_s=120)
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout

    run = json.loads(coach("launch", "baseline", "--python", str(train_python), *SMALL))
    assert run["state"] == "COMPLETED"
    assert kinds_of_samples(Path(run["run_dir"])) >= {"host"}

    (user.home / "train.py").write_text(FAILS)
    failed = json.loads(coach("launch", "train.py", *("--gpus", "0", "--wait", "--format", "json"), status=1))
    run_dir = Path(failed["run_dir"])
    assert f"OWN_FILE={one_file.path}\n" in (run_dir / "job.sh").read_text()
    assert "coach: why: " in (run_dir / "stderr.log").read_text(), "the job itself says why it ended"
    assert "the third layer has no name" in coach("why", failed["job_id"], status=1)
    checked = json.loads(coach("check", failed["run_id"], "--format", "json", status=1))
    assert checked["findings"][0]["rule"] == "COD001"
    jobs = {job["job_id"] for job in json.loads(coach("jobs", "--format", "json"))["jobs"]}
    assert {run["job_id"], failed["job_id"]} <= jobs

    terminal = open_terminal(one_file.argv(user), env=user.env({**slurm.env, **ON_CPUS}), cwd=user.home)
    terminal.wait_for("slurm ·")
    terminal.send("d")
    terminal.wait_for("coach may launch and cancel")
    terminal.send("C-q")
    assert terminal.wait_exit() == 0
    assert_nothing_was_kept(one_file, user)


def kinds_of_samples(run_dir: Path) -> set[str]:
    lines = [
        line for file in (run_dir / "telemetry").glob("*.jsonl") for line in file.read_text().splitlines()
    ]
    return {json.loads(line)["kind"] for line in lines}


def assert_nothing_was_kept(one_file: OneFile, user: User) -> None:
    """No byte code but of the jobs' own code snapshot, which is the same for every coach."""
    assert [path.name for path in one_file.path.parent.iterdir()] == ["coach.pyz"]
    compiled = [path for path in user.home.rglob("*.pyc") if ".code" not in path.parts]
    assert compiled == []


def test_without_slurm_a_command_and_a_launch_run_with_the_sampler_beside_them(
    user: User, one_file: OneFile, path_without_slurm: Path
) -> None:
    env = {"PATH": str(path_without_slurm)}
    (user.home / "train.py").write_text(FAILS)
    done = one_file.run(user, env, "run", "--", "python3", "train.py")
    assert done.returncode == 1
    assert "coach: why: " in done.stderr
    launched = one_file.run(user, env, "launch", "train.py", "--wait", "--format", "json")
    assert launched.returncode == 1, launched.stderr
    value: dict[str, Any] = json.loads(launched.stdout)
    assert value["state"] == "FAILED"
    assert kinds_of_samples(Path(value["run_dir"])) >= {"host"}
    verdict = Path(value["run_dir"]) / "verdict.json"
    wait_until(verdict.exists, what="the supervisor judges the run by the same file")
    assert json.loads(verdict.read_text())["findings"]
    assert_nothing_was_kept(one_file, user)


def test_recipes_and_data_of_coach_are_found_in_the_one_file(user: User, one_file: OneFile) -> None:
    def coach(*words: str) -> str:
        done = one_file.run(user, {}, *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    recipes = json.loads(coach("recipes", "--format", "json"))["recipes"]
    assert {"baseline", "ddp"} <= {recipe["name"] for recipe in recipes}
    assert "When it stays silent" in coach("explain", "NUM001")
    coach("recipes", "eject", "ddp", str(user.home / "own"))
    assert (user.home / "own" / "common" / "distributed.py").is_file()


def test_the_demo_plays_from_the_file(
    user: User, one_file: OneFile, open_terminal: Callable[..., Terminal]
) -> None:
    terminal = open_terminal(one_file.argv(user, "--demo"), env=user.env(), cwd=user.home)
    terminal.wait_for("a cluster at work")
    terminal.send("R")
    terminal.wait_for("What it teaches")
    terminal.send("C-q")
    assert terminal.wait_exit() == 0


@pytest.mark.strace
@pytest.mark.terminal
def test_a_start_asks_the_file_system_little(
    tmp_path: Path, user: User, one_file: OneFile, open_terminal: Callable[..., Terminal]
) -> None:
    """An installed coach makes 8,000 such calls. Where each takes 2 ms more, these take 2 s more."""
    counts = tmp_path / "counts"
    traced = ["strace", "-f", "-qq", "-c", "-o", str(counts), "-e", "trace=%file,getdents64"]
    argv = [*traced, one_file.python, one_file.path, "--backend", "local"]
    env = {**user.env(), "COACH_AS_ROOT": "1"}
    terminal = open_terminal(list(map(str, argv)), env=env, cwd=tmp_path)
    terminal.wait_for("local ·")
    terminal.send("C-q")
    assert terminal.wait_exit() == 0
    total = next(line.split() for line in counts.read_text().splitlines() if line.endswith(" total"))
    assert 100 < int(total[3]) < MAX_CALLS


def old_pythons() -> list[str]:
    """Interpreters on this machine that are too old."""
    found = [shutil.which(f"python{version}") for version in OLD]
    kept = [
        str(path) for version in OLD for path in Path.home().glob(f".pyenv/versions/{version}.*/bin/python")
    ]
    return [
        name for name in [*kept, *filter(None, found)] if subprocess.call([name, "-c", ""], stderr=-3) == 0
    ]


def test_a_python_that_is_too_old_says_so_in_one_line(one_file: OneFile) -> None:
    pythons = old_pythons()
    if not pythons:
        pytest.skip("no Python older than 3.11 on this machine")
    for python in pythons:
        done = subprocess.run(
            [python, str(one_file.path), "why"],
            capture_output=True,
            text=True,
            timeout=60,
            env=dict(os.environ),
        )
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert len(done.stderr.splitlines()) == 1
        assert done.stderr.startswith("coach needs Python 3.11 or newer")
