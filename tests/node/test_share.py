"""The summary that a run shares with its cohort: its content, its updates, and its safety against other
users."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from coach import runs
from coach.node import share
from tests.node.conftest import Start
from tests.waiting import wait_until

RUN_ID = "20261121-142233-ddp-4f2a"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory like /tmp."""
    place = tmp_path / "cohort"
    place.mkdir()
    place.chmod(0o1777)
    return place


def a_run(tmp_path: Path, place: Path, **record: Any) -> runs.RunPaths:
    paths = runs.create_run_dir(tmp_path / "runs", RUN_ID)
    paths.metrics_dir.mkdir()
    known = {"schema": 1, "run_id": RUN_ID, "user": "ada", "recipe": "ddp", "state": "RUNNING"}
    runs.write_json(paths.run_json, {**known, "launch": {"share": str(place)}, **record})
    return paths


def shared(place: Path) -> dict[str, Any]:
    [file] = list(place.iterdir())
    assert file.name == f"{os.geteuid()}-{RUN_ID}.json"
    assert file.stat().st_mode & 0o777 == 0o644
    assert file.stat().st_size < runs.MAX_SUMMARY_BYTES
    return dict(json.loads(file.read_bytes()))


def test_a_summary_says_how_the_run_stands_and_nothing_else_of_it(tmp_path: Path, place: Path) -> None:
    paths = a_run(
        tmp_path, place, created_time_s=10.0, started_time_s=12.0, parameters={"max_steps": 9, "secret": 1}
    )
    timed = {"num_samples_global": 64, "step_time_s": 0.5}
    steps: list[dict[str, float]] = [{"step": n, **timed, "time_s": 20.0 + n / 2} for n in range(5)]
    steps.append(
        {"step": 5, "num_samples_global": 64, "step_time_s": 9.0, "time_s": 31.0}
    )  # a checkpoint in it
    paths.metrics_of(0).write_bytes(b"".join(map(runs.encode_record, steps)))
    assert share.share(paths) is None
    told = shared(place)
    assert told.pop("updated_time_s") > 0
    assert told == {
        "schema": 1,
        "user": "ada",
        "run_id": RUN_ID,
        "recipe": "ddp",
        "drill": None,
        "state": "RUNNING",
        "job_id": None,
        "samples_per_s": 128.0,
        "step": 5,
        "max_steps": 9,
        "step_gap_s": 9.0,
        "last_step_time_s": 31.0,
        "is_solved": None,
        "is_spoiled": False,
        "created_time_s": 10.0,
        "started_time_s": 12.0,
        "ended_time_s": None,
        "is_judged": False,
        "finding": None,
    }
    assert paths.run_dir.stat().st_mode & 0o777 == 0o700


LADDER = {
    "name": "demos",
    "is_for_gpus": True,
    "rungs": [
        {"name": "baseline", "ratio": None, "samples_per_s": [1000, 1200], "why_not": None},
        {"name": "ddp", "ratio": [6, 7], "samples_per_s": None, "why_not": None},
    ],
}


def rung(tmp_path: Path, place: Path, ladder: Any, gpus: int = 1, value: str = "ddp") -> Any:
    point = {"group_id": "g-1", "parameter": "rung", "value": value}
    run = a_run(tmp_path, place, ladder=ladder, sweep=point, resources={"gpus_per_node": gpus})
    assert share.share(run) is None
    told = shared(place).get("ladder")
    shutil.rmtree(run.run_dir)
    return told


def test_a_ladders_run_names_its_rung_and_only_a_figure_that_it_can_test(tmp_path: Path, place: Path) -> None:
    at = {"name": "demos", "group_id": "g-1", "rung": 1}
    assert rung(tmp_path, place, LADDER) == {**at, "ratio": 6, "samples_per_s": None}
    assert rung(tmp_path, place, LADDER, value="baseline") == {
        **at,
        "rung": 0,
        "ratio": None,
        "samples_per_s": 1000,
    }
    assert rung(tmp_path, place, LADDER, gpus=0) == {**at, "ratio": None, "samples_per_s": None}
    assert rung(tmp_path, place, {**LADDER, "is_for_gpus": False}, gpus=0) == {
        **at,
        "ratio": 6,
        "samples_per_s": None,
    }
    fewer = [LADDER["rungs"][0], {**LADDER["rungs"][1], "why_not": "too few GPUs"}]  # type: ignore[index]
    assert rung(tmp_path, place, {**LADDER, "rungs": fewer})["ratio"] is None


@pytest.mark.parametrize("ladder", [None, [], "x", {}, {"name": 1, "rungs": [1]}, {**LADDER, "rungs": []}])
def test_a_run_whose_ladder_cannot_be_read_is_shared_without_it(
    tmp_path: Path, place: Path, ladder: Any
) -> None:
    assert rung(tmp_path, place, ladder) is None


def test_the_wait_of_a_requeued_run_is_no_gap_between_its_steps(tmp_path: Path) -> None:
    first = [{"event": "start", "time_s": 1000.0}, *({"step": n, "time_s": 1000.0 + n} for n in range(9))]
    again = [{"event": "start", "time_s": 9000.0}, *({"step": n, "time_s": 9000.0 + n} for n in (6, 7, 8))]
    metrics = tmp_path / "rank-0.jsonl"
    metrics.write_bytes(b"".join(map(runs.encode_record, [*first, *again])))
    assert share.last_steps(metrics) == share.LastSteps(None, 8, 9008.0, 6.0)
    metrics.write_bytes(b"".join(map(runs.encode_record, [*first, again[0]])))
    assert share.last_steps(metrics) == share.LastSteps(None, 8, 9000.0, None)


