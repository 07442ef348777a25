from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest

from coach.lookback.history import History
from coach.model.judging.finding import Diagnosis
from coach.model.reading import (
    JobList,
    JobRow,
    LogChunk,
    LogFiles,
    MetricsChunk,
    NodeList,
    Payload,
    Reading,
    RunFacts,
    RunList,
    TelemetryChunk,
)
from coach.model.slurm.accounting import JobSummary
from coach.model.slurm.cluster import Job, Node
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import MARK, MAX_FIRST_HITS, LogFile, LogHit, LogTail
from coach.model.training.metrics import MetricEvent, Step
from coach.model.training.run import Run, RunExit
from coach.model.training.telemetry import SensorGap
from coach.monitor.kept_hits import MAX_BETWEEN_HITS, MAX_LAST_HITS
from coach.monitor.monitor import Monitor
from coach.monitor.target import MAX_EVENTS
from coach.sources.runs.run_files import parse_run

RUN_ID = "20261121-142233-ddp-4f2a"
JOB = Job("17", "ddp", "me", "RUNNING", None, "gpu", "node1", 1, 2, 1, 5, 5, 10, 900.0, 990.0, None)
RUN: Run = parse_run({"job_id": "17", "backend": "slurm", "created_time_s": 890.0}, f"/runs/{RUN_ID}")


class Judge:
    """Replaces the engine, and records its calls."""

    def __init__(self) -> None:
        self.asked: list[TargetSnapshot] = []

    def __call__(self, snapshot: TargetSnapshot, history: History) -> Diagnosis:
        self.asked.append(snapshot)
        return Diagnosis(snapshot.target, snapshot.state, (), ())


def reading(source: str, payload: Payload | None, time_s: float = 1000.0, **fields: object) -> Reading:
    return replace(Reading(source, time_s, 0.1, payload), **fields)


def facts(run: Run = RUN, exit_: RunExit | None = None) -> Reading:
    return reading("run", RunFacts(RUN_ID, run, exit_, ()), target=RUN_ID)


def steps(*numbers: int, **fields: object) -> Reading:
    made = tuple(Step(0, number, 900.0 + number) for number in numbers)
    return replace(reading("metrics", MetricsChunk(RUN_ID, made, ()), target=RUN_ID), **fields)


def watching(judge: Judge | None = None, sources: tuple[str, ...] = ()) -> Monitor:
    monitor = Monitor("me", judge)
    monitor.watch({RUN_ID: sources})
    return monitor


def test_own_jobs_come_first() -> None:
    monitor = Monitor("me", None)
    rows = (
        replace(JOB, job_id="1", user="you"),
        replace(JOB, job_id="2"),
        replace(JOB, job_id="3", user="you"),
    )
    monitor.apply(reading("jobs", JobList(rows, True)))
    assert [job.job_id for job in monitor.snapshot(1000.0).jobs] == ["2", "1", "3"]


def test_ones_own_jobs_are_not_taken_for_the_whole_queue() -> None:
    monitor = Monitor("me", None)
    monitor.apply(reading("jobs", JobList((), False)))
    assert not monitor.snapshot(1000.0).is_queue_whole
    assert monitor.apply(reading("jobs", JobList((), True)))
    assert monitor.snapshot(1001.0).is_queue_whole


@pytest.mark.parametrize(
    ("user", "state", "is_taken"),
    [("you", "RUNNING", True), ("me", "FAILED", True), ("me", "RUNNING", False)],
)
def test_the_row_of_an_unlisted_job_is_used_unless_it_predates_its_end(
    user: str, state: str, is_taken: bool
) -> None:
    monitor = Monitor("me", None)
    monitor.watch({"17": ()})
    row = replace(JOB, job_id="17", user=user, state=state)
    monitor.apply(reading("row", JobRow("17", row), target="17"))
    monitor.apply(reading("jobs", JobList((), False)))
    assert (monitor.target("17", 1000.0).job == row) is is_taken


