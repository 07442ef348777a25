"""A training that nears its limit goes on in a further segment, from its own checkpoint, on a real Slurm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.slurm import SlurmCluster
from tests.installed import InstalledCoach
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster-trainings")]

TRAINING = """
import argparse, pathlib, time
parser = argparse.ArgumentParser()
parser.add_argument("--output_dir")
parser.add_argument("--resume_from_checkpoint")
parser.add_argument("--save", type=int, default=1)
parser.add_argument("--steps", type=int, default=40)
args = parser.parse_args()
resumed = args.resume_from_checkpoint
start = int(resumed.rpartition("-")[2]) if resumed else 0
print("starts at", start, flush=True)
for step in range(start, args.steps):
    time.sleep(0.2)
    print("step", step, flush=True)
    if args.save and step % 5 == 4:
        place = pathlib.Path(args.output_dir, f"checkpoint-{step + 1}")
        place.mkdir(parents=True, exist_ok=True)
        (place / "state.txt").write_text(str(step))
print("done", flush=True)
"""


def _launched(coach: InstalledCoach, *arguments: str) -> tuple[Path, str]:
    (coach.user.home / "train.py").write_text(TRAINING)
    done = coach(
        *("launch", "train.py", "--gpus", "0", "--time", "5:00", "--until-done", "2", "--format", "json"),
        *("--", "--output_dir", "out", *arguments),
        timeout_s=120,
    )
    assert done.returncode == 0, done.stderr
    answer, _ = json.JSONDecoder().raw_decode(done.stdout)
    return Path(answer["run_dir"]), answer["job_id"]


BATCH = """#!/bin/bash
#SBATCH --time={time}
#SBATCH --output=log-%j
{start} python3 train.py --steps {steps} --output_dir out \\
  ${{COACH_RESUME_FROM:+--resume_from_checkpoint "$COACH_RESUME_FROM"}}
