from __future__ import annotations

import pytest

from coach.analysis.jobs.named_run import first_of_group, named_run, run_or_job, runs_of_array
from coach.model.errors import UserError
from coach.model.training.run import Run
from coach.sources.runs.run_files import parse_run


def run(name: str, job_id: str | None = None, group: str | None = None, index: int = 0) -> Run:
    sweep = {"group_id": group, "parameter": "lr", "value": 1, "index": index, "size": 9}
    said = {"run_id": name, "backend": "slurm", "job_id": job_id, "sweep": sweep if group else None}
    return parse_run(said, f"/runs/{name}")


OLD, NEW = "20261121-090000-ddp-0001", "20261122-090000-ddp-0002"


def test_a_run_is_named_by_its_id_its_directory_its_short_name_or_its_job() -> None:
    known = run(NEW, "17"), run(OLD, "17")
    for text in (NEW, f"/runs/{NEW}", "ddp-0002", "17"):
        assert run_or_job(text, known) == known[0]
    assert named_run("17", known) is None
    assert [run_or_job(text, known) for text in ("", "ddp", "1", "/runs")] == [None] * 4


def test_a_short_name_of_two_runs_is_refused_with_both_ids() -> None:
    again = NEW.replace("0002", "0001")
    with pytest.raises(UserError, match="2 runs have this short name") as caught:
        named_run("ddp-0001", (run(again), run(OLD)))
    assert caught.value.hint == f"which one: {again} or {OLD}?"


def test_an_array_s_number_means_the_runs_of_the_newest_group_in_their_order() -> None:
    old = run(OLD, "17_0", OLD)
    new = [run(NEW[:-1] + str(index), f"17_{index}", NEW, index) for index in range(3)]
    known = (new[2], new[0], new[1], old, run("20261120-090000-ddp-0009", "170_0", "g"))
    assert runs_of_array("17", known) == tuple(new)
    assert first_of_group("17", known) == new[0]
    assert runs_of_array("17_0", known) == ()
