"""A learner and a teacher on a real Slurm: the job shares its own state, coach shares the finding, and both
arrive with coach closed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.slurm import SlurmCluster
from tests.installed import InstalledCoach
from tests.terminal.tmux import Terminal
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.terminal]


def test_a_teacher_sees_learners_that_train_that_wait_and_that_have_no_run(
    slurm: SlurmCluster,
    user_coach: InstalledCoach,
    open_directory: Path,
    open_terminal: Callable[..., Terminal],
) -> None:
    place = open_directory / f"course-{user_coach.user.home.name}"
    shared, roster = place / "shared", place / "people"
    shared.mkdir(parents=True)
    shared.chmod(0o1777)
    learner = user_coach.user.name
    roster.write_text(f"{learner}\nabsent\n")

    def runs() -> dict[str, Any]:
        told = json.loads(user_coach("cohort", shared, "--roster", roster, "--format", "json").stdout)
        people = {person["user"]: person["runs"] for person in told["people"]}
        assert people["absent"] == []
        return {run["recipe"]: run for run in people[learner]}

    def launch(recipe: str, *more: str) -> str:
        done = user_coach("launch", recipe, "--share", shared, "--format", "json", *more)
        assert done.returncode == 0, done.stderr
        assert "shares a summary in" in done.stderr
        job_id: str = json.loads(done.stdout)["job_id"]
        return job_id

    small = ("max_steps=20", "width=8", "batch_size=16", "num_train_samples=400", "eval_every_epoch=false")
    said = (word for value in ("lr=1e20", *small) for word in ("--set", value))
    trains = launch("baseline", "--gpus", "0", *said)
    launch("amp", "--sbatch", "begin=now+1hour", "--gpus", "0")
    slurm.wait_state(trains, "COMPLETED", timeout_s=120)
    wait_until(lambda: runs()["baseline"]["state"] == "COMPLETED", 120, "the run ends", every_s=1.0)
    run = runs()["baseline"]
    assert run["samples_per_s"] > 0
    wait_until(
        lambda: runs()["baseline"]["rule"] == "NUM001", 30, "the job's own verdict, nobody's coach has looked"
    )
    assert (runs()["amp"]["state"], runs()["amp"]["ended_time_s"]) == ("PENDING", None)
    assert runs()["amp"]["pending_s"] >= 0

    assert runs()["baseline"]["severity"] == "critical"
    said = user_coach("cohort", shared, "--roster", roster, "--long-wait", "0").stdout
    assert "nothing yet: 1 of 2: absent" in said
    assert re.search(rf"pending for 0 min or longer: {learner} \d+ min", said)

    env = user_coach.env({"COACH_LAUNCH_SHARE": str(shared), "COACH_COHORT_ROSTER": str(roster)})
    terminal = open_terminal(user_coach.argv(), columns=80, rows=24, env=env, as_user=user_coach.user)
    terminal.wait_for("slurm ·", timeout_s=60)

    def is_open() -> bool:
        terminal.send("L")
        return "› cohort" in terminal.screen()

    wait_until(is_open, 60, "the cohort's screen", every_s=0.5)
    terminal.wait_for("✖ NUM001", timeout_s=60)
    terminal.wait_for("▲ nothing yet: 1 of 2: absent", timeout_s=10)
    slurm.run(["scancel", "--user", learner], as_root=True)
