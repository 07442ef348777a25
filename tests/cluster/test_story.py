"""The story of a learner, headless, on the real Slurm: launch, watch, be told, stop, go on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.slurm import SlurmCluster
from tests.installed import InstalledCoach
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster-trainings")]

# Both "nodes" of the test cluster share two real cores.
LOGS = ("stdout", "stderr")
SMALL = (
    *("--cpus-per-task", "1"),
    *("--set", "width=8", "--set", "num_workers=0", "--set", "num_train_samples=2048"),
    *("--set", "eval_every_epoch=false"),
)


def launched(result: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert result.stdout, result.stderr
    value: dict[str, Any] = json.loads(result.stdout)
    return value


def checked(coach: InstalledCoach, target: str, status: int) -> dict[str, Any]:
    result = coach("check", target, "--format", "json")
    assert result.returncode == status, result.stdout + result.stderr
    value: dict[str, Any] = json.loads(result.stdout)
    return value


def events(run_dir: Path, rank: int) -> list[Mapping[str, Any]]:
    lines = (run_dir / "metrics" / f"rank-{rank}.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if "event" in record]


@pytest.mark.long  # short: tests/terminal/test_story.py, and the test of the limit
def test_two_ranks_train_on_two_nodes_and_the_check_is_silent(user_coach: InstalledCoach) -> None:
    run = launched(
        user_coach(
            "launch",
            "ddp",
            "--nodes",
            "2",
            *SMALL,
            "--set",
            "max_steps=20",
            "--wait",
            "--format",
            "json",
            timeout_s=200,
        )
    )
    assert run["state"] == "COMPLETED"
    run_dir = Path(run["run_dir"])
    starts = [next(event for event in events(run_dir, rank) if event["event"] == "start") for rank in (0, 1)]
    assert [start["node"] for start in starts] == ["node1", "node2"]
    assert {start["world_size"] for start in starts} == {2}
    record = json.loads((run_dir / "run.json").read_text())
    assert record["job_id"] == run["job_id"]
    assert record["state"] == "COMPLETED"
    assert record["dataset"]["is_synthetic"] is True
    assert record["device"]["type"] == "cpu"
    assert sorted(path.name for path in (run_dir / "telemetry").glob("*.jsonl")) == [
        "node1.jsonl",
        "node2.jsonl",
    ]
    samples = [json.loads(line) for line in (run_dir / "telemetry" / "node2.jsonl").read_text().splitlines()]
    assert 1 in {sample.get("rank") for sample in samples if sample["kind"] == "process"}
    assert max(sample.get("cpu_pct") or 0 for sample in samples if sample["kind"] == "host") > 5
    ended = json.loads((run_dir / "exit.json").read_text())
    assert (ended["state"], [rank["exit_code"] for rank in ended["ranks"]]) == ("COMPLETED", [0, 0])

    diagnosis = checked(user_coach, run["run_id"], 0)
    assert diagnosis["state"] == "COMPLETED"
    assert [finding for finding in diagnosis["findings"] if finding["severity"] != "info"] == []
    assert checked(user_coach, run["job_id"], 0)["state"] == "COMPLETED"

    jobs = json.loads(user_coach("jobs", "--format", "json").stdout)["jobs"]
    assert {job["job_id"]: job["state"] for job in jobs}[run["job_id"]] == "COMPLETED"
    runs = json.loads(user_coach("runs", "--format", "json").stdout)["runs"]
    assert [(item["run_id"], item["state"]) for item in runs] == [(run["run_id"], "COMPLETED")]


def test_a_loss_of_nan_is_found_while_the_run_goes_on(
    user_coach: InstalledCoach, slurm: SlurmCluster
) -> None:
    run = launched(
        user_coach(
            *("launch", "baseline", *SMALL, "--set", "lr=1e20", "--set", "max_steps=100000"),
            *("--format", "json"),
        )
    )

    metrics = Path(run["run_dir"]) / "metrics" / "rank-0.jsonl"
    wait_until(lambda: metrics.exists() and "NaN" in metrics.read_text(), 90, "the loss is NaN", every_s=0.2)

    def found() -> dict[str, Any] | None:
        result = user_coach("check", run["run_id"], "--format", "json")
        value: dict[str, Any] = json.loads(result.stdout)
        return value if value["findings"] else None

    diagnosis = wait_until(found, 90, "the finding appears", every_s=1.0)
    first = diagnosis["findings"][0]
    assert (first["rule"], first["cause"], first["primary"]) == ("NUM001", "nan_loss", True)
    assert diagnosis["state"] == "RUNNING"
    assert "step 2" in first["summary"] + " ".join(item["text"] for item in first["evidence"])
    (fix,) = first["fixes"][:1]
    assert fix["changes"]["lr"] == 0.01  # above the usual range: back to the recipe's default
    assert fix["changes_learning"] is True
    cancelled = user_coach("cancel", run["run_id"], "--yes")
    assert cancelled.returncode == 0, cancelled.stderr
    slurm.wait_state(run["job_id"], "CANCELLED")
    wait_until(
        lambda: checked_state(user_coach, run["run_id"]) == "CANCELLED",
        30,
        "the run is cancelled",
        every_s=0.5,
    )


def checked_state(coach: InstalledCoach, target: str) -> str | None:
    state: str | None = json.loads(coach("check", target, "--format", "json").stdout)["state"]
    return state


@pytest.mark.long  # at a terminal: tests/terminal/test_story.py
def test_coach_without_torch_trains_in_another_environment(
    bare_coach: InstalledCoach, train_python: Path
) -> None:
    unnamed = bare_coach("launch", "baseline", *SMALL, "--dry-run")
    assert (unnamed.returncode, unnamed.stdout) == (2, "")  # the job's python3 has no torch
    assert "--env" in unnamed.stderr
    run = launched(
        bare_coach(
            "launch",
            "baseline",
            *SMALL,
            "--set",
            "max_steps=5",
            "--python",
            train_python,
            "--wait",
            "--format",
            "json",
            timeout_s=120,
        )
    )
    assert run["state"] == "COMPLETED"
    hosts = (Path(run["run_dir"]) / "telemetry" / "node1.jsonl").read_text()
    assert '"kind":"host"' in hosts


def test_a_printed_script_submitted_by_hand_makes_the_same_run(
    user_coach: InstalledCoach, slurm: SlurmCluster
) -> None:
    script = user_coach("launch", "baseline", *SMALL, "--set", "max_steps=5", "--dry-run")
    assert script.returncode == 0, script.stderr
    path = user_coach.user.home / "job.sh"
    path.write_text(script.stdout)
    path.chmod(0o644)
    done = slurm.run(["sbatch", "--parsable", str(path)])
    job_id = done.stdout.strip()
    slurm.wait_state(job_id, "COMPLETED", timeout_s=60)

    def run() -> dict[str, Any] | None:
        listed = json.loads(user_coach("runs", "--format", "json").stdout)["runs"]
        return next(
            (item for item in listed if item["job_id"] == job_id and item["state"] == "COMPLETED"), None
        )

    made = wait_until(run, 60, "the run is complete", every_s=0.5)
    assert made["recipe"] == "baseline"
    assert Path(made["run_dir"], "job.sh").read_text() == script.stdout


@pytest.mark.long  # short: tests/cluster/test_long_jobs.py, tests/trainers/test_ddp.py
def test_a_run_that_nears_its_limit_saves_and_goes_on_where_it_was(
    user_coach: InstalledCoach, slurm: SlurmCluster
) -> None:
    run = launched(
        user_coach(
            "launch",
            "ddp",
            "--nodes",
            "2",
            *SMALL,
            "--set",
            "width=16",
            "--set",
            "max_steps=80",
            "--format",
            "json",
        )
    )
    run_dir, job_id = Path(run["run_dir"]), run["job_id"]

    def newest_step() -> int:
        path = run_dir / "metrics" / "rank-0.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return max((record.get("step") or 0 for record in map(json.loads, lines)), default=0)

    wait_until(lambda: newest_step() >= 10, 60, "ten steps are made", every_s=0.2)
    # What Slurm does by itself before the time limit: the signal of --signal=B:USR1 goes to the batch shell
    # alone.
    slurm.run(["scancel", "--batch", "--signal=USR1", job_id])

    def requeued() -> bool:
        shown = slurm.run(["scontrol", "show", "job", "-o", job_id]).stdout
        return "Restarts=1" in shown and "JobState=PENDING" in shown

    wait_until(requeued, 60, "the job is put back into the queue", every_s=0.3)
    saved = [event for event in events(run_dir, 0) if event["event"] == "checkpoint"]
    assert [event["reason"] for event in saved] == ["signal"]

    slurm.wait_state(job_id, "RUNNING", timeout_s=60)
    wait_until(lambda: newest_step() >= 80, 90, "the run goes on to its end", every_s=0.3)
    parted = [f"this is attempt 2 of job {job_id}" in (run_dir / f"{name}.log").read_text() for name in LOGS]
    assert parted == [True, True], "in both logs it is seen where the second attempt begins"
    resumed = [event for event in events(run_dir, 0) if event["event"] == "resume"]
    assert [event["step"] for event in resumed] == [saved[0]["step"]]
    assert {event["node"] for event in events(run_dir, 1) if event["event"] == "start"} == {"node2"}
    assert {path.stem for path in (run_dir / "telemetry").glob("*.jsonl")} == {"node1", "node2"}
    slurm.wait_state(job_id, "COMPLETED")
    wait_until(
        lambda: checked_state(user_coach, run["run_id"]) == "COMPLETED", 30, "the run completes", every_s=0.5
    )
    ended = json.loads((run_dir / "exit.json").read_text())
    assert (ended["state"], [rank["exit_code"] for rank in ended["ranks"]]) == ("COMPLETED", [0, 0])


@pytest.mark.long  # without Slurm: tests/trainers/test_beyond.py
def test_a_killed_rank_is_started_again_and_the_run_goes_on_from_its_checkpoint(
    user_coach: InstalledCoach,
) -> None:
    sets = ("width=16", "max_steps=120", "checkpoint_every=20")
    more = [word for pair in sets for word in ("--set", pair)]
    run = launched(user_coach("launch", "elastic", *SMALL, *more, "--format", "json"))
    run_dir = Path(run["run_dir"])

    def rank_behind_a_checkpoint() -> int | None:
        path = run_dir / "metrics" / "rank-1.jsonl"
        records = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        newest = max((record.get("step") or 0 for record in records), default=0)
        return next(int(record["pid"]) for record in records if "pid" in record) if newest > 21 else None

    os.kill(wait_until(rank_behind_a_checkpoint, 60, "rank 1 is behind a checkpoint") or 0, signal.SIGKILL)
    wait_until(
        lambda: checked_state(user_coach, run["run_id"]) == "COMPLETED", 120, "the run completes", every_s=0.5
    )
    (resumed,) = [event for event in events(run_dir, 1) if event["event"] == "resume"]
    assert resumed["step"] >= 20
    assert resumed["step"] % 20 == 0


def test_gpus_that_cuda_cannot_use_stop_the_run_with_the_cause(user_coach: InstalledCoach) -> None:
    run = launched(
        user_coach(
            "launch",
            "baseline",
            "--partition",
            "gpu",
            "--set",
            "max_steps=5",
            "--wait",
            "--format",
            "json",
            timeout_s=120,
        )
    )
    assert run["state"] == "FAILED"
    record = json.loads((Path(run["run_dir"]) / "run.json").read_text())
    assert record["resources"]["gpus_per_node"] == 1
    logs = "".join((Path(run["run_dir"]) / name).read_text() for name in ("stdout.log", "stderr.log"))
    assert "CUDA" in logs
    assert not (Path(run["run_dir"]) / "checkpoints").exists() or not list(
        (Path(run["run_dir"]) / "checkpoints").iterdir()
    )


def test_a_refusal_of_sbatch_is_shown_in_slurms_own_words(user_coach: InstalledCoach) -> None:
    refused = user_coach("launch", "baseline", *SMALL, "--constraint", "nope")
    assert refused.returncode == 2
    assert "Invalid feature specification" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_controller_that_is_down_is_reported_and_found_again(
    user_coach: InstalledCoach, slurm: SlurmCluster
) -> None:
    slurm.kill_controller()
    for command in ("jobs", "nodes"):
        result = user_coach(command, timeout_s=40)
        assert result.returncode == 2
        assert "slurm controller" in result.stderr or "is DOWN" in result.stderr
        assert len(result.stderr.splitlines()) <= 2
    refused = user_coach("launch", "baseline", *SMALL, timeout_s=60)
    assert refused.returncode == 2
    assert "local" not in refused.stdout
    slurm.start_controller()
    assert user_coach("nodes").returncode == 0
