"""Slurm's measurements of running jobs come from one question for all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from coach.model.errors import UserError
from coach.workflows.watching.step_use import read_step_use
from tests.sources.scripted_io import ScriptedIo, captured


def test_all_running_jobs_are_asked_about_by_one_sstat(tmp_path: Path) -> None:
    queue = captured("cluster-own-jobs-22.05.txt")
    io = ScriptedIo({"jobs": queue, "steps": b"7.batch|1|10M|\n7.0|2|64M|\n8.0|1|1G|\n"})
    uses = read_step_use(io, "ada")
    assert {job_id: [step.max_rss_mib for step in steps] for job_id, steps in uses.items()} == {
        "7": [10.0, 64.0],
        "8": [1024.0],
    }
    assert io.asked == ["jobs", "steps"]


def test_a_site_that_measures_no_steps_says_so_in_its_own_words() -> None:
    io = ScriptedIo(
        {"jobs": captured("cluster-own-jobs-22.05.txt"), "steps": (1, "sstat: error: not here\n")}
    )
    with pytest.raises(UserError, match="not here"):
        read_step_use(io, "ada")
    assert read_step_use(ScriptedIo({"jobs": b""}), "ada") == {}
