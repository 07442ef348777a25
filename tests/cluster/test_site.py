"""A site with demands of its own: each refusal leads to an answer, and the user gives each answer once."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.site_slurm import RESERVATION, SHORT_MINUTES, exam_week
from tests.cluster.slurm import SlurmCluster
from tests.installed import InstalledCoach
from tests.ordinary_user import make_user
from tests.terminal.test_story import PLAN, settle
from tests.terminal.tmux import Terminal
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster]

OpenTerminal = Callable[..., Terminal]

ENDLESS = """\
#!/bin/sh
# Stands for an environment whose training goes on: what the job starts lasts, everything else is the real interpreter.
case "$*" in
*/coach/node" run"*) exec sleep 300 ;;
*/coach/node*) exit 0 ;;
esac
exec {python} "$@"
"""


@pytest.fixture
def site_coach(site_slurm: SlurmCluster, train_python: Path) -> InstalledCoach:
    """coach as a new user of the site, with a home that no node sees and a $SCRATCH that all see. The site's
    partition is `gpu`."""
    user = make_user(site_slurm.user.home / secrets.token_hex(4))
    scratch = site_slurm.directory / f"scratch-{user.home.name}"
    scratch.mkdir(mode=0o700)
    endless = scratch / "python"
    endless.write_text(ENDLESS.format(python=train_python))
    endless.chmod(0o755)
    os.chown(scratch, user.uid, user.gid)
    site = scratch / "site.toml"
    site.write_text(f'cache_dir = "{scratch}/cache"\n[launch]\npartition = "gpu"\ncpus_per_task = 1\n')
    surroundings = {"SCRATCH": str(scratch), "COACH_SITE": str(site)}
    return InstalledCoach(train_python, user, {**site_slurm.env, **surroundings})


def asked_of_slurm(cluster: SlurmCluster) -> list[tuple[str, ...]]:
    """State, account and reservation of every active job."""
    rows = cluster.run(["squeue", "--noheader", "--format=%T|%a|%v"], as_root=True).stdout.split()
    return [tuple(row.split("|")) for row in rows]


def test_from_three_refusals_to_running_it_takes_six_keys_and_the_second_launch_takes_two(
    site_coach: InstalledCoach, site_slurm: SlurmCluster, open_terminal: OpenTerminal
) -> None:
    site = Path(site_coach.surroundings["COACH_SITE"])
    site.write_text(site.read_text() + f'python = "{site.parent}/python"\n')
    terminal = open_terminal(
        site_coach.argv(), columns=80, rows=24, env=site_coach.env(), as_user=site_coach.user
    )
    keys: list[str] = []

    def press(key: str) -> None:
        settle(terminal)
        terminal.send(key)
        keys.append(key)

    terminal.wait_for("node2")
    press("2")
    terminal.wait_for(PLAN)
    press("Enter")
    terminal.wait_for("Who pays for this job?")
    terminal.wait_for("account: 1 lab  2 teaching")

    keys.clear()
    press("2")
    terminal.wait_for(PLAN)
    press("Enter")
    terminal.wait_for("name the type of GPU")
    press("1")
    terminal.wait_for(PLAN)
    press("Enter")
    terminal.wait_for("kept for the workshop")
    press("1")
    terminal.wait_for(PLAN)
    press("Enter")
    terminal.wait_for("RUNNING", timeout_s=30)
    assert len(keys) <= 6, keys
    assert asked_of_slurm(site_slurm) == [("RUNNING", "teaching", RESERVATION)]
    (first,) = Path(site_coach.surroundings["SCRATCH"]).glob("coach/runs/*/job.sh")
    assert "#SBATCH --gres=gpu:a100:2\n" in first.read_text()

    site_slurm.cancel_all()
    keys.clear()
    press("2")
    terminal.wait_for(PLAN)
    press("Enter")
    wanted = [("RUNNING", "teaching", RESERVATION)]
    wait_until(lambda: asked_of_slurm(site_slurm) == wanted, 30, "the second launch runs", every_s=0.3)
    assert keys == ["2", "Enter"]
    terminal.send("C-q")
    assert terminal.wait_exit() == 0
    another_day = site_coach("launch", "ddp", "--dry-run")
    assert "#SBATCH --account=teaching\n" in another_day.stdout, another_day.stderr


def test_without_a_screen_each_refusal_names_a_remedy_and_the_run_trains_without_the_home(
    site_coach: InstalledCoach,
) -> None:
    small = ("--set", "max_steps=2", "--set", "width=8", "--set", "num_workers=0", "--set", "epochs=1")
    said: tuple[str, ...] = ()
    for words, hint, option in (
        ("Who pays for this job?", "try --account=lab, or teaching", "--account=lab"),
        ("name the type of GPU", "try --gpu-type=a100 --gpu-request=gres", "--gpu-type=a100"),
        ("kept for the workshop", f"try --reservation={RESERVATION}", f"--reservation={RESERVATION}"),
    ):
        refused = site_coach("launch", "baseline", *small, *said)
        assert refused.returncode == 2
        *_, slurms, ours = refused.stderr.splitlines()
        assert words in slurms
        assert ours.strip() == hint
        said = (*said, option)

    long = site_coach("launch", "baseline", *small, "--partition", "short", "--time", "20:00")
    assert f"partition short allows at most 00:{SHORT_MINUTES}:00" in long.stderr

    options = ("--partition", "cpu", "--account", "teaching", "--set", "num_train_samples=256")
    trained = site_coach(
        *("launch", "baseline", *small, *options, "--wait", "--format", "json"), timeout_s=120
    )
    run = json.loads(trained.stdout)
    logs = "".join((Path(run["run_dir"]) / name).read_text() for name in ("stdout.log", "stderr.log"))
    assert trained.returncode == 0, trained.stderr + logs
    assert run["run_dir"].startswith(site_coach.surroundings["SCRATCH"])
    assert "remembered for lab: --account=teaching\n" in trained.stderr
    again = site_coach("launch", "baseline", "--partition", "cpu", "--dry-run")
    assert "#SBATCH --account=teaching\n" in again.stdout, again.stderr


def test_a_refusal_without_an_option_is_shown_in_the_site_s_words_beside_every_request(
    site_coach: InstalledCoach, site_slurm: SlurmCluster, open_terminal: OpenTerminal
) -> None:
    scratch = site_coach.surroundings["SCRATCH"]
    waits = site_slurm.submit("true", "--account=lab", "--begin=now+1hour", f"--chdir={scratch}")
    words = "Exam week: no new jobs before Monday. Questions: help@hpc.example.org"
    with exam_week(site_slurm):
        for command in (
            ("launch", "--gpus", "0", "--partition", "cpu", "--", "true"),
            ("resubmit", waits, "--yes"),
        ):
            refused = site_coach(*command)
            assert refused.returncode == 2
            assert f"coach: sbatch: {words}" in refused.stderr
        held = site_coach("hold", waits, "--yes")
        assert held.returncode == 2
        assert "a site's own rules (job_submit) refuse in this way" in held.stderr
        told = site_coach("doctor", "--format", "json")
        (test,) = [each for each in json.loads(told.stdout)["checks"] if each["what"] == "sbatch --test-only"]
        assert test["state"] == "wrong"
        assert test["because"].startswith(words)
        assert test["todo"] == "Slurm's message names no option: follow the message, or ask the site"

        terminal = open_terminal(
            site_coach.argv(), columns=110, rows=34, env=site_coach.env(), as_user=site_coach.user
        )
        terminal.wait_for("node2", f"{waits}", timeout_s=60)
        terminal.send("1")
        terminal.wait_for(PLAN)
        settle(terminal)
        terminal.send("Enter")
        terminal.wait_for("Exam week: no new jobs before Monday.", "change the plan, or Esc leaves")
        terminal.send("Escape")
        terminal.wait_for("queue ·")
        settle(terminal)
        terminal.send("A")
        terminal.wait_for("y runs exactly this")
        settle(terminal)
        terminal.send("y")
        terminal.wait_for("Exam week: no new jobs before Monday.")
        terminal.send("C-q")
        assert terminal.wait_exit() == 0
    queued = site_slurm.run(["squeue", "--noheader", "--format=%i"], as_root=True).stdout.split()
    assert queued == [waits]