def test_a_queue_that_has_not_changed_is_the_same_object() -> None:
    monitor = Monitor("me", None)
    monitor.apply(reading("jobs", JobList((JOB,), True)))
    first = monitor.snapshot(1000.0).jobs
    assert not monitor.apply(reading("jobs", JobList((replace(JOB),), True)))
    assert monitor.snapshot(1001.0).jobs is first


def test_a_job_and_its_run_directory_are_one_target() -> None:
    monitor = watching(Judge())
    monitor.apply(facts())
    monitor.apply(reading("jobs", JobList((JOB,), True)))
    target = monitor.snapshot(1000.0).targets[RUN_ID]
    assert (target.job, target.run, target.state, target.now_s) == (JOB, RUN, "RUNNING", 1000.0)


def test_the_list_of_runs_shows_the_queues_state() -> None:
    monitor = Monitor("me", None)
    monitor.apply(reading("runs", RunList((RUN,), ("torn",))))
    monitor.apply(reading("jobs", JobList((JOB,), True)))
    snapshot = monitor.snapshot(1000.0)
    assert [run.state for run in snapshot.runs] == ["RUNNING"]
    assert snapshot.run_problems == ("torn",)


def test_a_job_of_a_reinstalled_cluster_is_not_taken_for_the_run_of_the_same_number() -> None:
    monitor = watching(Judge())
    monitor.apply(facts(replace(RUN, created_time_s=50_000.0)))
    monitor.apply(reading("jobs", JobList((JOB,), True)))
    assert monitor.snapshot(60_000.0).targets[RUN_ID].job is None


def test_a_row_belongs_to_the_newest_of_the_runs_with_its_number() -> None:
    newer = replace(RUN, run_id="20261121-150000-ddp-0001", created_time_s=895.0)
    monitor = Monitor("me", None)
    monitor.apply(reading("runs", RunList((newer, RUN), ())))
    monitor.apply(reading("jobs", JobList((JOB,), True)))
    assert [run.state for run in monitor.snapshot(1000.0).runs] == ["RUNNING", None]


def test_a_failed_source_keeps_its_last_data_with_their_age_and_says_why() -> None:
    monitor = Monitor("me", None)
    monitor.apply(reading("nodes", NodeList((Node("n1", "idle", None, (), 1, 0, 1, 0, ()),)), 1000.0))
    assert monitor.apply(reading("nodes", None, 1010.0, error="Unable to contact slurm controller"))
    snapshot = monitor.snapshot(1020.0)
    status = snapshot.sources["nodes"]
    assert [node.name for node in snapshot.nodes] == ["n1"]
    assert (status.data_time_s, status.error_time_s) == (1000.0, 1010.0)
    assert status.error == "Unable to contact slurm controller"
    monitor.apply(reading("nodes", NodeList(()), 1030.0))
    assert monitor.snapshot(1030.0).sources["nodes"].error is None


def test_the_final_state_of_a_job_stays_after_slurm_forgot_it() -> None:
    monitor = watching(Judge())
    monitor.apply(facts())
    monitor.apply(reading("jobs", JobList((replace(JOB, state="TIMEOUT", end_time_s=950.0),), True)))
    monitor.apply(reading("jobs", JobList((), True)))
    target = monitor.snapshot(1000.0).targets[RUN_ID]
    assert (target.state, target.now_s) == ("TIMEOUT", 950.0)


def test_a_run_that_has_ended_is_not_running_while_the_queue_lags() -> None:
    monitor = watching(Judge())
    monitor.apply(facts(exit_=RunExit("COMPLETED", 0, 995.5, ())))
    monitor.apply(reading("jobs", JobList((replace(JOB, start_time_s=950.0),), True)))
    assert monitor.snapshot(1000.0).targets[RUN_ID].state == "COMPLETED"


@pytest.mark.parametrize(
    "row",
    [
        replace(JOB, state="PENDING", reason="BeginTime", submit_time_s=995.0, start_time_s=None),
        replace(JOB, state="RUNNING", start_time_s=998.0),
    ],
)
def test_a_requeued_job_goes_on_whatever_its_earlier_attempt_wrote_at_its_end(row: Job) -> None:
    ended = replace(RUN, state="CANCELLED", ended_time_s=995.5)
    monitor = watching(Judge())
    monitor.apply(facts(ended, RunExit("CANCELLED", 143, 995.5, ())))
    monitor.apply(reading("runs", RunList((ended,), ())))
    monitor.apply(reading("jobs", JobList((row,), True)))
    snapshot = monitor.snapshot(1000.0)
    assert (snapshot.targets[RUN_ID].state, snapshot.runs[0].state) == (row.state, row.state)
    assert not snapshot.targets[RUN_ID].has_ended