def test_a_shared_finding_stays_when_the_job_shares_its_state_later(tmp_path: Path, place: Path) -> None:
    paths = a_run(tmp_path, place)
    finding = {"code": "NUM001", "severity": "critical"}
    share.share(paths, finding)
    runs.update_json(paths.run_json, {"state": "FAILED"})
    share.share(paths)
    told = shared(place)
    assert (told["state"], told["finding"], told["is_judged"]) == ("FAILED", finding, True)
    share.share(paths, {})
    told = shared(place)
    assert (told["finding"], told["is_judged"]) == (None, True)


def test_a_shared_drill_hides_its_cause_from_other_learners(tmp_path: Path, place: Path) -> None:
    paths = a_run(tmp_path, place, recipe="typo", drill="typo")
    finding = {"code": "NUM001", "severity": "critical"}
    share.share(paths, finding)
    told = shared(place)
    assert (told["recipe"], told["drill"], told["finding"], told["is_solved"]) == (None, "typo", None, None)
    runs.write_json(paths.drill_answer_json, {"schema": 1, "answer": "hang", "is_right": False})
    share.share(paths, finding)
    assert (shared(place)["finding"], shared(place)["is_solved"]) == (None, None)
    killed = {"schema": 1, "answer": "hang", "is_right": False, "spoiled": "it ended with MEM007"}
    runs.write_json(paths.drill_answer_json, killed)
    share.share(paths, finding)
    told = shared(place)
    assert (told["finding"], told["is_solved"], told["is_spoiled"]) == (None, None, True)
    runs.write_json(paths.drill_answer_json, {"schema": 1, "answer": "nan_loss", "is_right": True})
    share.share(paths, finding)
    told = shared(place)
    assert told["is_spoiled"] is False
    assert (told["finding"], told["is_judged"], told["is_solved"]) == (None, False, True)


def test_a_link_that_lies_in_wait_is_replaced_and_never_followed(tmp_path: Path, place: Path) -> None:
    paths, victim = a_run(tmp_path, place), tmp_path / "victim"
    victim.write_text('{"finding": {"code": "NUM001", "severity": "critical"}, "is_judged": true}')
    (place / f"{os.geteuid()}-{RUN_ID}.json").symlink_to(victim)
    share.share(paths)
    assert shared(place)["finding"] is None
    assert "NUM001" in victim.read_text()


def test_where_others_could_replace_a_summary_nothing_is_shared(tmp_path: Path, place: Path) -> None:
    paths = a_run(tmp_path, place)
    place.chmod(0o777)
    assert "could replace" in (share.share(paths) or "")
    place.chmod(0o1777)
    other = tmp_path / "other"
    place.rename(other)
    place.symlink_to(other)
    assert str(place) in (share.share(paths) or "")
    assert list(other.iterdir()) == []
    place.unlink()
    assert "No such file" in (share.share_in_time(paths) or "")


def test_a_run_of_an_earlier_course_does_not_come_back(tmp_path: Path, place: Path) -> None:
    paths = a_run(tmp_path, place, created_time_s=10.0)
    (place / share.BEGINS).touch()
    assert share.share(paths, {}) is None
    assert [file.name for file in place.iterdir()] == [share.BEGINS]
    os.utime(place / share.BEGINS, (5, 5))
    assert share.share(paths, {}) is None
    assert len([*place.iterdir()]) == 2


def test_a_copy_of_a_run_shares_nothing(tmp_path: Path, place: Path) -> None:
    paths = a_run(tmp_path, place)
    copy = tmp_path / "copy"
    shutil.copytree(paths.run_dir, copy)
    assert share.share(runs.RunPaths(copy)) is None
    assert list(place.iterdir()) == []


def test_names_of_any_length_and_kind_make_no_large_file(tmp_path: Path, place: Path) -> None:
    paths = a_run(tmp_path, place, recipe="\U0001f469" * 900, user="\x1b[31m" * 900, state="\0" * 900)
    assert share.share(paths) is None
    assert len(shared(place)["recipe"]) < 100


def test_a_run_of_ones_own_command_is_seen_from_its_start_to_its_end(
    start: Start, tmp_path: Path, place: Path
) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    wait = ("sh", "-c", f"read line < {go}")
    supervisor = start("run", "--recipe", "mine", "--share", str(place), "--", *wait)

    def told() -> dict[str, Any]:
        files = [file for file in place.iterdir() if not file.name.startswith(".")]
        return json.loads(files[0].read_bytes()) if files else {}

    wait_until(lambda: told().get("state") == "RUNNING", what="its start")
    with open(go, "w") as pipe:
        pipe.write("\n")
    supervisor.wait(timeout=60)
    assert (told()["state"], told()["recipe"]) == ("COMPLETED", "mine")
    assert told()["ended_time_s"] >= told()["started_time_s"]
    assert len([file for file in place.iterdir() if not file.name.startswith(".")]) == 1


def test_the_lock_of_a_killed_sampler_does_not_keep_the_end_from_the_cohort(
    tmp_path: Path, place: Path
) -> None:
    paths = a_run(tmp_path, place, state="COMPLETED")
    lock = paths.run_dir / ".share.lock"
    lock.touch()
    os.utime(lock, (1, 1))
    assert share.share_in_time(paths) is None
    assert shared(place)["state"] == "COMPLETED"
