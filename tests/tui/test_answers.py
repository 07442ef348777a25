"""Four questions, answered by the screens: free GPUs, places to run, the expected start, the reason for a
wait."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from coach.model.errors import UserError
from coach.model.slurm.accounting import Efficiency, Part, PastJob, PriorityFactors
from coach.model.slurm.cluster import GpuAllocation, Job
from coach.tui.mode import Mode
from coach.tui.question import Question
from coach.tui.screens.cluster import ClusterScreen
from coach.tui.widgets.keyed_table import KeyedTable
from coach.workflows.jobs.ended_jobs import PastJobs
from tests.tui.driving import Driver, opened
from tests.tui.fake_ports import FakePorts, FakeQuestions
from tests.tui.fake_session import NOW_S, RUN_ID, FakeSession, make_job, make_place, make_snapshot

SIZES = [(80, 24), (200, 60)]
WAITING = {"state": "PENDING", "nodes": None, "start_time_s": None, "raw_job_id": "30"}


def queue(*jobs: Job) -> FakeSession:
    return FakeSession(make_snapshot(jobs=jobs, runs=()))


def factors(job_id: str) -> PriorityFactors:
    return PriorityFactors(job_id, "ada", "gpu", 310, 10, 300, 0, 0, 0, None, 0, None)


async def open_node(driver: Driver, name: str) -> None:
    await driver.press("shift+tab")
    while driver.app.screen.nodes.cursor_key != name:  # type: ignore[attr-defined]  # the cluster's screen
        await driver.press("down")
    await driver.press("enter")
    await driver.reaches("node")


@pytest.mark.parametrize("size", SIZES)
async def test_an_array_is_one_row_and_u_gives_each_task_its_own(size: tuple[int, int]) -> None:
    jobs = (make_job("17_0"), make_job("17_[1-3%1]", **WAITING, reason="JobArrayTaskLimit"), make_job("40"))
    async with opened(queue(*jobs), size=size) as driver:
        assert "17_2" not in driver.app.screen.query_one("#queue", KeyedTable).keys
        await driver.press("u")
        await driver.sees("└ 17_2")
        await driver.press("u")
        await driver.until(lambda: "└" not in driver.text(), "folded again")


@pytest.mark.parametrize("size", SIZES)
async def test_why_a_job_waits_stands_beside_it_and_w_says_it_at_length(size: tuple[int, int]) -> None:
    job = make_job("30", **WAITING, reason="PartitionTimeLimit")
    ports = FakePorts(questions=FakeQuestions(place=make_place(priorities=Part((factors("30"),)))))
    async with opened(queue(job), ports, size=size) as driver:
        assert "✖ too long" in driver.text()
        await driver.press("enter")
        await driver.sees("will never start as it is")
        assert "scontrol update JobId=30 TimeLimit=" in driver.text()
        await driver.sees("310 = age 10 + fair share 300")
        assert "Slurm accounting storage is disabled" in driver.text()
        assert ports.questions.asked == ["place_in_queue"]


async def test_the_place_in_the_queue_is_asked_once_a_minute_and_again_on_demand() -> None:
    ports = FakePorts()
    async with opened(queue(make_job("30", **WAITING, reason="Priority")), ports) as driver:
        for _ in range(2):
            await driver.press("enter")
            await driver.sees("asked 0 s ago")
            await driver.press("escape")
        assert len(ports.questions.asked) == 1
        driver.clock.turn(61)
        await driver.press("enter")
        await driver.until(lambda: len(ports.questions.asked) == 2, "asked again")
        await driver.press("ctrl+r")
        await driver.until(lambda: len(ports.questions.asked) == 3, "asked anew")


async def test_a_controller_that_does_not_tell_leaves_the_rest_of_the_job_on_the_screen() -> None:
    ports = FakePorts(questions=FakeQuestions(refusal=UserError("slurm_load_jobs error: Unable to contact")))
    async with opened(queue(make_job("30", **WAITING, reason="Priority")), ports) as driver:
        await driver.press("enter")
        await driver.sees("▲ not available: slurm_load_jobs error: Unable to contact")
        assert "other jobs of this partition" in driver.text()


async def test_a_silent_controller_is_not_asked_again_by_every_screen_that_opens() -> None:
    ports = FakePorts(questions=FakeQuestions(refusal=UserError("Unable to contact slurm controller")))
    async with opened(queue(make_job("30", **WAITING, reason="Priority")), ports) as driver:
        for _ in range(3):
            await driver.press("enter")
            await driver.sees("▲ not available: Unable to contact")
            await driver.press("escape")
            await driver.reaches("cluster")
        assert ports.questions.asked == ["place_in_queue"]
        driver.clock.turn(20)
        await driver.press("enter")
        await driver.until(lambda: len(ports.questions.asked) == 2, "asked again after a while")


async def test_no_query_is_sent_for_another_user_s_job_or_in_a_recording() -> None:
    foreign = make_job("30", "bob", **WAITING, reason="Priority")
    ports = FakePorts()
    async with opened(queue(foreign), ports) as driver:
        await driver.press("enter")
        await driver.sees("other jobs of this partition")
        assert ports.questions.asked == []
    own = make_job("30", **WAITING, reason="Priority")
    async with opened(queue(own), ports, mode=Mode.REPLAY) as driver:
        await driver.press("enter")
        await driver.sees("this is a recording")
        assert ports.questions.asked == []


async def test_another_user_s_waiting_job_shows_its_place_and_its_planned_nodes() -> None:
    waiting = make_job("30", "bob", **WAITING, reason="Priority", priority=10, scheduled_nodes="node2")
    first = replace(waiting, job_id="31", user="eve", priority=20)
    elsewhere = replace(first, job_id="32", partition="other")
    async with opened(queue(waiting, first, elsewhere), FakePorts(), size=(200, 50)) as driver:
        await driver.until(lambda: "30" in driver.text(), "the queue")
        assert isinstance(driver.app.top, ClusterScreen)
        driver.app.top.point_at("30")
        await driver.press("enter")
        await driver.sees("number 2 of the 2 rows that wait for its partition, by priority")
        await driver.sees("planned on node node2")
        assert "2 free of 2 a100" in driver.text()


@pytest.mark.parametrize("size", SIZES)
async def test_enter_on_a_node_shows_the_job_on_each_gpu(size: tuple[int, int]) -> None:
    snapshot = make_snapshot(jobs=(make_job("12", "bob", name="[@click=app.quit]x", nodes="node1"),), runs=())
    nodes = (replace(snapshot.nodes[0], gpu_indices=(1,)), *snapshot.nodes[1:])
    ports = FakePorts(questions=FakeQuestions(held_gpus=(GpuAllocation("12", ("node1",), (1,)),)))
    async with opened(FakeSession(replace(snapshot, nodes=nodes)), ports, size=size) as driver:
        await open_node(driver, "node1")
        await driver.sees("job 12 of bob")
        assert "[@click=app.quit]x" in driver.text()
        assert "1 free of 2 a100" in driver.text()
        assert "gpu 0   □ idle" in driver.text()
        assert ports.questions.asked == ["allocations"]
        await driver.press("escape")
        await driver.reaches("cluster")


async def test_a_running_job_names_the_indices_of_its_gpus() -> None:
    job = make_job("12", nodes="node1", num_gpus=1, raw_job_id="12")
    snapshot = make_snapshot(jobs=(job,), runs=())
    nodes = (replace(snapshot.nodes[0], gpu_indices=(1,)), *snapshot.nodes[1:])
    ports = FakePorts(questions=FakeQuestions(held_gpus=(GpuAllocation("12", ("node1",), (1,)),)))
    async with opened(FakeSession(replace(snapshot, nodes=nodes)), ports) as driver:
        await driver.press("enter")
        await driver.sees("node1  gpu 1")


async def test_a_job_that_was_opened_while_it_waited_names_its_gpus_when_it_starts() -> None:
    waiting = make_job("12", num_gpus=1, **WAITING | {"raw_job_id": "12"}, reason="Priority")
    session = queue(waiting)
    ports = FakePorts()
    async with opened(session, ports) as driver:
        await driver.press("enter")
        await driver.sees("place in the queue")
        assert ports.questions.asked == ["place_in_queue"]
        running = make_job("12", nodes="node1", num_gpus=1, raw_job_id="12")
        ports.questions.held_gpus = (GpuAllocation("12", ("node1",), (1,)),)
        nodes = session.snapshot.nodes
        nodes = (replace(nodes[0], gpu_indices=(1,)), *nodes[1:])
        session.push(replace(session.snapshot, jobs=(running,), nodes=nodes))
        await driver.sees("node1  gpu 1")
        assert "place in the queue" not in driver.text()
        assert sorted(ports.questions.asked) == ["allocations", "place_in_queue", "step_use"]


@pytest.mark.parametrize("size", SIZES)
async def test_where_a_job_could_start_is_one_key_away(size: tuple[int, int]) -> None:
    async with opened(size=size) as driver:
        assert "free 3 of 6 a100" in driver.text()
        await driver.press("W")
        await driver.sees("at most 2 on one node")
        assert "● open to you" in driver.text()
        assert driver.ports.questions.asked == []


@pytest.mark.parametrize("size", SIZES)
async def test_the_history_shows_how_well_ended_jobs_used_their_resources_and_its_source(
    size: tuple[int, int],
) -> None:
    ended = make_job("9", name="old", state="TIMEOUT", end_time_s=NOW_S - 600, time_used_s=1800)
    seen = make_job("8", name="a\x1b[31mb", state="RUNNING", end_time_s=None)
    jobs = (
        PastJob(ended, Efficiency(cpu_pct=42.0, time_pct=100.0), "sacct"),
        PastJob(seen, source="seen", last_seen_s=NOW_S - 900),
        PastJob(make_job("17", state="FAILED", end_time_s=NOW_S - 1000), source="run", run_id=RUN_ID),
    )
    ports = FakePorts(
        questions=FakeQuestions(past=PastJobs(jobs, ("accounting gives no answer: no database",), 0))
    )
    async with opened(ports=ports, size=size) as driver:
        await driver.press("H")
        await driver.sees("TIMEOUT")
        assert "accounting gives no answer: no database" in driver.text()
        assert "42%" in driver.text()
        assert "– was RUNNING" in driver.text()
        assert "\x1b" not in driver.text()
        await driver.press("enter")
        await driver.sees("30:00 of 30:00, 100%")
        assert "the accounting of Slurm" in driver.text()
        await driver.press("escape", "end", "enter")
        await driver.reaches("job")


class SlowHistory(FakeQuestions):
    """Slurm answers for the ended jobs when the test says so."""

    def __init__(self, failed: PastJobs, past: PastJobs) -> None:
        super().__init__(failed=failed, past=past)
        self.may_answer = threading.Event()

    def answer(self, question: Question) -> object:
        if question is Question.PAST_JOBS:
            self.may_answer.wait(60)
        return super().answer(question)


async def test_the_history_shows_what_coach_remembers_while_slurm_is_asked_and_after_esc() -> None:
    own = PastJob(make_job("9", name="mine", state="TIMEOUT", end_time_s=NOW_S - 600), source="seen")
    older = PastJob(make_job("8", name="older", state="FAILED", end_time_s=NOW_S - 700))
    questions = SlowHistory(PastJobs((own,), (), 0), PastJobs((own, older), (), 0))
    async with opened(ports=FakePorts(questions=questions)) as driver:
        try:
            await driver.press("H")
            await driver.sees("1 ended job")
            driver.clock.turn(3.0)
            await driver.sees("asking for the jobs that have ended · 3 s")
            assert "mine" in driver.text()
            await driver.press("escape")
            await driver.sees("stopped: asking for the jobs that have ended")
            assert "mine" in driver.text()
            await driver.press("escape")
            await driver.reaches("cluster")
        finally:
            questions.may_answer.set()
        await driver.press("H")
        await driver.sees("2 ended jobs")


async def test_the_cursor_of_the_history_is_on_the_newest_job_once_slurm_has_answered() -> None:
    own = PastJob(make_job("8", name="older", state="TIMEOUT", end_time_s=NOW_S - 600), source="seen")
    newer = PastJob(make_job("9", name="newer", state="CANCELLED", end_time_s=NOW_S - 5))
    questions = SlowHistory(PastJobs((own,), (), 0), PastJobs((newer, own), (), 0))
    async with opened(ports=FakePorts(questions=questions)) as driver:
        try:
            await driver.press("H")
            await driver.sees("1 ended job")
        finally:
            questions.may_answer.set()
        await driver.sees("2 ended jobs")
        await driver.press("enter")
        await driver.sees("job 9")