def test_a_running_job_that_vanished_is_not_running_any_more() -> None:
    monitor = watching(Judge())
    monitor.apply(facts())
    monitor.apply(reading("jobs", JobList((JOB,), True)))
    monitor.apply(steps(1, 2))
    monitor.apply(reading("jobs", JobList((), True)))
    target = monitor.snapshot(1000.0).targets[RUN_ID]
    assert (target.job, target.state, target.now_s) == (None, None, 902.0)


def test_the_clock_of_a_finished_run_stands_at_its_end_and_never_before_its_last_record() -> None:
    monitor = watching(Judge())
    monitor.apply(facts(replace(RUN, job_id=None), RunExit("FAILED", 1, 905.0, ())))
    assert monitor.snapshot(5000.0).targets[RUN_ID].now_s == 905.0
    monitor.apply(steps(9))
    assert monitor.snapshot(5000.0).targets[RUN_ID].now_s == 909.0


def test_a_record_from_the_far_future_does_not_move_the_clock() -> None:
    monitor = watching(Judge())
    monitor.apply(facts(replace(RUN, job_id=None), RunExit("FAILED", 1, 905.0, ())))
    monitor.apply(reading("metrics", MetricsChunk(RUN_ID, (Step(0, 1, 1e15),), ()), target=RUN_ID))
    assert monitor.snapshot(5000.0).targets[RUN_ID].now_s == 905.0


def test_a_log_alone_has_the_time_of_its_newest_stamp_or_none() -> None:
    monitor = watching(Judge())
    tail = LogTail("log", 1, ("x",), 1, 1)
    bare = LogHit("R", "s", "log", 1, "x", {})
    monitor.apply(reading("log", LogChunk(RUN_ID, (bare,), tail), target=RUN_ID))
    assert monitor.snapshot(1000.0).targets[RUN_ID].now_s is None
    monitor.apply(reading("log", LogChunk(RUN_ID, (replace(bare, time_s=77.0),), tail), target=RUN_ID))
    assert monitor.snapshot(1000.0).targets[RUN_ID].now_s == 77.0


def log_chunk(*hits: LogHit) -> Reading:
    tail = LogTail(hits[0].file, 1, ("x",), 9, 9)
    return reading("log", LogChunk(RUN_ID, hits, tail), target=RUN_ID)


def test_hits_above_the_last_two_runs_of_a_log_make_room_for_more() -> None:
    monitor = watching(Judge())
    monitor.apply(facts())
    old, new = (LogHit("MEM001", "oom", "log", line, "x", {}) for line in (3, 30))
    monitor.apply(log_chunk(old))
    assert monitor.target(RUN_ID, 1000.0).log_hits == (old,)
    begun = LogHit(MARK, "attempt", "log", 20, "coach: this is attempt 2 of job 17", {})
    monitor.apply(log_chunk(begun, new))
    assert monitor.target(RUN_ID, 1000.0).log_hits == (begun, new)
    elsewhere = replace(old, file="other.log")
    monitor.apply(log_chunk(elsewhere))
    assert monitor.target(RUN_ID, 1000.0).log_hits == (begun, new, elsewhere)


def test_two_attempts_in_one_reading_leave_the_steps_of_the_second_alone() -> None:
    """The files of an ended run are read in pieces of a mebibyte: thousands of steps."""
    monitor = watching(Judge())
    first = [Step(0, n, 100.0 + n / 10, loss=math.nan) for n in range(100)]
    second = [Step(0, n, 500.0 + n / 100, loss=2.0) for n in range(5000)]
    starts = [MetricEvent(0, "start", time_s, 0, {}) for time_s in (99.0, 499.0)]
    chunk = MetricsChunk(RUN_ID, (*first, *second), tuple(starts))
    monitor.apply(reading("metrics", chunk, target=RUN_ID))
    history = monitor.history(RUN_ID)
    assert (history.num_steps(0), history.first_not_finite(0)) == (5000, None)
    assert sum(point.num_steps for point in history.curve) == 5000
    assert monitor.target(RUN_ID, 1000.0).events == tuple(starts[1:])


