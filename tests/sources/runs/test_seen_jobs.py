from __future__ import annotations

from pathlib import Path

import pytest

from coach.sources.runs import seen_jobs
from coach.sources.runs.seen_jobs import FILE_NAME, SeenJobs
from tests.analysis.made_jobs import job


def test_a_job_that_slurm_has_forgotten_is_still_known_with_its_script_and_directories(
    tmp_path: Path,
) -> None:
    seen = SeenJobs(tmp_path / "cache")
    waiting = job(
        command="/home/ada/train.sh", work_dir="/home/ada", stdout="/home/ada/%j.out", start_time_s=2000.0
    )
    seen.remember([waiting], "ada", 1000.0)
    ended = job(
        state="FAILED",
        command="/home/ada/train.sh",
        work_dir="/home/ada",
        start_time_s=1010.0,
        end_time_s=1070.0,
    )
    seen.remember([ended], "ada", 1080.0)
    (past,), num_bad = SeenJobs(tmp_path / "cache").read()
    assert num_bad == 0
    assert (past.job.state, past.job.command, past.job.work_dir) == (
        "FAILED",
        "/home/ada/train.sh",
        "/home/ada",
    )
    assert (past.job.time_used_s, past.last_seen_s, past.source) == (60, 1080.0, "seen")


def test_a_queue_that_does_not_change_writes_nothing(tmp_path: Path) -> None:
    seen = SeenJobs(tmp_path)
    assert seen.remember([job(state="RUNNING", start_time_s=1.0)], "ada", 1000.0) == 1
    assert seen.remember([job(state="RUNNING", start_time_s=1.0, time_used_s=60)], "ada", 1060.0) == 0
    assert SeenJobs(tmp_path).remember([job(state="RUNNING", start_time_s=1.0)], "ada", 1070.0) == 0
    assert len((tmp_path / FILE_NAME).read_text().splitlines()) == 1


def test_other_users_jobs_are_not_kept_and_other_users_cannot_read_the_file(tmp_path: Path) -> None:
    seen = SeenJobs(tmp_path)
    assert seen.remember([job(user="bob")], "ada", 1000.0) == 0
    seen.remember([job()], "ada", 1000.0)
    assert (tmp_path / FILE_NAME).stat().st_mode & 0o777 == 0o600


def test_the_forecast_of_a_pending_job_is_not_kept_as_its_start(tmp_path: Path) -> None:
    SeenJobs(tmp_path).remember([job(start_time_s=5000.0)], "ada", 1000.0)
    ((past,), _) = SeenJobs(tmp_path).read()
    assert past.job.start_time_s is None


def test_the_script_stays_known_when_a_later_look_does_not_tell_it(tmp_path: Path) -> None:
    seen = SeenJobs(tmp_path)
    seen.remember([job(state="PENDING", command="/x/train.sh")], "ada", 1000.0)
    assert seen.remember([job(state="PENDING")], "ada", 1010.0) == 0
    seen.remember([job(state="RUNNING", start_time_s=1020.0)], "ada", 1020.0)
    ((past,), _) = SeenJobs(tmp_path).read()
    assert (past.job.state, past.job.command) == ("RUNNING", "/x/train.sh")


def test_a_torn_line_costs_that_line_and_a_hostile_name_nothing(tmp_path: Path) -> None:
    seen = SeenJobs(tmp_path)
    seen.remember([job("17", name="new\nline \x1b[31m caf\udce9 " + "x" * 9000)], "ada", 1000.0)
    with open(tmp_path / FILE_NAME, "ab") as file:
        file.write(b'{"job_id": "18", "sta')
    seen.remember([job("19")], "ada", 1010.0)
    with open(tmp_path / FILE_NAME, "ab") as file:
        file.write(b'[1, 2]\n{"state": "RUNNING"}\n')
    found, num_bad = SeenJobs(tmp_path).read()
    assert {past.job.job_id for past in found} == {"17", "19"}
    assert num_bad == 3
    assert next(past for past in found if past.job.job_id == "17").job.name.startswith(
        "new\nline \x1b[31m caf\udce9"
    )


def test_the_same_number_submitted_again_is_another_job(tmp_path: Path) -> None:
    SeenJobs(tmp_path).remember([job(state="FAILED", submit_time_s=100.0)], "ada", 1000.0)
    SeenJobs(tmp_path).remember([job(submit_time_s=9000.0)], "ada", 9001.0)
    found, _ = SeenJobs(tmp_path).read()
    assert [past.job.state for past in found] == ["PENDING", "FAILED"]


def test_the_file_stays_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen_jobs, "MAX_JOBS", 20)
    monkeypatch.setattr(seen_jobs, "_MAX_FILE_BYTES", 40_000)
    seen = SeenJobs(tmp_path)
    for number in range(300):
        seen.remember([job(str(number))], "ada", 1000.0 + number)
    assert (tmp_path / FILE_NAME).stat().st_size <= 40_000
    found, _ = seen.read()
    assert [past.job.job_id for past in found[:2]] == ["299", "298"]
    assert len(found) == 20


def test_only_the_newest_jobs_of_a_very_long_queue_are_written_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seen_jobs, "MAX_JOBS", 20)
    waiting = [job(str(number), submit_time_s=float(number)) for number in range(100, 400)]
    started = [job(str(number), state="RUNNING", start_time_s=2.0, submit_time_s=1.0) for number in (1, 2)]
    queue = [*waiting, *started]
    assert SeenJobs(tmp_path).remember(queue, "ada", 1000.0) == 20
    assert SeenJobs(tmp_path).remember(queue, "ada", 1010.0) == 0
    found, _ = SeenJobs(tmp_path).read()
    assert {past.job.job_id for past in found} == {"1", "2", *map(str, range(382, 400))}
    ended = [job("1", state="FAILED", start_time_s=2.0, end_time_s=3.0, submit_time_s=1.0)]
    assert SeenJobs(tmp_path).remember([*waiting, *ended], "ada", 1020.0) == 2
    assert SeenJobs(tmp_path).read()[0][0].job.state == "FAILED"
