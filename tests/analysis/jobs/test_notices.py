"""The events of one's own jobs that are shown as a notice."""

from __future__ import annotations

from dataclasses import replace

from coach.analysis.jobs.notices import CAUSE_S, Notice, Notices, has_active_jobs
from coach.analysis.judging.ranking import ranked_of, worst
from coach.model.judging.finding import Diagnosis, Severity
from coach.model.snapshot import Snapshot, TargetSnapshot
from tests.analysis.jobs.test_watched_jobs import finding, picture
from tests.analysis.made_jobs import job

FAILED = Diagnosis("17", "FAILED", (finding("COD001", Severity.CRITICAL),), ())


def begun(*pictures: Snapshot) -> Notices:
    notices = Notices("ada")
    for each in pictures:
        notices.notices(each)
    return notices


def test_the_state_at_the_start_of_coach_is_not_news() -> None:
    notices = Notices("ada")
    opening = picture(job("17", "RUNNING"), job("18"), job("19", "FAILED"), job("20", "RUNNING", user="eve"))
    assert notices.notices(Snapshot(1000.0)) == []
    assert notices.notices(opening) == []
    assert notices.notices(opening) == []
    assert has_active_jobs(opening, "ada")
    assert not has_active_jobs(opening, "bob")


def test_a_start_makes_a_notice_and_waiting_does_not() -> None:
    notices = begun(picture())
    assert notices.notices(picture(job("18"))) == []
    assert notices.notices(picture(job("18", "RUNNING", nodes="n1"))) == [
        Notice("18", "RUNNING on n1", is_bad=False)
    ]


def test_a_failed_job_is_announced_with_its_cause_as_soon_as_that_is_known() -> None:
    notices = begun(picture(job("17", "RUNNING")))
    assert notices.notices(picture(job("17", "FAILED"))) == []
    assert notices.notices(picture(now_s=1002.0, diagnoses={"17": FAILED})) == [
        Notice("17", "FAILED: COD001 said by COD001", is_bad=True)
    ]
    assert notices.notices(picture(now_s=1003.0, diagnoses={"17": FAILED})) == []


def test_a_failed_job_without_a_cause_is_announced_too() -> None:
    notices = begun(picture(job("17", "RUNNING")), picture(job("17", "TIMEOUT")))
    assert notices.notices(picture(now_s=1000.0 + CAUSE_S)) == [Notice("17", "TIMEOUT", is_bad=True)]


def test_a_good_end_makes_one_notice() -> None:
    notices = begun(picture(job("17", "RUNNING")))
    assert notices.notices(picture(job("17", "COMPLETED"))) == [Notice("17", "COMPLETED", is_bad=False)]
    assert notices.notices(picture(job("17", "COMPLETED"))) == []


def test_a_finding_of_a_running_job_is_announced_once() -> None:
    notices = begun(picture(job("17", "RUNNING")))
    slow = {"17": Diagnosis("17", "RUNNING", (finding("GPU005", Severity.WARNING),), ())}
    told = notices.notices(picture(job("17", "RUNNING"), diagnoses=slow))
    assert told == [Notice("17", "warning GPU005: said by GPU005", is_bad=True)]
    assert notices.notices(picture(job("17", "RUNNING"), diagnoses=slow)) == []


def test_what_follows_from_a_finding_is_not_announced_beside_it() -> None:
    notices = begun(picture(job("17", "RUNNING")))
    follows = replace(finding("GPU005", Severity.CRITICAL), consequence_of="DST008")
    both = Diagnosis("17", "RUNNING", (finding("DST008", Severity.WARNING), follows), ())
    told = notices.notices(picture(job("17", "RUNNING"), diagnoses={"17": both}))
    assert told == [Notice("17", "warning DST008: said by DST008", is_bad=True)]
    found = {"17": ranked_of(both, TargetSnapshot("17", 1000.0, job=job("17", "RUNNING")))}
    gravest = worst(found, 1000.0)
    assert gravest is not None
    assert gravest.finding.rule == "DST008", "the header names the cause"


def test_many_events_at_once_make_one_notice() -> None:
    jobs = [job(str(number), "RUNNING") for number in range(17, 22)]
    notices = begun(picture(*jobs))
    ended = [job(str(number), "COMPLETED") for number in range(17, 22)]
    assert notices.notices(picture(*ended)) == [Notice(None, "5 of your jobs have news", is_bad=False)]


def test_a_job_that_came_and_went_between_two_snapshots_is_announced_and_an_older_one_is_not() -> None:
    notices = begun(picture())
    short = job("18", "COMPLETED", end_time_s=1001.0)
    old = job("12", "FAILED", end_time_s=900.0)
    assert notices.notices(picture(short, old, now_s=1002.0)) == [Notice("18", "COMPLETED", is_bad=False)]
    assert notices.notices(picture(now_s=1002.0 + CAUSE_S)) == []


def test_a_long_queue_is_gone_through_once() -> None:
    """A look at each name by itself would need 400 million looks."""
    jobs = tuple(job(str(number)) for number in range(20_000))
    notices = begun(picture(*jobs))
    running = tuple(job(str(number), "RUNNING") for number in range(20_000))
    assert notices.notices(picture(*running)) == [Notice(None, "20000 of your jobs have news", is_bad=False)]
