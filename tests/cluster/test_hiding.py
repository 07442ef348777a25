"""coach names the facts that a site hides and the actions that it forbids, and launches still work."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.hiding_slurm import closed_cluster, forget_script, private_cluster
from tests.cluster.slurm import SlurmCluster, booted
from tests.installed import InstalledCoach
from tests.ordinary_user import User
from tests.terminal.tmux import Terminal
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster

OpenTerminal = Callable[..., Terminal]


@pytest.fixture(scope="module")
def private_slurm_cluster() -> Iterator[SlurmCluster]:
    with booted("coach-private", private_cluster) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def closed_slurm_cluster() -> Iterator[SlurmCluster]:
    with booted("coach-closed", closed_cluster) as cluster:
        yield cluster


@pytest.fixture
def private_slurm(private_slurm_cluster: SlurmCluster) -> Iterator[SlurmCluster]:
    yield private_slurm_cluster
    private_slurm_cluster.restore()


@pytest.fixture
def closed_slurm(closed_slurm_cluster: SlurmCluster) -> Iterator[SlurmCluster]:
    yield closed_slurm_cluster
    closed_slurm_cluster.restore()


@pytest.fixture
def private_coach(private_slurm: SlurmCluster, user: User, bare_python: Path) -> InstalledCoach:
    return InstalledCoach(bare_python, user, private_slurm.env)


@pytest.fixture
def closed_coach(closed_slurm: SlurmCluster, user: User, bare_python: Path) -> InstalledCoach:
    return InstalledCoach(bare_python, user, closed_slurm.env)


def test_facts_that_the_site_hides_are_never_shown_as_zero(
    private_coach: InstalledCoach, private_slurm: SlurmCluster
) -> None:
    roots = private_slurm.submit("sleep 60", "--output=/dev/null", as_root=True)
    own = private_slurm.submit("sleep 60", "--output=/dev/null")
    for job_id in (roots, own):
        private_slurm.wait_state(job_id, "RUNNING")

    everybody = private_coach("jobs", "--all")
    assert own in everybody.stdout
    assert roots not in everybody.stdout
    assert "other users' jobs are hidden by the site (PrivateData)" in everybody.stderr
    mine = private_coach("jobs")
    assert (own in mine.stdout, mine.stderr) == (True, "")
    for command, words in (("nodes", "nodes are hidden"), ("partitions", "partitions are hidden")):
        told = private_coach(command)
        assert (told.returncode, told.stdout) == (0, "")
        assert f"coach: {words} by the site (PrivateData)\n" in told.stderr
        as_json = json.loads(private_coach(command, "--format", "json").stdout)
        assert (as_json[command], as_json["hidden"]) == ([], ["nodes", "partitions"])
    waits = private_slurm.submit("true", "--output=/dev/null", "--begin=now+1hour")
    why = private_coach("jobs", "--why")
    assert f"{waits}  BeginTime" in why.stdout
    assert "reservations: others' reservations are hidden by the site (PrivateData)" in why.stderr
    assert (
        "coach: others' reservations are hidden by the site (PrivateData)\n"
        in private_coach("nodes", "--reserved").stderr
    )
    ticket = private_coach("ticket", own)
    assert f"JobId={own}" in ticket.stdout
    assert "not available: nodes are hidden by the site (PrivateData)" in ticket.stdout
    unknown = private_coach("check", roots)
    assert unknown.returncode == 2
    assert "if it is somebody else's: other users' jobs are hidden by the site" in unknown.stderr
    refused = private_coach("cancel", roots, "--yes")
    assert refused.returncode == 2
    assert "if it is somebody else's: other users' jobs are hidden by the site" in refused.stderr
    assert "hidden by the site  jobs, nodes, partitions, reservations" in private_coach("doctor").stdout


def test_where_nodes_are_hidden_a_launch_asks_how_many_gpus_and_then_runs(
    private_coach: InstalledCoach, private_slurm: SlurmCluster
) -> None:
    unsaid = private_coach("launch", "--", "echo", "hello")
    assert unsaid.returncode == 2
    assert "nodes are hidden by the site (PrivateData)" in unsaid.stderr
    assert "--gpus N asks for N per node" in unsaid.stderr

    said = private_coach(
        "launch", "--gpus", "1", "--partition", "gpu", "--format", "json", "--", "echo", "hello"
    )
    assert said.returncode == 0, said.stderr
    job_id = json.loads(said.stdout)["job_id"]
    assert private_slurm.wait_state(job_id, "COMPLETED", "FAILED") == "COMPLETED"
    nowhere = private_coach("launch", "--gpus", "0", "--partition", "nowhere", "--", "echo", "hello")
    assert "nvalid partition name specified" in nowhere.stderr


def test_the_first_screen_lists_the_hidden_parts(
    private_coach: InstalledCoach, private_slurm: SlurmCluster, open_terminal: OpenTerminal
) -> None:
    own = private_slurm.submit("sleep 60", "--output=/dev/null")
    private_slurm.wait_state(own, "RUNNING")
    terminal = open_terminal(
        private_coach.argv(), columns=110, rows=34, env=private_coach.env(), as_user=private_coach.user
    )
    terminal.wait_for("partitions are hidden by the site")
    terminal.wait_for("nodes are hidden by the site")
    terminal.send("a")
    terminal.wait_for("other users' jobs are hidden by the site")
    assert "Access/permission denied" not in terminal.screen()
    # The screens have just asked as much of Slurm as they may: the doctor does not wait for that.
    terminal.send("d")
    own_jobs = re.compile(r"[1-9]\d* own jobs?\b")  # one, and what other tests left that ended just now
    terminal.wait_for("cluster lab answers", "jobs, nodes, partitions, reservations", own_jobs)
    terminal.send("C-q")
    assert terminal.wait_exit() == 0


def test_hidden_partitions_are_shown_and_launched_into_and_a_foreign_groups_is_warned_of(
    closed_coach: InstalledCoach, closed_slurm: SlurmCluster
) -> None:
    told = json.loads(closed_coach("partitions", "--format", "json").stdout)["partitions"]
    assert {each["name"]: each["is_hidden"] for each in told} == {
        "cpu": False,
        "gpu": False,
        "hidden": True,
        "staff": False,
    }
    options = ("--gpus", "0", "--format", "json")
    launched = closed_coach("launch", *options, "--partition", "hidden", "--", "sleep", "60")
    assert launched.returncode == 0, launched.stderr
    job_id = json.loads(launched.stdout)["job_id"]
    closed_slurm.wait_state(job_id, "RUNNING")
    assert job_id in closed_coach("jobs").stdout
    assert job_id not in closed_slurm.run(["squeue"]).stdout

    refused = closed_coach("launch", *options, "--partition", "staff", "--", "sleep", "60")
    assert refused.returncode == 2
    assert "partition staff is for the groups root: you are in none of them" in refused.stderr
    assert "User's group not permitted to use this partition" in refused.stderr


def test_without_requeue_the_error_comes_before_any_query_to_slurm(
    closed_coach: InstalledCoach, closed_slurm: SlurmCluster
) -> None:
    stays = closed_slurm.submit("sleep 60", "--output=/dev/null")
    goes = closed_slurm.submit("sleep 60", "--output=/dev/null", "--requeue")
    for job_id in (stays, goes):
        closed_slurm.wait_state(job_id, "RUNNING")
    refused = closed_coach("requeue", stays, "--yes")
    assert refused.returncode == 2
    assert "Slurm may not requeue it (Requeue=0)" in refused.stderr
    assert "the site's default is JobRequeue=0" in refused.stderr
    assert closed_coach("requeue", goes, "--dry-run").stdout == f"scontrol requeue {goes}\n"


OUT_OF_MEMORY = (
    "echo 'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
    "capacity of 79.15 GiB of which 1.10 GiB is free.' >&2; exit 1"
)


def test_the_screens_name_the_actions_that_are_off_here_and_the_reason(
    closed_coach: InstalledCoach, closed_slurm: SlurmCluster, open_terminal: OpenTerminal
) -> None:
    """Hidden partitions, no requeue, no script of a job, no accounting."""
    log = closed_coach.user.home / "log"
    failed = closed_slurm.submit(OUT_OF_MEMORY, f"--output={log}")
    stays = closed_slurm.submit("sleep 60", "--output=/dev/null", "--partition=hidden")
    closed_slurm.wait_state(failed, "FAILED")
    closed_slurm.wait_state(stays, "RUNNING")
    forget_script(closed_slurm, failed)
    terminal = open_terminal(
        closed_coach.argv(), columns=110, rows=34, env=closed_coach.env(), as_user=closed_coach.user
    )
    terminal.wait_for("· hidden  ", re.compile(rf"▸ +{stays}"), timeout_s=60)
    terminal.send("H")
    terminal.wait_for("accounting gives no answer: Slurm accounting storage is disabled", failed)
    terminal.send("Escape")
    terminal.wait_for("· hidden  ")
    terminal.send_packet(f":{stays}\r")
    terminal.wait_for(f"job {stays}", "RUNNING")
    terminal.send("Q")
    terminal.wait_for("Slurm may not requeue it (Requeue=0)", "JobRequeue=0")
    terminal.send("Escape")
    terminal.wait_gone("Requeue=0")
    terminal.send_packet(f":{failed}\r")
    terminal.wait_for("MEM001 cuda-out-of-memory", "F advi")
    terminal.send("F")
    terminal.wait_for("› findings", "Halve the micro-batch")
    terminal.send("F")
    terminal.wait_for("its batch script is not available any more", "accounting storage is disabled")
    terminal.send("Escape")
    terminal.wait_gone("its batch script is not available")
    terminal.send("C-q")
    assert terminal.wait_exit() == 0


TRAINING = """
import argparse, pathlib, time
parser = argparse.ArgumentParser()
parser.add_argument("--output_dir")
parser.add_argument("--resume_from_checkpoint")
args = parser.parse_args()
for step in range(300):
    time.sleep(0.2)
    print("step", step, flush=True)
    place = pathlib.Path(args.output_dir, f"checkpoint-{step + 1}")
    place.mkdir(parents=True, exist_ok=True)
    (place / "state.txt").write_text(str(step))
