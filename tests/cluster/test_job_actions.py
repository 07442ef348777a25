"""A user's actions on own jobs, on a real Slurm: one command for each action, and its effect in Slurm."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coach.config import Settings
from coach.launch.resubmission import submit_again
from coach.model.errors import UserError
from coach.model.slurm.job_action import JobAction, Outcome, Verb
from coach.sources.io import SystemIo, scrubbed_environment
from coach.workflows.jobs import job_actions
from coach.workflows.jobs.job_actions import perform
from coach.workflows.launching.find_again import find_again
from coach.workflows.launching.resubmit import perform_resubmit, plan_resubmit
from tests.cluster.slurm import SlurmCluster
from tests.installed import InstalledCoach
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster


def coach_lines(coach: InstalledCoach, *words: str, status: int = 0) -> list[str]:
    done = coach(*words)
    assert done.returncode == status, done.stderr
    return done.stderr.splitlines()


def rows(slurm: SlurmCluster, job_id: str) -> set[str]:
    """`ID STATE REASON LIMIT` of each row."""
    words = ["squeue", "-h", "-t", "all", "-j", job_id, "-O", "jobarrayid: ,state: ,reason: ,timelimit:"]
    return {" ".join(line.split()) for line in slurm.run(words).stdout.splitlines()}


def test_two_jobs_are_held_released_shortened_and_cancelled_by_one_command_each(
    slurm: SlurmCluster, user_coach: InstalledCoach
) -> None:
    later = ("--begin=now+1hour", "--time=20")
    first, second = slurm.submit("true", *later), slurm.submit("true", *later)
    others = slurm.submit("true", *later, as_root=True)
    both = f"{first}, {second}"
    assert coach_lines(user_coach, "hold", first, second, others, "--yes", status=2) == [
        f"coach: left out: {others}: it belongs to root, coach changes only your own jobs",
        f"scontrol hold {first},{second}",
        f"coach: {both} were held",
    ]
    assert {row.split()[2] for job in (first, second) for row in rows(slurm, job)} == {"JobHeldUser"}
    assert "JobHeldUser" not in "".join(rows(slurm, others))
    assert coach_lines(user_coach, "hold", first, status=2) == [f"coach: job {first}: it is held already"]
    assert coach_lines(user_coach, "release", first, second, "--yes")[-1] == f"coach: {both} were released"
    raised = coach_lines(user_coach, "timelimit", "30:00", first, "--yes", status=2)
    assert raised == [
        f"coach: job {first}: its limit is 00:20:00: users may only lower a limit, an administrator raises it"
    ]
    lowered = coach_lines(user_coach, "timelimit", "4:30", first, second, "--yes")
    assert lowered[0] == f"scontrol update jobid={first},{second} timelimit=00:05:00"
    assert {row.split()[3] for job in (first, second) for row in rows(slurm, job)} == {"5:00"}
    dry = user_coach("cancel", first, second, "--dry-run")
    assert (dry.returncode, dry.stdout) == (0, f"scancel {first} {second}\n")
    asked = user_coach("cancel", first)
    assert asked.returncode == 2
    assert f"to be confirmed: scancel {first}" in asked.stderr
    assert coach_lines(user_coach, "cancel", first, second, "--yes")[-1] == f"coach: {both} were cancelled"
    slurm.wait_state(first, "CANCELLED")


def test_the_work_that_a_running_job_would_lose_is_shown_before_it_is_ended(
    slurm: SlurmCluster, user_coach: InstalledCoach
) -> None:
    folder = user_coach.user.home / "work"
    save = "import zipfile; zipfile.ZipFile('epoch=0-step=40.ckpt', 'w').writestr('data.pkl', 'x')"
    job_id = slurm.submit(
        f'mkdir -p {folder} && cd {folder} && python3 -c "{save}" && touch saved && sleep 300',
        "--gres=gpu:1",
        f"--chdir={user_coach.user.home}",
    )
    wait_until((folder / "saved").exists, what="the job has saved")
    dry = user_coach("cancel", job_id, "--dry-run")
    assert (dry.returncode, dry.stdout) == (0, f"scancel {job_id}\n")
    assert "lost: 0.0 GPU-hours since the newest complete checkpoint" in dry.stderr
    assert "epoch=0-step=40.ckpt (Lightning, step 40)" in dry.stderr


@pytest.fixture
def here(slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Here:
    return Here(slurm, tmp_path, monkeypatch)


class Here:
    """The workflows in this process, on the jobs of root: starting coach for each of them would cost
    seconds."""

    def __init__(self, slurm: SlurmCluster, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.slurm = slurm
        monkeypatch.setenv("SLURM_CONF", str(slurm.conf))
        self.env = {"SLURM_CONF": str(slurm.conf), "PATH": "/usr/bin:/bin", "SHELL": "/bin/sh"}
        self.io = SystemIo(scrubbed_environment(self.env))
        self.settings = Settings(folder / "runs", folder / "cache", folder / "config")
        self.home = folder

    def submit(self, script: str, *options: str) -> str:
        return self.slurm.submit(script, "-o", f"{self.home}/%j.out", *options, as_root=True)

    def plan(self, verb: Verb, *targets: str, limit_s: int | None = None) -> JobAction:
        return job_actions.plan_action(verb, targets, self.settings, self.env, self.io, limit_s)

    def do(self, verb: Verb, *targets: str, limit_s: int | None = None) -> Outcome:
        return perform(self.plan(verb, *targets, limit_s=limit_s), self.env, 0.0)


def test_some_tasks_of_an_array_are_held_and_the_whole_is_shortened_and_cancelled(here: Here) -> None:
    array = here.submit("sleep 60", "--array=0-5%1", "--time=10")
    here.slurm.wait_state(f"{array}_0", "RUNNING")
    assert here.do(Verb.HOLD, f"{array}_[2-3]").done == (f"{array}_[2-3]",)
    action = here.plan(Verb.HOLD, array)
    assert f"{array}_0" in {each.job_id for each in action.left_out}
    with pytest.raises(UserError, match="only for the whole array"):
        here.plan(Verb.TIMELIMIT, f"{array}_[4-5]", limit_s=300)
    here.do(Verb.TIMELIMIT, array, limit_s=300)
    assert {row.split()[3] for row in rows(here.slurm, array)} == {"5:00"}
    assert here.plan(Verb.CANCEL, array).commands == (f"scancel {array}",)
    here.do(Verb.CANCEL, f"{array}_0", f"{array}_[4-5]")

    def alive() -> set[str]:
        """The rows of the tasks that wait or run."""
        return {row.split()[0] for row in rows(here.slurm, array) if row.split()[1] in ("PENDING", "RUNNING")}

    wait_until(lambda: f"{array}_1" in alive(), 20, "the next task runs")
    assert alive() == {f"{array}_1", f"{array}_2", f"{array}_3"}


def test_only_the_failed_or_the_named_tasks_of_an_array_run_again(
    slurm: SlurmCluster, user_coach: InstalledCoach
) -> None:
    home = user_coach.user.home
    script = home / "tasks.sh"
    script.write_text("#!/bin/bash\ncase $SLURM_ARRAY_TASK_ID in 2|5) exit 3;; esac\n")
    words = ["sbatch", "--parsable", "-o", f"{home}/%A_%a.out", "--array=0-6%4", script, "x"]
    array = slurm.run(words, cwd=home).stdout.strip()
    for task in range(7):
        slurm.wait_state(f"{array}_{task}", "FAILED" if task in (2, 5) else "COMPLETED")
    line = user_coach("resubmit", f"{array}_[2,5]", "--dry-run")
    assert (line.returncode, line.stdout.split()[-3:]) == (0, ["--array=2,5", str(script), "x"])
    named = [f"  {array}_{task}  tasks.sh  FAILED  –" for task in (2, 5)]
    assert [row.replace("00:00:01", "–") for row in line.stderr.splitlines()[:2]] == named
    assert "--array=0-6%4" in user_coach("resubmit", array, "--dry-run").stdout.split()
    done = coach_lines(user_coach, "resubmit", array, "--failed", "--yes")
    assert done[-1].startswith(f"coach: {array}_[2,5] was submitted again · the new job is ")
    again = done[-1].rpartition(" ")[2]
    slurm.wait_state(f"{again}_5", "FAILED")
    assert {row.split()[0] for row in rows(slurm, again)} == {f"{again}_2", f"{again}_5"}


def test_a_forbidden_requeue_is_refused_beforehand_and_an_allowed_one_is_done(
    here: Here,
) -> None:
    stays = here.submit("sleep 60", "--no-requeue")
    goes = here.submit("sleep 60")
    for job_id in (stays, goes):
        here.slurm.wait_state(job_id, "RUNNING")
    action = here.plan(Verb.REQUEUE, stays, goes)
    assert action.commands == (f"scontrol requeue {goes}",)
    (left_out,) = action.left_out
    assert left_out.words.startswith(f"{stays}: Slurm may not requeue it (Requeue=0): it was submitted with")
    assert perform(action, here.env, 0.0).done == (goes,)
    here.slurm.wait_state(goes, "PENDING")


def test_a_job_is_submitted_again_with_its_script_options_and_folder(here: Here) -> None:
    script = here.home / "job.sh"
    script.write_text('#!/bin/bash\necho "again $1"\nsleep 60\n')
    words = [
        "sbatch",
        "--parsable",
        "-o",
        f"{here.home}/%j.out",
        "-J",
        "a b|c",
        "--time=7",
        "-N2",
        script,
        "x",
    ]
    first = here.slurm.run(words, as_root=True, cwd=here.home).stdout.strip()
    here.slurm.wait_state(first, "RUNNING")
    planned = plan_resubmit(first, here.settings, here.env, here.io)
    assert isinstance(planned, JobAction)
    assert planned.script_file is None
    outcome = perform_resubmit(planned, here.env)
    second = outcome.notes[0].rpartition(" ")[2]
    here.slurm.wait_state(second, "RUNNING")
    output = here.home / f"slurm-{second}.out"
    fields = ["squeue", "-h", "-O", "name:#,timelimit:#,numnodes:#,workdir:#", "-j"]
    said = [here.slurm.run([*fields, job_id]).stdout for job_id in (first, second)]
    assert said[0] == said[1]
    wait_until(lambda: output.exists() and "again x" in output.read_text(), 10, "it ran with its argument")
    found = find_again(first, here.settings, here.env, here.io)
    assert found.value("time") == "00:07:00"
    again = perform_resubmit(submit_again(found, {"time": "9:00", "mem": "64M", "exclude": ""}), here.env)
    third = again.notes[0].rpartition(" ")[2]
    asked = here.slurm.run(["squeue", "-h", "-O", "timelimit:#,minmemory:#", "-j", third]).stdout
    assert asked.split("#")[:2] == ["9:00", "64M"]
    script.write_text("#!/bin/bash\nexit 1\n")
    changed = plan_resubmit(first, here.settings, here.env, here.io)
    assert isinstance(changed, JobAction)
    assert changed.script_file is not None
    assert "again" in (changed.script or "")
    assert any("has changed" in note for note in changed.notes)


def test_an_array_with_a_long_list_of_tasks_is_listed_whole_and_loses_one_task(
    slurm: SlurmCluster, bare_coach: InstalledCoach
) -> None:
    tasks = "100,103,201,204,305,308,411,414"
    job = slurm.submit("true", f"--array={tasks}%2", "--begin=now+1hour")
    listed = bare_coach("jobs", "--format", "json")
    assert [row["job_id"] for row in json.loads(listed.stdout)["jobs"] if row["job_id"].startswith(job)] == [
        f"{job}_[{tasks}%2]"
    ]
    cancelled = coach_lines(bare_coach, "cancel", f"{job}_305", "--yes")
    assert cancelled == [f"scancel {job}_305", f"coach: {job}_305 was cancelled"]
    whole = slurm.run(["squeue", "-h", "-j", job, "-o", "%i"], env={"SLURM_BITSTR_LEN": "0"}).stdout.strip()
    assert whole == f"{job}_[{tasks.replace('305,', '')}%2]"