def test_metrics_of_an_earlier_attempt_no_longer_count_once_the_next_has_started() -> None:
    monitor = watching(Judge())
    broken = [Step(rank, number, 900.0 + number, loss=math.nan) for rank in (0, 1) for number in (1, 2)]
    fine = [Step(0, number, 960.0 + number, loss=1.0) for number in (2, 3)]
    starts = [MetricEvent(rank, "start", 900.0, 0, {}) for rank in (0, 1)]
    evaluated = MetricEvent(0, "eval", 902.0, 2, {"loss": 9.0})
    monitor.apply(
        reading("metrics", MetricsChunk(RUN_ID, tuple(broken), (*starts, evaluated)), target=RUN_ID)
    )
    assert monitor.history(RUN_ID).first_not_finite(0) == broken[0]
    again = MetricEvent(0, "start", 960.0, 2, {})
    monitor.apply(reading("metrics", MetricsChunk(RUN_ID, tuple(fine), (again,)), target=RUN_ID))
    history = monitor.history(RUN_ID)
    assert (list(history.steps(0)), history.num_steps(0), history.first_not_finite(0)) == (fine, 2, None)
    assert [point.step for point in history.curve] == [2, 3]
    assert list(history.steps(1)) == broken[2:]  # this rank has not come back yet
    assert monitor.target(RUN_ID, 1000.0).events == (starts[1], again)


def test_the_curve_of_another_file_takes_the_place_of_the_first() -> None:
    monitor = watching(Judge())
    monitor.apply(steps(1, 2))
    other = MetricsChunk(RUN_ID, (Step(0, 1, None, loss=2.0),), (), is_restart=True)
    monitor.apply(reading("metrics", other, target=RUN_ID))
    assert [step.loss for step in monitor.history(RUN_ID).steps(0)] == [2.0]
    assert len(monitor.history(RUN_ID).curve) == 1


def test_nothing_is_judged_before_every_source_answered_and_all_bytes_were_read() -> None:
    judge = Judge()
    monitor = watching(judge, ("run", "metrics"))
    monitor.apply(facts())
    monitor.snapshot(1000.0)
    assert judge.asked == []
    monitor.apply(steps(1, is_caught_up=False))
    monitor.snapshot(1000.1)
    assert judge.asked == []
    monitor.apply(steps(2))
    assert RUN_ID in monitor.snapshot(1000.2).diagnoses
    assert len(judge.asked) == 1


def test_a_source_that_fails_does_not_hold_up_the_diagnosis() -> None:
    judge = Judge()
    monitor = watching(judge, ("run", "metrics"))
    monitor.apply(facts())
    monitor.apply(reading("metrics", None, target=RUN_ID, error="Stale file handle"))
    monitor.snapshot(1000.0)
    assert len(judge.asked) == 1


def test_a_live_target_is_judged_once_a_second_and_a_finished_one_only_on_news() -> None:
    judge = Judge()
    monitor = watching(judge)
    monitor.apply(facts())
    for now_s in (1000.0, 1000.3, 1000.6, 1001.1, 1001.2):
        monitor.snapshot(now_s)
    assert [snapshot.now_s for snapshot in judge.asked] == [1000.0, 1001.1]
    monitor.apply(facts(RUN, RunExit("COMPLETED", 0, 999.0, ())))
    for now_s in (1003.0, 1005.0, 1007.0):
        monitor.snapshot(now_s)
    assert len(judge.asked) == 3
    assert judge.asked[-1].has_ended


def test_the_same_answer_again_is_no_news() -> None:
    monitor = watching(Judge())
    assert monitor.apply(facts())
    assert not monitor.apply(facts())
    assert monitor.apply(steps(1))
    assert not monitor.apply(steps())


