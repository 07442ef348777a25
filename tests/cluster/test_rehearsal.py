"""The rehearsal of a workshop on a real site, from a learner's account: all well, then module, data, account
and quota broken one at a time."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.site_slurm import RESERVATION
from tests.cluster.slurm import SlurmCluster
from tests.installed import InstalledCoach
from tests.ordinary_user import make_user
from tests.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.site, pytest.mark.train, pytest.mark.timeout(300)]

HEAD = """\
learners = 40
minutes = 60
max_steps = {max_steps}
[launch]
partition = "cpu"
account = "teaching"
cpus_per_task = 1
"""
SMALL = (
    "set = { width = 8, num_workers = 0, num_train_samples = 256, eval_every_epoch = false }\nrecipe = "
    '"baseline"\n'
)
QUOTA = """\
#!/bin/sh
# A user who has 1 MB left: the answer of `quota -w -p`.
echo "     {device}  999000 1000000 1000000       0      20       0       0       0"
"""
SERVER = "files:/scratch"


@pytest.fixture
def learner(site_slurm: SlurmCluster, train_python: Path) -> Iterator[InstalledCoach]:
    """coach as a new user of the site who may have one run at a time; the user's queue is empty at the
    end."""
    user = make_user(site_slurm.user.home / secrets.token_hex(4))
    scratch = site_slurm.directory / f"scratch-{user.home.name}"
    scratch.mkdir(mode=0o700)
    os.chown(scratch, user.uid, user.gid)
    site = scratch / "site.toml"
    site.write_text(f'cache_dir = "{scratch}/cache"\n[limits]\nmax_running = 1\n')
    yield InstalledCoach(
        train_python, user, {**site_slurm.env, "SCRATCH": str(scratch), "COACH_SITE": str(site)}
    )
    wait_until(lambda: in_queue(site_slurm) == [], 10, "nothing is left in the queue")


def in_queue(cluster: SlurmCluster) -> list[str]:
    """The states of all active jobs."""
    return cluster.run(["squeue", "--noheader", "--format=%T"], as_root=True).stdout.split()


def write_plan(learner: InstalledCoach, recipes: str, max_steps: int = 2) -> Path:
    path = Path(learner.surroundings["SCRATCH"]) / "day.toml"
    path.write_text(HEAD.format(max_steps=max_steps) + recipes)
    path.chmod(0o644)
    return path


def rehearse(
    learner: InstalledCoach, recipes: str, *options: str, env: dict[str, str] | None = None
) -> tuple[int, dict[str, dict[str, Any]], dict[str, Any]]:
    """The exit status, the result of each recipe by name, and whether all runs fit."""
    path = write_plan(learner, recipes)
    done = learner(
        *("workshop", "check", path, "--format", "json", *options), env=env, timeout_s=60 * PATIENCE
    )
    assert done.stdout, done.stderr
    told = json.loads(done.stdout)
    return done.returncode, {each["name"]: each for each in told["recipes"]}, told["fit"]


def test_a_day_with_a_broken_module_and_a_broken_account_names_both_and_the_sound_recipe_is_measured(
    learner: InstalledCoach,
) -> None:
    status, tried, day = rehearse(
        learner,
        f"[recipes.sound]\nminutes = 3\n{SMALL}[recipes.module]\nenvironment = "
        f'"modules=no-such-module/1.0"\n{SMALL}'
        f'[recipes.account]\naccount = "nobody"\npartition = "gpu"\nreservation = "{RESERVATION}"\n{SMALL}',
    )
    sound, module, account = tried["sound"], tried["module"], tried["account"]
    assert status == 1
    assert (sound["state"], sound["problem"]) == ("COMPLETED", None)
    assert 0 < sound["first_step_s"] < sound["seconds"]
    assert sound["queued_s"] is not None
    assert sound["gpu_seconds"] == 0
    assert module["finding"]["cause"] == "environment_module"
    assert "no-such-module/1.0" in module["problem"]
    assert account["job_id"] is None
    assert "Who pays for this job?" in account["problem"]
    shares = {share["name"]: share for share in day["recipes"]}
    assert (shares["sound"]["at_once"], shares["sound"]["rounds"], shares["sound"]["total_s"]) == (32, 2, 360)
    assert (shares["account"]["at_once"], shares["account"]["rounds"]) == (2, 20)
    assert [(place["name"], place["num_gpus"]) for place in day["places"]] == [
        ("partition cpu", 4),
        (f"reservation {RESERVATION} of partition gpu", 2),
    ]


def test_missing_data_is_named(learner: InstalledCoach) -> None:
    scratch = learner.surroundings["SCRATCH"]
    status, tried, _ = rehearse(
        learner, f"[recipes.data]\n{SMALL}", env={"COACH_DATA_DIR": f"{scratch}/no-data"}
    )
    assert status == 1
    assert f"{scratch}/no-data" in tried["data"]["problem"]
    assert tried["data"]["state"] in (None, "FAILED")


@pytest.mark.root
def test_a_quota_that_is_used_up_is_named(learner: InstalledCoach) -> None:
    scratch = Path(learner.surroundings["SCRATCH"])
    programs, root = scratch / "bin", scratch / "runs-on-server"
    programs.mkdir()
    root.mkdir()
    (programs / "quota").write_text(QUOTA.format(device=SERVER))
    for path in (programs, programs / "quota"):
        path.chmod(0o755)
    options = f"size=200m,uid={learner.user.uid},gid={learner.user.gid},mode=700"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, SERVER, root], check=True)
    try:
        env = {"PATH": f"{programs}:{learner.env()['PATH']}", "COACH_RUNS_ROOT": str(root / "runs")}
        status, tried, _ = rehearse(learner, f"[recipes.quota]\n{SMALL}", env=env)
    finally:
        subprocess.run(["umount", "--lazy", root], check=True)
    assert status == 1
    assert "left of your quota" in tried["quota"]["problem"]


def test_a_run_that_waits_too_long_is_cancelled_and_shown_with_slurm_s_reason(
    learner: InstalledCoach,
) -> None:
    status, tried, _ = rehearse(
        learner, f'[recipes.later]\nsbatch = {{ begin = "now+1hour" }}\n{SMALL}', "--max-queued", "0:02"
    )
    assert status == 1
    assert tried["later"]["state"] == "CANCELLED"
    assert (tried["later"]["started_time_s"], tried["later"]["finding"]) == (None, None)
    assert "BeginTime" in tried["later"]["problem"]


def test_an_interrupted_rehearsal_leaves_nothing_running(
    learner: InstalledCoach, site_slurm: SlurmCluster
) -> None:
    path = write_plan(learner, f"[recipes.long]\n{SMALL}[recipes.never]\n{SMALL}", max_steps=1_000_000)
    rehearsal = subprocess.Popen(
        learner.user.argv(learner.argv("workshop", "check", path)),
        env=learner.env(),
        cwd=learner.user.home,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until(
            lambda: in_queue(site_slurm) == ["RUNNING"] or rehearsal.poll() is not None,
            60,
            "its first run runs",
            every_s=0.3,
        )
        rehearsal.send_signal(signal.SIGINT)
        _, said = rehearsal.communicate(timeout=30 * PATIENCE)
    finally:
        rehearsal.kill()
        rehearsal.wait()
    assert rehearsal.returncode == 130, said
    assert "was cancelled" in said
    assert "interrupted: 0 of 2 recipes were tried" in said
