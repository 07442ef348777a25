"""A learner's own copy of a recipe, and a sweep, for real on this machine: launched, diagnosed and compared
like a shipped one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.forked import typed_coach
from tests.generated import lent_images
from tests.waiting import wait_until

SMALL = ("max_steps=8", "width=8", "num_workers=0", "num_train_samples=512", "batch_sizes=8,16")


@pytest.fixture
def images(tmp_path: Path) -> Iterator[None]:
    """The trainings' data are in coach's home already."""
    with lent_images(tmp_path):
        yield


@pytest.mark.train
@pytest.mark.long  # short, on Slurm: tests/cluster/test_own_training.py
@pytest.mark.usefixtures("images")
def test_a_changed_copy_of_a_sweep_runs_whole_and_is_shown_as_one_table(tmp_path: Path) -> None:
    env = {**os.environ, "COACH_HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}

    def coach(*args: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "coach", *args]
        return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=200)

    mine = tmp_path / "mine"
    assert coach("recipes", "eject", "sweep_batch", str(mine)).returncode == 0
    trainer = mine / "baseline.py"
    text = trainer.read_text()
    assert text.count("    args = parse_arguments()\n") == 1
    trainer.write_text(
        text.replace(
            "    args = parse_arguments()\n", "    args = parse_arguments()\n    print('my change')\n"
        )
    )
    values = [word for value in SMALL for word in ("--set", value)]
    where = ("--backend", "local", "--python", sys.executable, "--wait", "--format", "json")
    done = coach("launch", str(mine), *values, *where)
    assert done.returncode == 0, done.stderr
    launched = json.loads(done.stdout)
    assert [run["state"] for run in launched["runs"]] == ["COMPLETED", "COMPLETED"]
    first, second = launched["runs"]
    assert launched["group_id"] == first["run_id"]
    for run in launched["runs"]:
        run_dir = Path(run["run_dir"])
        assert "my change" in (run_dir / "stdout.log").read_text()
        assert json.loads((run_dir / "exit.json").read_text())["state"] == "COMPLETED"
        assert len((run_dir / "metrics" / "rank-0.jsonl").read_text().splitlines()) >= 8
        assert coach("check", run["run_id"], "--backend", "local").returncode == 0
    records = [json.loads((Path(run["run_dir"]) / "run.json").read_text()) for run in (first, second)]
    assert records[0]["ended_time_s"] <= records[1]["started_time_s"]  # one after the other
    assert records[0]["launch"]["recipe"] == str(mine / "sweep_batch.toml")

    group = json.loads(coach("compare", second["run_id"], "--backend", "local", "--format", "json").stdout)
    assert (group["recipe"], group["parameter"]) == ("sweep_batch", "batch_size")
    assert [(point["value"], point["result"]) for point in group["points"]] == [
        (8, "measured"),
        (16, "measured"),
    ]
    assert all(point["throughput"]["value"] > 0 for point in group["points"])
    table = coach("compare", launched["group_id"], "--backend", "local").stdout
    assert "OF BEST" in table
    assert "100%" in table
    pair = coach("compare", first["run_id"], second["run_id"], "--backend", "local").stdout
    assert "batch_size: 8 → 16" in pair
    assert "batch_size = 16" in coach("runs").stdout


def test_a_whole_group_is_cancelled_by_one_command_the_last_first(tmp_path: Path) -> None:
    env = {**os.environ, "COACH_HOME": str(tmp_path)}

    def coach(*args: str) -> subprocess.CompletedProcess[str]:
        return typed_coach(args, env)

    python = tmp_path / "python"  # a training that only waits
    python.write_text("#!/bin/sh\nexec sleep 60\n")
    python.chmod(0o755)
    where = ("--backend", "local", "--python", str(python), "--format", "json")
    launched = coach("launch", "sweep_workers", "--set", "num_workers=0,1,2", *where)
    assert launched.returncode == 0, launched.stderr
    ids = [run["run_id"] for run in json.loads(launched.stdout)["runs"]]
    assert coach("cancel", ids[1], "--group", "--yes").returncode == 0

    def are_all_cancelled() -> bool:
        listed = json.loads(coach("runs", "--format", "json").stdout)["runs"]
        return [run["state"] for run in listed] == ["CANCELLED"] * 3

    wait_until(are_all_cancelled, timeout_s=30, what="all runs of the group are cancelled")
    assert not any((Path(tmp_path) / "runs" / run_id / "metrics" / "rank-0.jsonl").exists() for run_id in ids)
    assert "all runs of its group have ended" in coach("cancel", ids[0], "--group", "--yes").stderr


@pytest.mark.train
@pytest.mark.long
def test_a_batch_that_does_not_fit_is_a_line_of_the_table_and_the_runs_after_it_go_on(tmp_path: Path) -> None:
    env = {**os.environ, "COACH_HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
    values = ("max_steps=8", "width=32", "num_workers=0", "batch_sizes=8,8192,16")
    said = [word for value in values for word in ("--set", value)]
    where = ("--backend", "local", "--python", sys.executable, "--mem", "1100M", "--wait", "--format", "json")

    def coach(*args: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "coach", *args]
        return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=280)

    launched = coach("launch", "sweep_batch", *said, *where)
    assert launched.returncode == 0, launched.stderr
    runs = json.loads(launched.stdout)["runs"]
    assert [run["state"] for run in runs] == ["COMPLETED", "OUT_OF_MEMORY", "COMPLETED"]
    found = json.loads(coach("check", runs[1]["run_id"], "--backend", "local", "--format", "json").stdout)
    assert {(finding["rule"], finding["severity"]) for finding in found["findings"]} == {("MEM007", "info")}
    group = json.loads(coach("compare", runs[0]["run_id"], "--backend", "local", "--format", "json").stdout)
    assert [point["result"] for point in group["points"]] == ["measured", "out of memory", "measured"]
