"""A failed job appends its cause to its own comment; these are the text, and the cases without a call to
Slurm."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from coach import runs
from coach.node import judge

RUN = "20261121-142233-train-4f2a"
SQUEUE = '#!/bin/sh\necho "squeue $*" >> "$ASKED"\ncat "$COMMENT"\n'
SCONTROL = '#!/bin/sh\necho "scontrol $*" >> "$ASKED"\n'
READ = "squeue --noheader --jobs 17 --format %k"


class Job:
    """A failed run, and Slurm clients that record their calls."""

    def __init__(self, folder: Path) -> None:
        self.paths = runs.RunPaths(folder / RUN)
        self.paths.run_dir.mkdir()
        self.asked = folder / "asked"
        self.before = folder / "comment"
        for name, text in (("squeue", SQUEUE), ("scontrol", SCONTROL)):
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        self.env = {
            "PATH": f"{folder}:{os.environ['PATH']}",
            "ASKED": str(self.asked),
            "COMMENT": str(self.before),
            "SLURM_JOB_ID": "17",
        }
        self.write({"backend": "slurm", "squeue_comment": True}, "FAILED", "MEM001")

    def write(self, run: Mapping[str, object], state: str | None, rule: object) -> None:
        runs.write_json(self.paths.run_json, dict(run))
        runs.write_json(self.paths.exit_json, {"state": state})
        runs.write_json(self.paths.verdict_json, {"findings": [{"rule": rule}] if rule else []})

    def appends(self, before: str = "(null)\n") -> list[str]:
        """The calls to Slurm."""
        self.before.write_text(before)
        judge.append_comment(self.paths, self.env)
        return self.asked.read_text().splitlines() if self.asked.exists() else []


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("(null)\n", f"coach {RUN} MEM001"),
        ("\n", f"coach {RUN} MEM001"),
        ("for $(id) 'Ada'\n", f"for $(id) 'Ada'; coach {RUN} MEM001"),
    ],
)
def test_the_finding_is_appended_to_the_existing_comment(job: Job, before: str, after: str) -> None:
    assert job.appends(before) == [READ, f"scontrol update JobId=17 Comment={after}"]


def test_an_array_s_task_changes_its_own_comment_alone(job: Job) -> None:
    job.env |= {"SLURM_ARRAY_JOB_ID": "17", "SLURM_ARRAY_TASK_ID": "3"}
    read = READ.replace("17", "17_3")
    assert job.appends() == [read, f"scontrol update JobId=17_3 Comment=coach {RUN} MEM001"]


@pytest.mark.parametrize("before", [f"for Ada; coach {RUN} MEM001\n", "two\nlines\n", "x" * 1020 + "\n"])
def test_a_comment_that_is_full_or_already_has_the_finding_stays_unchanged(job: Job, before: str) -> None:
    assert job.appends(before) == [READ]


@pytest.mark.parametrize(
    ("run", "state", "rule"),
    [
        ({"backend": "slurm"}, "FAILED", "MEM001"),
        ({"backend": "local", "squeue_comment": True}, "FAILED", "MEM001"),
        ({"backend": "slurm", "squeue_comment": True}, "COMPLETED", "MEM001"),
        ({"backend": "slurm", "squeue_comment": True}, "CANCELLED", "MEM001"),
        ({"backend": "slurm", "squeue_comment": True}, None, "MEM001"),
        ({"backend": "slurm", "squeue_comment": True}, "FAILED", None),
        ({"backend": "slurm", "squeue_comment": True}, "FAILED", "x Comment=y"),
    ],
    ids=["not asked", "local", "healthy", "cancelled", "no end", "open drill", "damaged"],
)
def test_slurm_is_not_asked_without_a_reason(
    job: Job, run: Mapping[str, object], state: str | None, rule: object
) -> None:
    job.write(run, state, rule)
    assert job.appends() == []


def test_a_missing_answer_or_verdict_leaves_the_comment_unchanged(job: Job) -> None:
    assert not judge.append_comment(job.paths, {**job.env, "SLURM_JOB_ID": "17; id"})
    job.before.unlink(missing_ok=True)
    assert not judge.append_comment(job.paths, job.env)
    job.paths.verdict_json.unlink()
    assert not judge.append_comment(job.paths, job.env)
