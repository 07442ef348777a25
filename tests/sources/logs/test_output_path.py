"""File name patterns as two real versions of Slurm expanded them: each expectation is a file that slurmd
created."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from coach.model.slurm.cluster import Job
from coach.sources.logs.output_path import expand, names_of, output_paths

BATCH = Job("4937", "na me", "root", "RUNNING", None, "gpu", "node1", *(None,) * 9)
TASK = replace(BATCH, job_id="4938_3", raw_job_id="4945", name="arr")
JOB = Job("17", "train", "ada", "RUNNING", None, "gpu", "node[07-09]", *(None,) * 9, work_dir="/home/ada")


@pytest.mark.parametrize(
    ("pattern", "job", "path"),
    [
        (
            "b-%J=%s=%n=%t=%N=%j=%5j=%A=%a=%x=%u=%%=%q=%12j=%0j=%5a=%5x=%5t=%5n.out",
            BATCH,
            (
                "b-4937=batch=0=0=node1=4937=04937=4937=4294967294=na "
                "me=root=%=%q=0000004937=4937=4294967294=na me=00000=00000.out"
            ),
        ),
        (
            "a-%J=%s=%N=%j=%5j=%A=%a=%x=%3a=%5A.out",
            TASK,
            "a-4945=batch=node1=4945=04945=4938=3=arr=003=04938.out",
        ),
        ("%b=%3b", replace(TASK, job_id="4938_14"), "4=004"),
        ("esc\\%j.out", BATCH, "esc%j.out"),
        ("esc\\\\%j-%x.out", BATCH, "esc\\%j-%x.out"),
        ("sub%.out", BATCH, "sub%.out"),
        ("y-%z-%5-%.out", BATCH, "y-%z-5-%.out"),
        ("%", BATCH, "%"),
        ("/abs/%x", replace(BATCH, name="[%j]\n"), "/abs/[%j]\n"),
        ("%999999999999j", BATCH, "0000004937"),
    ],
)
def test_a_pattern_expands_as_slurmd_expands_it(pattern: str, job: Job, path: str) -> None:
    assert expand(pattern, names_of(job) or {}, Path("/data")) == Path("/data") / path


def test_values_that_a_pending_job_lacks_are_not_guessed() -> None:
    waiting = names_of(replace(TASK, nodes=None)) or {}
    assert expand("%N.out", waiting, Path("/data")) is None
    assert expand("%j.out", waiting, Path("/data")) == Path("/data/4945.out")


@pytest.mark.parametrize(
    ("job", "paths"),
    [
        (JOB, ["/home/ada/slurm-17.out"]),
        (replace(JOB, stdout="/o/%j-%x.out"), ["/o/17-train.out"]),
        (
            replace(JOB, stdout="logs/%x.out", stderr="%N.err"),
            ["/home/ada/logs/train.out", "/home/ada/node07.err"],
        ),
        (replace(JOB, stderr="e-%j"), ["/home/ada/slurm-17.out", "/home/ada/e-17"]),
        (
            replace(
                JOB, job_id="17_4", raw_job_id="23", stdout="/data/slurm-23.out", stderr="/data/slurm-23.out"
            ),
            ["/data/slurm-17_4.out"],  # 22.05's squeue prints a path that no slurmd writes
        ),
        (replace(JOB, job_id="17_4", raw_job_id="23"), ["/home/ada/slurm-17_4.out"]),
        (replace(JOB, job_id="17_4", raw_job_id="23", stdout="%A-%a-%j"), ["/home/ada/17-4-23"]),
        (replace(JOB, job_id="17+1", raw_job_id="18", stdout="%j"), ["/home/ada/18"]),
        (replace(JOB, stdout="/dev/null", stderr="/dev/null"), []),
        (replace(JOB, stdout="/dev/null", stderr="e"), ["/home/ada/e"]),
    ],
)
def test_both_streams_are_found_and_a_common_file_is_listed_once(job: Job, paths: list[str]) -> None:
    assert [str(path) for path in output_paths(job) or ()] == paths


@pytest.mark.parametrize(
    "job",
    [
        replace(JOB, nodes=None, stdout="%N"),
        replace(JOB, job_id="17_[1-3]"),
        replace(JOB, work_dir=None),
    ],
    ids=["not started", "tasks that wait", "no directory"],
)
def test_an_output_path_with_unknown_parts_is_none(job: Job) -> None:
    assert output_paths(job) is None