echo "the line behind it"
"""


def _launched_batch(
    coach: InstalledCoach, start: str = "", time: str = "5:00", steps: int = 100
) -> tuple[Path, str]:
    (coach.user.home / "train.py").write_text(TRAINING)
    (coach.user.home / "job.sbatch").write_text(BATCH.format(start=start, time=time, steps=steps))
    done = coach("launch", "job.sbatch", "--until-done", "2", "--format", "json", timeout_s=120)
    assert done.returncode == 0, done.stderr
    answer, _ = json.JSONDecoder().raw_decode(done.stdout)
    return Path(answer["run_dir"]), answer["job_id"]


def _signal(slurm: SlurmCluster, job_id: str) -> None:
    """Send the signal that Slurm sends before the time limit."""
    slurm.run(["scancel", "--batch", "--signal=USR1", job_id])


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def _run_json(run_dir: Path) -> dict[str, Any]:
    return dict(json.loads((run_dir / "run.json").read_text()))


def test_a_training_goes_on_from_its_checkpoint_and_is_shown_in_segments(
    user_coach: InstalledCoach, slurm: SlurmCluster
) -> None:
    run_dir, job_id = _launched(user_coach)
    out = user_coach.user.home / "out"
    wait_until((out / "checkpoint-10" / "state.txt").exists, 60, "a checkpoint is written")
    _signal(slurm, job_id)
    wait_until(lambda: "requeuing to go on from" in _text(run_dir / "stdout.log"), 60, "it is requeued")
    wait_until(lambda: _run_json(run_dir)["state"] == "COMPLETED", 120, "it is complete", every_s=0.3)
    first, second = _run_json(run_dir)["segments"]
    assert first["checkpoint"] == second["resumed_from"]
    assert first["why"] == "the time limit was near"
    assert second["why"] == "COMPLETED"
    assert 0 <= first["lost_s"] < 10
    start = int(first["checkpoint"].rpartition("-")[2])
    assert start >= 10
    told = user_coach("check", run_dir.name).stdout
    assert "one training in 2 segments" in told
    assert "segment 2" in told
    log = _text(run_dir / "stdout.log")
    assert f"starts at {start}" in log
    assert log.count("step 39") == 1
    assert "segment 2 of at most 2" in _text(run_dir / "stderr.log")


def test_a_training_that_saves_nothing_gets_no_further_segment(
    user_coach: InstalledCoach, slurm: SlurmCluster
) -> None:
    run_dir, job_id = _launched(user_coach, "--save", "0")
    wait_until(lambda: "step 3" in _text(run_dir / "stdout.log"), 60, "it trains")
    _signal(slurm, job_id)
    wait_until(lambda: _run_json(run_dir)["state"] == "TIMEOUT", 60, "it has ended", every_s=0.3)
    told = [line for line in _text(run_dir / "stderr.log").splitlines() if "no further segment" in line]
    assert len(told) == 1
    assert "no newer checkpoint was written" in told[0]
    assert "Restarts=0" in slurm.run(["scontrol", "show", "job", "-o", job_id]).stdout


@pytest.mark.parametrize(
    "start", ["srun", *(pytest.param(each, marks=pytest.mark.long) for each in ("", "exec srun"))]
)
def test_a_batch_file_goes_on_from_its_checkpoint_and_runs_no_line_behind_a_training_that_was_cut(
    user_coach: InstalledCoach, slurm: SlurmCluster, start: str
) -> None:
    run_dir, job_id = _launched_batch(user_coach, start)
    home = user_coach.user.home
    log = home / f"log-{job_id}"
    wait_until((home / "out" / "checkpoint-10" / "state.txt").exists, 60, "a checkpoint is written")
    _signal(slurm, job_id)
    wait_until(lambda: "requeuing to go on from" in _text(log), 60, "it is requeued")
    assert "the line behind it" not in _text(log)
    wait_until(lambda: _run_json(run_dir)["state"] == "COMPLETED", 120, "it is complete", every_s=0.3)
    first, second = _run_json(run_dir)["segments"]
    assert first["checkpoint"] == second["resumed_from"]
    assert (first["why"], second["why"]) == ("the time limit was near", "COMPLETED")
    told = _text(log)
    assert f"starts at {int(first['checkpoint'].rpartition('-')[2])}" in told
    assert told.count("step 99") == 1
    assert told.count("the line behind it") == (0 if "exec" in start else 1)
    assert "one training in 2 segments" in user_coach("check", run_dir.name).stdout


def test_where_no_job_may_be_requeued_a_further_job_goes_on_with_the_run(
    user_coach: InstalledCoach, slurm: SlurmCluster
) -> None:
    run_dir, job_id = _launched(user_coach)
    out = user_coach.user.home / "out"
    wait_until((out / "checkpoint-10" / "state.txt").exists, 60, "a checkpoint is written")
    slurm.run(["scontrol", "update", f"JobId={job_id}", "Requeue=0"])
    _signal(slurm, job_id)
    wait_until(lambda: _run_json(run_dir)["job_id"] != job_id, 60, "a further job is submitted")
    wait_until(lambda: _run_json(run_dir)["state"] == "COMPLETED", 120, "it is complete", every_s=0.3)
    run = _run_json(run_dir)
    first, second = run["segments"]
    assert first["checkpoint"] == second["resumed_from"]
    assert f"Slurm refused the requeue: job {run['job_id']} goes on" in _text(run_dir / "stdout.log")
    judged = json.loads(user_coach("check", run["run_id"], "--format", "json").stdout)
    assert judged["state"] == "COMPLETED"


def test_a_sweep_s_run_that_is_requeued_leaves_the_others_running(
    user_coach: InstalledCoach, slurm: SlurmCluster
) -> None:
    (user_coach.user.home / "train.py").write_text(TRAINING)
    done = user_coach(
        *("launch", "train.py", "--gpus", "0", "--time", "5:00", "--until-done", "2", "--format", "json"),
        *("--sweep", "steps=300,301", "--", "--output_dir", "out"),
        timeout_s=120,
    )
    assert done.returncode == 0, done.stderr
    ids = [run["job_id"] for run in json.loads(done.stdout)["runs"]]
    dirs = [Path(run["run_dir"]) for run in json.loads(done.stdout)["runs"]]
    for run_dir in dirs:
        wait_until(lambda: "step 6" in _text(run_dir / "stdout.log"), 60, "it trains")  # noqa: B023
    facts = [slurm.run(["scontrol", "show", "job", "-o", each]).stdout for each in ids]
    array = ids[0].partition("_")[0]
    (first,) = [index for index, fact in enumerate(facts) if fact.startswith(f"JobId={array} ")]
    _signal(slurm, ids[first])
    wait_until(lambda: "requeuing to go on from" in _text(dirs[first] / "stdout.log"), 60, "it asks for it")
    slurm.wait_state(ids[first], "PENDING")
    other = slurm.run(["scontrol", "show", "job", "-o", ids[1 - first]]).stdout
    assert "JobState=RUNNING" in other
    assert "Restarts=0" in other
    slurm.cancel_all()


@pytest.mark.long
def test_a_training_that_is_longer_than_its_real_limit_is_done_in_two_segments(
    user_coach: InstalledCoach, slurm: SlurmCluster
) -> None:
    """`pytest -m long -s` prints the segments of a run and its verdict."""
    run_dir, job_id = _launched_batch(user_coach, time="2:00", steps=700)
    wait_until(lambda: _run_json(run_dir)["state"] == "COMPLETED", 500, "it is complete", every_s=1.0)
    first, second = _run_json(run_dir)["segments"]
    assert first["checkpoint"] == second["resumed_from"]
    assert first["end_time_s"] - first["start_time_s"] < 120
    assert 0 <= first["lost_s"] < 10
    log = _text(user_coach.user.home / f"log-{job_id}")
    assert (log.count("step 699"), log.count("the line behind it")) == (1, 1)
    kept = "\n".join(line for line in log.splitlines() if not line.startswith("step "))
    print(f"\n{kept}\n{user_coach('check', run_dir.name).stdout}")  # noqa: T201 (to look at)
