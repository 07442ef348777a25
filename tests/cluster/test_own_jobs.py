"""At three in the morning, on a real Slurm: which of my jobs went wrong, though coach launched none of
them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.slurm import SlurmCluster
from tests.installed import InstalledCoach
from tests.terminal.tmux import Terminal

pytestmark = [pytest.mark.cluster, pytest.mark.terminal]

FAILING = """mkdir -p logs/none_x1/attempt_0/0
echo RuntimeError: said by the rank alone > logs/none_x1/attempt_0/0/stderr.log
python3 -c 'import a_module_that_nobody_has'"""
TRAINING = """mkdir -p lightning_logs/version_0
echo step,train_loss > lightning_logs/version_0/metrics.csv
for i in $(seq 0 90); do echo $i,0.$((900 - i)) >> lightning_logs/version_0/metrics.csv; echo step $i; done
sleep 600"""
CLIENTS = ("squeue", "sinfo", "scontrol", "sacct", "sstat", "sprio", "sshare", "sacctmgr")


def submit(coach: InstalledCoach, name: str, script: str) -> str:
    """sbatch, as the user types it, in a directory of its own."""
    folder = coach.user.home / name
    argv = ["sbatch", "--parsable", "-J", name, "-D", str(folder), "--wrap", script]
    subprocess.run(coach.user.argv(["mkdir", "-p", str(folder)]), env=coach.env(), check=True)
    done = subprocess.run(
        coach.user.argv(argv), env=coach.env(), cwd=coach.user.home, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def counted(coach: InstalledCoach, folder: Path) -> tuple[dict[str, str], Path]:
    """An environment in which each of Slurm's clients writes down that it was called."""
    folder.mkdir(exist_ok=True)
    asked = folder / "asked"
    asked.write_text("")
    asked.chmod(0o666)
    for client in filter(shutil.which, CLIENTS):
        script = folder / client
        script.write_text(f'#!/bin/sh\necho {client} >> {asked}\nexec {shutil.which(client)} "$@"\n')
        script.chmod(0o755)
    return {"PATH": f"{folder}:{coach.env()['PATH']}"}, asked


def test_foreign_jobs_are_judged_together_by_one_question_of_a_kind_and_each_by_its_own_files(
    slurm: SlurmCluster,
    user_coach: InstalledCoach,
    open_directory: Path,
    open_terminal: Callable[..., Terminal],
) -> None:
    bad, good = submit(user_coach, "bad", FAILING), submit(user_coach, "good", TRAINING)
    slurm.wait_state(bad, "FAILED", timeout_s=20)
    slurm.wait_state(good, "RUNNING", timeout_s=20)
    env, asked = counted(user_coach, open_directory / "clients")

    done = user_coach("check", env=env)  # the user may have more jobs: those of other tests
    lines = done.stdout.splitlines()
    assert (done.returncode, asked.read_text()) == (1, "squeue\nsacct\n"), done.stderr
    assert lines[0].startswith("✖ ")
    assert "went wrong" in lines[0]
    found = {
        job["target"]: job["findings"]
        for job in json.loads(user_coach("check", "--format", "json").stdout)["jobs"]
    }
    assert [finding["rule"] for finding in found[bad]][:1] == ["ENV007"]
    assert found[good] == []
    assert [*found].index(bad) < [*found].index(good)

    home = user_coach.user.home
    judged = json.loads(user_coach("check", bad, "--format", "json").stdout)
    assert judged["findings"][0]["rule"] == "ENV007"
    assert {file["path"] for file in judged["files"]} == {
        f"{home}/bad/slurm-{bad}.out",
        f"{home}/bad/logs/none_x1/attempt_0/0/stderr.log",
    }
    told = user_coach("check", good)
    assert told.returncode == 0
    assert f"{home}/good/lightning_logs/version_0/metrics.csv" in told.stdout
    assert "metrics: no training metrics" not in told.stdout
    assert f"not found in {home}/good" in told.stdout

    terminal = open_terminal(
        user_coach.argv(), columns=80, rows=24, env=user_coach.env(), as_user=user_coach.user
    )
    terminal.wait_for("went wrong", timeout_s=60)  # over the worst, on the first screen
    terminal.send("f")
    terminal.wait_for("› findings", timeout_s=10)
    terminal.wait_for(re.compile(rf"ENV007 +{bad} "), timeout_s=60)
    slurm.run(["scancel", good], as_root=True)