"""


def test_a_long_training_whose_requeue_is_refused_goes_on_in_a_further_job(
    closed_coach: InstalledCoach, closed_slurm: SlurmCluster
) -> None:
    (closed_coach.user.home / "train.py").write_text(TRAINING)
    options = ("--gpus", "0", "--time", "5:00", "--until-done", "2", "--format", "json")
    done = closed_coach("launch", "train.py", *options, "--", "--output_dir", "out")
    assert done.returncode == 0, done.stderr
    run = json.loads(done.stdout)
    run_dir, job_id = Path(run["run_dir"]), run["job_id"]
    closed_slurm.run(["scontrol", "update", f"jobid={job_id}", "requeue=0"], as_root=True)
    wait_until((closed_coach.user.home / "out/checkpoint-5/state.txt").exists, 60, "a checkpoint is written")
    closed_slurm.run(["scancel", "--batch", "--signal=USR1", job_id])
    record = run_dir / "run.json"
    wait_until(lambda: json.loads(record.read_text())["job_id"] != job_id, 60, "a further job is submitted")
    further = json.loads(record.read_text())["job_id"]
    log = run_dir / "stdout.log"
    told = f"coach: Slurm refused the requeue: job {further} goes on"
    wait_until(lambda: told in log.read_text(), 60, "the log says so")
    assert "checkpoint-5" in log.read_text()
    assert "disabled" in (run_dir / "stderr.log").read_text()
    closed_slurm.run(["scancel", further])


def test_a_script_that_slurm_does_not_give_is_read_from_its_file_with_a_note(
    closed_coach: InstalledCoach, closed_slurm: SlurmCluster
) -> None:
    script = closed_coach.user.home / "job.sh"
    script.write_text("#!/bin/bash\necho start\nexit 3\n")
    script.chmod(0o644)
    log = closed_coach.user.home / "log"
    sent = closed_slurm.run(["sbatch", "--parsable", f"--output={log}", script], cwd=closed_coach.user.home)
    job_id = sent.stdout.strip()
    wrapped = closed_slurm.submit("exit 4", f"--output={log}2")
    for each in (job_id, wrapped):
        closed_slurm.wait_state(each, "FAILED")
        forget_script(closed_slurm, each)

    fixed = closed_coach("fix", job_id)
    assert f"script: the file of its command as it is now ({script})" in fixed.stdout, fixed.stderr
    asked = closed_coach("resubmit", job_id)
    assert "the script is its file as it is now: the submitted copy is not available" in asked.stderr
    nothing = closed_coach("resubmit", wrapped, "--yes")
    assert nothing.returncode == 2
    assert "its batch script is not available any more" in nothing.stderr
    assert "accounting storage is disabled" in nothing.stderr

    told = closed_coach("history")
    assert job_id in told.stdout
    assert "accounting gives no answer: Slurm accounting storage is disabled" in told.stderr