def test_a_target_that_is_no_longer_watched_is_dropped_with_its_past() -> None:
    monitor = watching(Judge())
    monitor.apply(steps(1))
    assert monitor.history(RUN_ID).num_steps(0) == 1
    assert monitor.watch({}) == [RUN_ID]
    assert not monitor.apply(steps(2))
    snapshot = monitor.snapshot(1000.0)
    assert (dict(snapshot.targets), dict(snapshot.diagnoses)) == ({}, {})
    assert monitor.history(RUN_ID).num_steps(0) == 0
    assert not any(RUN_ID in key for key in snapshot.sources)


def test_hits_and_events_are_bounded_and_keep_the_first_and_the_last() -> None:
    monitor = watching(Judge())
    tail = LogTail("log", 1, ("x",), 1, 1)
    for line in range(1, 1001):
        hit = LogHit("R", "s", "log", line, "x", {})
        monitor.apply(reading("log", LogChunk(RUN_ID, (hit,), tail), target=RUN_ID))
    events = tuple(MetricEvent(0, "eval", 900.0, number, {}) for number in range(MAX_EVENTS * 2))
    monitor.apply(reading("metrics", MetricsChunk(RUN_ID, (), events), target=RUN_ID))
    target = monitor.snapshot(1000.0).targets[RUN_ID]
    lines = [hit.line for hit in target.log_hits]
    assert lines == [*range(1, MAX_FIRST_HITS + 1), *range(1001 - MAX_LAST_HITS, 1001)]
    assert len(target.events) == MAX_EVENTS
    assert (target.events[0].step, target.events[-1].step) == (0, MAX_EVENTS * 2 - 1)


def test_a_curve_out_of_a_log_keeps_its_middle_evenly_and_within_bounds() -> None:
    monitor = watching(Judge())
    tail = LogTail("log", 1, ("x",), 1, 1)
    hits = tuple(LogHit("progress", "loss", "log", line, "x", {"value": "1"}) for line in range(1, 20_001))
    monitor.apply(reading("log", LogChunk(RUN_ID, hits, tail), target=RUN_ID))
    lines = [hit.line for hit in monitor.snapshot(1000.0).targets[RUN_ID].log_hits]
    assert len(lines) <= MAX_FIRST_HITS + MAX_BETWEEN_HITS + MAX_LAST_HITS
    assert lines == sorted(lines)
    assert max(after - before for before, after in pairwise(lines)) <= 256


def test_a_log_that_was_replaced_takes_its_hits_with_it() -> None:
    monitor = watching(Judge())
    tail = LogTail("log", 1, ("x",), 1, 1)
    hit = LogHit("R", "s", "log", 1, "x", {})
    other = replace(hit, file="other")
    monitor.apply(reading("log", LogChunk(RUN_ID, (hit, other), tail), target=RUN_ID))
    monitor.apply(reading("log", LogChunk(RUN_ID, (), tail, is_restart=True), target=RUN_ID))
    assert monitor.snapshot(1000.0).targets[RUN_ID].log_hits == (other,)


def test_an_empty_log_is_the_same_as_none() -> None:
    monitor = watching(Judge())
    monitor.apply(reading("log", LogChunk(RUN_ID, (), LogTail("log", 1, (), 0, 0)), target=RUN_ID))
    assert monitor.snapshot(1000.0).targets[RUN_ID].log_tails == ()


def test_a_gap_of_the_sampler_is_kept_once_per_node() -> None:
    monitor = watching(Judge())
    gap = SensorGap("node1", "gpu.utilization", "no NVIDIA driver", "h")
    for _ in range(3):
        monitor.apply(reading("telemetry", TelemetryChunk(RUN_ID, (gap,)), target=RUN_ID))
    assert monitor.snapshot(1000.0).targets[RUN_ID].sensor_gaps == (gap,)


