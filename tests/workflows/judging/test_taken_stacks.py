"""Stacks that were taken of a job before its time limit, told afterwards beside the finding."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from coach.config import Settings
from coach.lookback.history import History
from coach.model.judging.finding import Diagnosis, Finding, Fix, Severity, Subject
from coach.model.snapshot import TargetSnapshot
from coach.model.training.flight import FlightRecord
from coach.model.training.metrics import Step
from coach.workflows.judging.taken_stacks import with_places, with_stacks
from tests.analysis.made_jobs import job

TIME_LIMIT = Finding(
    *("JOB002", "time-limit", "slurm_timeout", Severity.WARNING, 0.98, True, None),
    *(Subject(), "The job reached its time limit", (), (), 900.0),
)


def told(
    tmp_path: Path, cause: str = "slurm_timeout", taken_s: float = 500.0, state: str = "TIMEOUT"
) -> list[str]:
    """The evidence of a job of 400 to 900 s, of which stacks were taken twice."""
    for name, first, at_s in (
        ("20261126-182922", "rank 1 is in a.py", 450.0),
        ("20261126-183237", "all wait", taken_s),
    ):
        folder = tmp_path / "cache" / "stacks" / "17" / name
        folder.mkdir(parents=True)
        (folder / "summary.txt").write_text(f"{first}\nrank 0 …\n", encoding="utf-8")
        os.utime(folder / "summary.txt", (at_s, at_s))
    settings = Settings(tmp_path / "runs", tmp_path / "cache", tmp_path / "config")
    ended = job("17", state, start_time_s=400.0, end_time_s=900.0)
    diagnosis = Diagnosis("17", state, (replace(TIME_LIMIT, cause=cause),), ())
    found = with_stacks(diagnosis, TargetSnapshot("17", 900.0, job=ended), settings)
    return [item.text for item in found.findings[0].evidence]


def test_the_newest_stacks_say_where_the_ranks_stood_before_the_time_limit(tmp_path: Path) -> None:
    assert told(tmp_path) == ["stacks taken 7 min before its end: all wait"]


@pytest.mark.parametrize("more", [{"taken_s": 300.0}, {"cause": "hang"}, {"state": "RUNNING"}])
def test_stacks_of_another_job_or_another_end_are_not_told(
    tmp_path: Path, more: dict[str, float | str]
) -> None:
    assert told(tmp_path, **more) == []  # type: ignore[arg-type]  # one kind of value each


STACKS = "ranks 0-1 wait in barrier; rank 2 is in a.py\nnot where the others are: rank 2 (node2 pid 9214)\n"
HANG = Finding(
    *("DST007", "hang", "hang", Severity.INFO, 0.5, True, None),
    *(Subject(), "The log has been silent for 20 min", ()),
    (Fix("See where each process stands", command="coach stacks 17"), Fix("Start the tasks with srun")),
    500.0,
)


def of_a_hang(tmp_path: Path, summary: str, taken_s: float) -> Finding:
    """The finding of a job that was not launched by coach, is silent since 500 s and was looked at."""
    path = tmp_path / "cache" / "stacks" / "17" / "20261126-220936" / "summary.txt"
    path.parent.mkdir(parents=True)
    path.write_text(summary, encoding="utf-8")
    os.utime(path, (taken_s, taken_s))
    settings = Settings(tmp_path / "runs", tmp_path / "cache", tmp_path / "config")
    runs = job("17", "RUNNING", start_time_s=400.0, end_time_s=9000.0)
    found = with_stacks(
        Diagnosis("17", "RUNNING", (HANG,), ()), TargetSnapshot("17", 1700.0, job=runs), settings
    )
    return found.findings[0]


def test_stacks_in_which_ranks_wait_for_one_prove_a_hang_and_are_not_asked_for_again(tmp_path: Path) -> None:
    finding = of_a_hang(tmp_path, STACKS, 1400.0)
    assert (finding.severity, finding.doubt) == (Severity.WARNING, "likely")
    assert finding.summary.endswith("silent for 20 min: ranks 0-1 wait in barrier; rank 2 is in a.py")
    assert finding.evidence[0].text.startswith("stacks taken 5 min ago: ranks 0-1 wait in barrier")
    assert [fix.title for fix in finding.fixes] == [
        "See in the stacks what keeps rank 2: the others wait",
        "Start the tasks with srun",
    ]


def test_stacks_in_which_no_rank_stands_apart_are_evidence_and_no_proof(tmp_path: Path) -> None:
    finding = of_a_hang(tmp_path, "ranks 0-2 are in a.py\n", 1400.0)
    assert (finding.severity, finding.fixes) == (Severity.INFO, HANG.fixes)
    assert len(finding.evidence) == 1


def test_stacks_from_before_the_silence_say_nothing_about_it(tmp_path: Path) -> None:
    assert of_a_hang(tmp_path, STACKS, 450.0) == HANG


def test_a_job_without_stacks_keeps_its_diagnosis(tmp_path: Path) -> None:
    settings = Settings(tmp_path / "runs", tmp_path / "cache", tmp_path / "config")
    diagnosis = Diagnosis("17", "TIMEOUT", (TIME_LIMIT,), ())
    assert (
        with_stacks(diagnosis, TargetSnapshot("17", 900.0, job=job("17", "TIMEOUT")), settings) is diagnosis
    )


def test_the_ranks_of_a_job_with_dumps_have_the_places_of_the_stacks_that_were_taken_of_it(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "cache" / "stacks" / "17" / "20261126-220936"
    folder.mkdir(parents=True)
    (folder / "summary.txt").write_text(STACKS, encoding="utf-8")
    os.utime(folder / "summary.txt", (1400.0, 1400.0))
    waits = {
        "function": "barrier",
        "file": "/x/site-packages/torch/distributed/distributed_c10d.py",
        "line": 9,
    }
    loads = {"function": "load", "file": "/home/u/train.py", "line": 41}
    ranks = [
        {
            "pid": 200 + rank,
            "rank": rank,
            "rung": "py-spy",
            "threads": [{"is_main": True, "frames": [loads] if rank == 2 else [waits, loads]}],
        }
        for rank in range(3)
    ]
    (folder / "node1.json").write_text(json.dumps({"node": "node1", "ranks": ranks}), encoding="utf-8")
    settings = Settings(tmp_path / "runs", tmp_path / "cache", tmp_path / "config")
    runs = job("17", "RUNNING", start_time_s=400.0, end_time_s=9000.0)
    dump = FlightRecord(0, "0", (), (), "_dump_0")

    def places(last_step_s: float, flight: tuple[FlightRecord, ...] = (dump,)) -> list[tuple[int, str, bool]]:
        target = TargetSnapshot("17", 1700.0, job=runs, flight=flight)
        history = History()
        history.add_steps([Step(0, 9, last_step_s)])
        return [
            (each.rank, each.words, each.is_odd) for each in with_places(target, history, settings).places
        ]

    waiting = "waits in barrier, at train.py:41 load"
    assert places(1300.0) == [
        (0, waiting, False),
        (1, waiting, False),
        (2, "is in load, at train.py:41 load", True),
    ]
    assert places(1500.0) == []  # it has made a step since
    assert places(1300.0, ()) == []
