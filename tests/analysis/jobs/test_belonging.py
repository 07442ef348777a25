"""A job id alone does not identify a job: which run a row of the queue belongs to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coach.analysis.jobs.belonging import MAX_REQUEUE_AFTER_S, is_job_of
from coach.model.slurm.cluster import Job
from coach.model.training.run import Run
from coach.sources.runs.run_files import parse_run

JOB = Job("17", "ddp", "ada", "RUNNING", None, "gpu", "node1", 1, 2, 1, 5, 5, 10, 900.0, 990.0, None)
RUN = parse_run(
    {"job_id": "17", "backend": "slurm", "created_time_s": 890.0, "user": "ada", "cluster": "tiger"},
    "/runs/20261121-142233-ddp-4f2a",
)

SUBMITTED = replace(RUN, submitted_time_s=899.0)
TASK = replace(JOB, job_id="17_3")
OF_TASK = replace(RUN, job_id="17_3", raw_job_id="23")


@pytest.mark.parametrize(
    ("job", "run", "cluster"),
    [
        (JOB, RUN, "tiger"),
        (JOB, RUN, "TIGER"),
        (JOB, RUN, None),
        (JOB, replace(RUN, cluster=None, user=None, created_time_s=None), "tiger"),
        (replace(JOB, submit_time_s=None), RUN, "tiger"),
        (replace(JOB, submit_time_s=5000.0), replace(RUN, state="TIMEOUT", ended_time_s=4990.0), "tiger"),
        (replace(JOB, submit_time_s=1e9), RUN, "tiger"),
        (replace(JOB, submit_time_s=1e9, num_requeues=1), SUBMITTED, "tiger"),
        (replace(JOB, num_requeues=0), SUBMITTED, "tiger"),
        (replace(TASK, raw_job_id="23"), OF_TASK, "tiger"),
        (TASK, OF_TASK, "tiger"),
        (replace(TASK, raw_job_id="23"), replace(OF_TASK, raw_job_id=None), "tiger"),
    ],
    ids=[
        *(
            "same",
            "case",
            "no name here",
            "old record",
            "no time",
            "requeued after its end",
            "requeued later",
        ),
        *(
            "counted as requeued",
            "never requeued",
            "a task",
            "a task without its own number",
            "an older record",
        ),
    ],
)
def test_a_row_is_the_run_s_job(job: Job, run: Run, cluster: str | None) -> None:
    assert is_job_of(job, run, cluster)


@pytest.mark.parametrize(
    ("job", "run", "cluster"),
    [
        (replace(JOB, job_id="18"), RUN, "tiger"),
        (JOB, RUN, "della"),
        (replace(JOB, user="bob"), RUN, "tiger"),
        (JOB, replace(RUN, created_time_s=50_000.0), "tiger"),
        (
            replace(JOB, submit_time_s=1000.0 + MAX_REQUEUE_AFTER_S + 1),
            replace(RUN, state="COMPLETED", ended_time_s=1000.0),
            "tiger",
        ),
        (replace(JOB, submit_time_s=1e9, num_requeues=0), SUBMITTED, "tiger"),
        (replace(TASK, raw_job_id="22"), OF_TASK, "tiger"),
    ],
    ids=[
        *("another number", "another cluster", "another user", "submitted before", "long after the end"),
        *("the user's own next job of that number", "a job that was submitted inside this task"),
    ],
)
def test_a_row_of_the_same_number_is_another_job(job: Job, run: Run, cluster: str | None) -> None:
    assert not is_job_of(job, run, cluster)
