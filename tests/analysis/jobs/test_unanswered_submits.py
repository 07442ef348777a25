"""A job is matched to a run by its output file or by its script, never by the recipe's name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coach.analysis.jobs.belonging import RunJobs, has_lost_its_job, jobs_in_queue
from coach.model.slurm.cluster import Job
from coach.model.training.run import Run, Submission
from coach.sources.runs.run_files import parse_run

ROOT = "/scratch/ada/100%/coach/runs"
RUN_ID = "20261121-142233-ddp-4f2a"
OUTPUT = f"{ROOT}/.logs/{RUN_ID}.out"
MADE_S = 1000.0


def run(run_id: str = RUN_ID, **said: object) -> Run:
    value = {"run_id": run_id, "recipe": "ddp", "backend": "slurm", "state": "PENDING", "user": "ada"}
    return parse_run({**value, "created_time_s": MADE_S, **said}, f"{ROOT}/{run_id}")


def job(
    job_id: str, stdout: str | None, state: str = "PENDING", user: str = "ada", submit_s: float = 1001.0
) -> Job:
    return Job(
        *(job_id, "ddp", user, state, None, "gpu", None), *(None,) * 6, submit_s, None, None, stdout=stdout
    )


@pytest.mark.parametrize("stdout", [OUTPUT, OUTPUT.replace("%", "%%")])
def test_the_job_that_writes_to_the_run_s_file_is_its_job(stdout: str) -> None:
    assert jobs_in_queue([run()], [job("7", stdout)])[RUN_ID].job_id == "7"


@pytest.mark.parametrize(
    "other",
    [
        job("7", None),
        job("7", f"{ROOT}/.logs/20261121-142233-ddp-4f2b.out"),
        job("7", f"/scratch/ada/other/.logs/{RUN_ID}.out"),
        job("7", OUTPUT, user="eve"),
        job("7", OUTPUT, submit_s=MADE_S - 900.0),
    ],
    ids=["no output", "another run's", "another root's", "somebody else's", "older than the run"],
)
def test_a_job_of_the_same_recipe_is_not_the_run_s(other: Job) -> None:
    assert jobs_in_queue([run()], [other]) == {}


def test_of_two_jobs_of_one_script_the_one_that_is_alive_counts() -> None:
    both = [job("7", OUTPUT, "CANCELLED"), job("8", OUTPUT), job("9", OUTPUT, "FAILED")]
    assert jobs_in_queue([run()], both)[RUN_ID].job_id == "8"


def test_a_run_that_has_begun_or_ended_has_not_lost_its_job() -> None:
    assert has_lost_its_job(run())
    assert not has_lost_its_job(run(job_id="7"))
    assert not has_lost_its_job(run(started_time_s=1002.0))
    assert not has_lost_its_job(run(state="CANCELLED"))
    assert not has_lost_its_job(run(backend="local"))


def test_the_screens_show_a_found_job_and_the_absence_of_one() -> None:
    lost, other = run(), run("20261121-142234-ddp-4f2b")
    joined = RunJobs(None)
    joined.see_runs([other, lost])
    assert joined.with_state(other).submission is None  # the queue has not been asked
    rows = {"7": job("7", OUTPUT, "RUNNING")}
    joined.see_outputs(rows.values())
    joined.see_rows(rows)
    shown = joined.with_state(lost)
    assert (shown.job_id, shown.state, shown.submission) == ("7", "RUNNING", None)
    absent = joined.with_state(other)
    assert (absent.job_id, absent.state, absent.submission) == (None, None, Submission.NOT_QUEUED)
    assert joined.found() == [(lost, "7")]
    launching = replace(other, is_launching=True)
    assert joined.with_state(launching).submission is Submission.LAUNCHING
    # A run launched since then is not judged by an older answer.
    newer = run("20261121-142235-ddp-4f2c")
    joined.see_runs([newer, other, lost])
    assert joined.with_state(newer).submission is None


def test_each_run_of_a_sweep_is_its_own_task_of_the_array_that_waits() -> None:
    group = RUN_ID
    others = [f"20261121-142233-ddp-4f2{letter}" for letter in "bc"]
    lost = [
        run(run_id, sweep={"group_id": group, "parameter": "lr", "value": 0.1, "index": index, "size": 3})
        for index, run_id in enumerate((group, *others))
    ]
    script = f"{ROOT}/{group}/array.sh"
    waiting = replace(job("7_[0-1%2]", "/dev/null"), command=script)
    running = replace(job("7_2", "/dev/null", "RUNNING"), command=script)
    found = jobs_in_queue(lost, [waiting, running])
    assert [found[run_id].job_id for run_id in (group, *others)] == ["7_0", "7_1", "7_2"]
    assert found[others[1]].state == "RUNNING"


def test_a_batch_file_with_its_own_output_path_is_recognised_by_its_script() -> None:
    row = replace(job("7", "/home/ada/slurm-7.out"), command=f"{ROOT}/{RUN_ID}/job.sh")
    assert jobs_in_queue([run()], [row])[RUN_ID].job_id == "7"