def test_runs_that_ended_in_the_queue_are_shown_with_their_job() -> None:
    monitor = Monitor("me", None)
    monitor.apply(reading("runs", RunList((RUN,), ())))
    monitor.apply(reading("jobs", JobList((JOB,), True)))
    assert monitor.ended_in_queue() == []
    ended = replace(JOB, state="COMPLETED")
    monitor.apply(reading("jobs", JobList((ended,), True)))
    assert monitor.ended_in_queue() == [(RUN, ended)]
    monitor.apply(reading("jobs", JobList((replace(ended, user="you"),), True)))
    assert monitor.ended_in_queue() == []


def test_findings_wait_until_all_logs_of_a_target_were_looked_at() -> None:
    asked: list[TargetSnapshot] = []

    def diagnose(snapshot: TargetSnapshot, history: History) -> Diagnosis:
        asked.append(snapshot)
        return Diagnosis(snapshot.target, None, (), ())

    monitor = Monitor("ada", diagnose)
    monitor.watch({RUN_ID: ("log",)})
    empty = LogChunk(RUN_ID, (), LogTail("stdout.log", 1, (), 0, 0))
    said = LogChunk(RUN_ID, (), LogTail("stderr.log", 1, ("Traceback",), 9, 1))
    monitor.apply(replace(reading("log", empty, target=RUN_ID), is_part=True))
    monitor.snapshot(1000.0)
    monitor.apply(replace(reading("log", said, target=RUN_ID), is_part=True))
    monitor.snapshot(1001.0)
    assert asked == []
    files = (LogFile("stdout.log", is_found=True), LogFile("stderr.log", is_found=True))
    monitor.apply(reading("log", LogFiles(RUN_ID, files), target=RUN_ID))
    monitor.snapshot(1002.0)
    assert [(snapshot.log_files, len(snapshot.log_tails)) for snapshot in asked] == [(files, 1)]


def test_an_unreadable_log_is_reported_until_it_can_be_read() -> None:
    monitor = Monitor("ada", None)
    monitor.watch({RUN_ID: ("log",)})
    denied = LogFile("/b", is_found=True, problem="/b: Permission denied")
    for file, error in ((denied, denied.problem), (LogFile("/b", is_found=True), None)):
        monitor.apply(reading("log", LogFiles(RUN_ID, (file,)), target=RUN_ID))
        assert monitor.snapshot(1000.0).sources[f"log:{RUN_ID}"].error == error


def test_a_summary_that_comes_after_the_row_is_news_and_is_judged() -> None:
    judge = Judge()
    monitor = Monitor("me", judge)
    monitor.watch({"17": ("row",)})
    ended, summary = replace(JOB, state="COMPLETED"), JobSummary(90.0, ())
    assert monitor.apply(reading("row", JobRow("17", ended), target="17"))
    assert monitor.snapshot(1000.0).targets["17"].summary is None
    assert monitor.apply(reading("row", JobRow("17", ended, summary), target="17"))
    assert monitor.snapshot(1010.0).targets["17"].summary == summary
    assert not monitor.apply(reading("row", JobRow("17", ended, summary), target="17"))
    assert [snapshot.summary for snapshot in judge.asked] == [None, summary]


def test_a_job_read_before_its_run_is_matched_to_it_although_the_queue_does_not_change() -> None:
    monitor = watching()
    lost = replace(RUN, job_id=None, state="PENDING", started_time_s=None, ended_time_s=None)
    row = replace(JOB, command=f"{lost.run_dir}/job.sh")
    queue = reading("jobs", JobList((row,), False, has_outputs=True))
    monitor.apply(queue)
    monitor.apply(reading("runs", RunList((lost,), ())))
    assert monitor.found_in_queue() == [(lost, row.job_id)]


def test_a_newly_joined_job_is_news_although_the_queue_is_unchanged() -> None:
    monitor = watching()
    lost = replace(RUN, job_id=None, state="PENDING", started_time_s=None, ended_time_s=None)
    row = replace(JOB, command=f"{lost.run_dir}/job.sh")
    monitor.apply(reading("jobs", JobList((row,), False, has_outputs=False)))
    monitor.apply(reading("runs", RunList((lost,), ())))
    assert monitor.found_in_queue() == []
    assert monitor.apply(reading("jobs", JobList((row,), False, has_outputs=True)))
    assert monitor.found_in_queue() == [(lost, row.job_id)]
