"""The news from one snapshot of the watched jobs to the next, and the end of the last one."""

from __future__ import annotations

from dataclasses import replace

from coach.analysis.jobs.watched_jobs import GONE_S, News, WatchedJobs, active_names
from coach.model.judging.finding import Diagnosis, Finding, Severity, Subject
from coach.model.slurm.cluster import Job
from coach.model.snapshot import Snapshot, SourceStatus, TargetSnapshot
from coach.model.training.run import Run, RunExit
from coach.sources.runs.run_files import parse_run
from tests.analysis.made_jobs import job

QUEUE = {"jobs": SourceStatus("jobs", 1000.0, None, None, 0, 0.1)}
RUN_ID = "20261121-142233-ddp-4f2a"


def picture(*jobs: Job, now_s: float = 1000.0, runs: tuple[Run, ...] = (), **more: object) -> Snapshot:
    return replace(Snapshot(now_s, jobs=jobs, runs=runs, sources=QUEUE), **more)


def run(state: str | None, job_id: str = "17") -> Run:
    return replace(parse_run({"job_id": job_id, "backend": "slurm"}, f"/runs/{RUN_ID}"), state=state)


def finding(rule: str, severity: Severity) -> Finding:
    return Finding(rule, "x", "x", severity, 0.9, True, None, Subject(), f"said by {rule}", (), (), None)


def words(news: list[News]) -> list[tuple[str, str, bool]]:
    return [(each.name, each.words, each.has_ended) for each in news]


def test_each_change_of_a_state_is_reported_once() -> None:
    watched = WatchedJobs(["17"])
    waiting, running = job(reason="Priority"), job(state="RUNNING", nodes="n[1-2]")
    assert words(watched.news(picture(waiting))) == [("17", "PENDING (Priority)", False)]
    assert watched.news(picture(waiting)) == []
    assert words(watched.news(picture(running))) == [("17", "RUNNING on n[1-2]", False)]
    assert (watched.is_done, watched.num_left) == (False, 1)
    assert words(watched.news(picture(job(state="FAILED")))) == [("17", "FAILED", True)]
    assert watched.is_done


def test_a_run_is_announced_by_its_own_state_with_the_words_of_its_row() -> None:
    watched = WatchedJobs([RUN_ID])
    row = job(state="RUNNING", nodes="n1")
    assert words(watched.news(picture(row, runs=(run("RUNNING"),)))) == [(RUN_ID, "RUNNING on n1", False)]
    assert words(watched.news(picture(row, runs=(run("TIMEOUT"),)))) == [(RUN_ID, "TIMEOUT", True)]


def test_an_array_has_ended_with_its_last_task() -> None:
    watched = WatchedJobs(["17"])
    first, rest = job("17_1", "FAILED"), job("17_[2-3]")
    assert words(watched.news(picture(first, rest))) == [
        ("17_1", "FAILED", True),
        ("17_[2-3]", "PENDING", False),
    ]
    assert not watched.is_done
    watched.news(picture(first, job("17_2", "COMPLETED"), job("17_3", "COMPLETED")))
    assert watched.is_done


def test_a_job_that_was_requeued_is_waited_for_again() -> None:
    watched = WatchedJobs(["17", "18"])
    watched.news(picture(job("17", "PREEMPTED"), job("18", "RUNNING")))
    assert watched.num_left == 1
    assert words(watched.news(picture(job("17"), job("18", "RUNNING")))) == [("17", "PENDING", False)]
    assert watched.num_left == 2


def test_a_job_that_slurm_forgot_is_not_waited_for_while_slurm_answers() -> None:
    watched = WatchedJobs([RUN_ID])
    failed = {"jobs": replace(QUEUE["jobs"], error="no answer")}
    lost = (run(None),)
    assert watched.news(picture(runs=lost)) == []
    assert watched.news(picture(now_s=1001.0 + GONE_S, runs=lost, sources=failed)) == []
    assert words(watched.news(picture(now_s=1000.0 + GONE_S, runs=lost))) == [
        (RUN_ID, "Slurm does not know it any more", True)
    ]
    assert watched.is_done


def test_findings_above_info_are_announced_while_a_job_runs_and_again_when_they_come_back() -> None:
    watched = WatchedJobs(["17"])
    row = job(state="RUNNING")
    slow, info = finding("GPU001", Severity.WARNING), finding("JOB006", Severity.INFO)
    judged = {"17": Diagnosis("17", "RUNNING", (slow, info), ())}
    watched.news(picture(row))
    assert words(watched.news(picture(row, diagnoses=judged))) == [
        ("17", "warning GPU001: said by GPU001", False)
    ]
    assert watched.news(picture(row, diagnoses=judged)) == []
    assert watched.news(picture(row)) == []
    assert len(watched.news(picture(row, diagnoses=judged))) == 1
    ending = TargetSnapshot("17", 1000.0, exit=RunExit("FAILED", 1, None, None, ()))
    watched.news(picture(row))
    assert watched.news(picture(row, diagnoses=judged, targets={"17": ending})) == []


def test_the_active_list_holds_the_user_s_runs_and_other_jobs_with_each_array_once() -> None:
    jobs = [job("17", "RUNNING"), job("18"), job("19_1"), job("19_[2-9]"), job("20", "FAILED")]
    jobs.append(job("21", "RUNNING", user="eve"))
    runs = (run("RUNNING"), replace(run("COMPLETED", "20"), run_id="20261121-142233-ddp-0000"))
    assert active_names(picture(*jobs, runs=runs), "ada") == (RUN_ID, "18", "19")
