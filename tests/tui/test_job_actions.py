"""Doing something to jobs from the screens: selected ones together, each question with its exact command,
each refusal with its reason."""

from __future__ import annotations

import threading
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from coach.lookback.history import History
from coach.model.errors import UserError
from coach.model.slurm.accounting import PastJob
from coach.model.slurm.job_action import JobAction, Verb
from coach.model.snapshot import SourceStatus, TargetSnapshot
from coach.model.training.log import LogFile, LogTail
from coach.model.training.metrics import Step
from coach.model.training.run import RunExit
from coach.model.training.telemetry import GpuSample, HostSample, Rung
from coach.tui.key_guard import GUARD_S
from coach.tui.messages import ActionConfirmed
from coach.tui.mode import Mode
from coach.tui.screens.confirm import ConfirmScreen
from coach.workflows.jobs.ended_jobs import PastJobs
from tests.tui.driving import Driver, opened
from tests.tui.fake_ports import FakeJobActions, FakePorts, FakeQuestions
from tests.tui.fake_session import NOW_S, RUN_ID, FakeSession, make_job, make_run, make_snapshot, make_target

WAITING = tuple(
    make_job(str(number), state="PENDING", reason="Priority", nodes=None, submit_time_s=NOW_S - number)
    for number in (21, 22, 23)
)


def waiting() -> FakeSession:
    return FakeSession(make_snapshot(jobs=(*WAITING, make_job("12", "bob", state="PENDING")), runs=()))


async def answer(driver: Driver, key: str = "y") -> None:
    driver.clock.turn(GUARD_S + 0.1)
    await driver.press(key)


async def test_selected_jobs_are_named_and_held_by_one_command_and_are_selected_no_more() -> None:
    async with opened(waiting()) as driver:
        await driver.press("space", "space", "space")
        await driver.sees("3 selected, Esc clears")
        assert driver.text().count("●▸") == 3
        await driver.press("h")
        await driver.sees("$ scontrol hold 21,22")
        await driver.sees("23 is left out: it has ended already (FAILED)")
        await driver.sees("21  bert  PENDING  –")
        await answer(driver)
        await driver.reaches("cluster")
        await driver.sees("21, 22 were held")
        assert [each.verb for each in driver.ports.job_actions.performed] == [Verb.HOLD]
        assert driver.session.num_refreshes == 1
        assert "selected" not in driver.text()
        await driver.press("home", "space", "space", "x")
        await driver.sees("$ scancel 21 22")
        await driver.press("escape")
        await driver.reaches("cluster")
        assert "selected" not in driver.text()


async def test_the_question_about_running_jobs_shows_their_steps() -> None:
    history = History()
    history.add_steps([Step(0, 40, NOW_S, 1, 2.3, 0.05, 64, 128, 0.01, 0.1)])
    jobs = (make_job("17"), make_job("18", state="PENDING", nodes=None))
    session = FakeSession(make_snapshot(jobs=jobs), {RUN_ID: history})
    async with opened(session) as driver:
        await driver.press("space", "space", "x")
        await driver.sees("Cancel 2 jobs")
        await driver.sees("step 40")


async def test_selected_tasks_of_one_array_are_submitted_again_together() -> None:
    jobs = (make_job("17_2", state="FAILED"), make_job("17_5", state="FAILED"), make_job("18"))
    async with opened(FakeSession(make_snapshot(jobs=jobs, runs=()))) as driver:
        await driver.press("end", "u", "down", "space", "space", "A")
        await driver.sees("Submit again 17_[2,5]")
        await driver.press("escape", "home", "space", "space", "A")
        await driver.sees("one job at a time, or tasks of one array")
        assert driver.place == "cluster"


async def test_an_ended_job_is_submitted_again_from_the_history() -> None:
    past = (PastJob(make_job("31", state="FAILED", end_time_s=NOW_S)),)
    async with opened(ports=FakePorts(questions=FakeQuestions(past=PastJobs(past, (), 0)))) as driver:
        await driver.press("H")
        await driver.sees("1 ended job")
        await driver.press("A")
        await driver.sees("sbatch --chdir=/home/ada x.sh")


async def test_tasks_that_a_filter_hides_are_not_cancelled() -> None:
    jobs = (make_job("17_1"), make_job("17_[3-8]", state="PENDING", nodes=None))
    async with opened(FakeSession(make_snapshot(jobs=jobs, runs=()))) as driver:
        await driver.press("x")
        await driver.sees("$ scancel 17")
        assert "17_" not in driver.text().split("scancel")[1]
        await driver.press("escape", "slash", *"state", "colon", *"pending", "enter")
        await driver.sees("1 of 2")
        await driver.press("x")
        await driver.sees("$ scancel '17_[3-8]'")


async def test_some_tasks_of_an_array_that_cannot_be_named_are_left_alone() -> None:
    jobs = (make_job("17_1"), make_job("17_[3-8,...]", state="PENDING", nodes=None))
    async with opened(FakeSession(make_snapshot(jobs=jobs, runs=()))) as driver:
        await driver.press("slash", *"state", "colon", *"pending", "enter")
        await driver.sees("1 of 2")
        await driver.press("x")
        await driver.sees("is not all of job 17")
        assert driver.place == "cluster"


async def test_jobs_of_others_cannot_be_selected() -> None:
    async with opened(waiting()) as driver:
        await driver.press("end", "space")
        await driver.sees("job 12 is bob's, not yours")
        assert "selected" not in driver.text()


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("h", "it is RUNNING: only a waiting job can be held"),
        ("U", "it is not held"),
    ],
)
async def test_a_key_that_is_impossible_here_shows_its_reason(key: str, why: str) -> None:
    async with opened() as driver:
        await driver.press(key)
        await driver.sees(why)
        assert driver.place == "cluster"


async def test_a_shell_needs_a_running_job_and_gets_only_one() -> None:
    async with opened(waiting()) as driver:
        await driver.press("exclamation_mark")
        await driver.sees("only a running job has an allocation")
        await driver.press("space", "space", "exclamation_mark")
        await driver.sees("one job at a time")


async def test_a_new_limit_is_typed_shown_as_a_command_and_changed_only_by_y() -> None:
    async with opened(waiting()) as driver:
        await driver.press("T")
        await driver.sees("new time limit")
        await driver.press(*"1y5", "enter")
        await driver.sees("$ scontrol update jobid=21 timelimit=00:15:00")
        await driver.press("enter")
        assert driver.ports.job_actions.performed == []
        await answer(driver)
        await driver.sees("21 was given a lower time limit")


async def test_an_invalid_time_limit_is_refused_and_can_be_typed_again() -> None:
    async with opened(waiting()) as driver:
        await driver.press("T", *"::", "enter")
        await driver.sees("not a time limit")
        await driver.press("backspace", "backspace", *"20", "enter")
        await driver.sees("timelimit=00:20:00")


async def test_a_limit_that_was_edited_meanwhile_is_not_answered_with_the_old_command() -> None:
    gate = threading.Event()

    planned = []

    class SlowJobActions(FakeJobActions):
        def plan_action(self, *arguments: Any) -> JobAction:
            gate.wait(5)
            planned.append("planned")
            return super().plan_action(*arguments)

    ports = FakePorts(job_actions=SlowJobActions())
    async with opened(waiting(), ports) as driver:
        await driver.press("T", *"15", "enter")
        await driver.sees("preparing the command")
        await driver.press("shift+tab", "end", "0")
        await driver.sees("Enter shows the exact command")
        gate.set()
        await driver.until(lambda: planned == ["planned"], "the old answer")
        await driver.settle()
        assert "timelimit=" not in driver.text()
        await driver.press("enter")
        await driver.sees("timelimit=02:30:00")


async def test_an_action_that_is_confirmed_below_another_screen_is_done_and_leaves_no_question_behind() -> (
    None
):
    async with opened(waiting()) as driver:
        await driver.press("x")
        await driver.sees("scancel 21")
        confirm = driver.app.screen
        assert isinstance(confirm, ConfirmScreen)
        await driver.press("question_mark")
        await driver.reaches("help")
        confirm.work("cancel…")
        confirm.post_message(ActionConfirmed(driver.ports.job_actions.plan_action(Verb.CANCEL, ("21",))))
        await driver.until(lambda: driver.ports.job_actions.performed, "performed")
        await driver.settle()
        await driver.press("escape")
        await driver.reaches("cluster")


async def test_a_run_is_launched_again_by_its_plan() -> None:
    async with opened() as driver:
        await driver.press("enter")
        await driver.reaches("job")
        await driver.press("A")
        await driver.reaches("plan")
        await driver.sees("submits exactly this script")


async def test_an_ended_run_is_resumed_after_its_exact_command_was_shown() -> None:
    ended = replace(make_run(), state="CANCELLED", ended_time_s=NOW_S - 60)
    snapshot = replace(make_snapshot(), jobs=(), runs=(ended,), targets={})
    async with opened(FakeSession(snapshot)) as driver:
        await driver.press("r")
        await driver.reaches("runs")
        await driver.press("greater_than_sign")
        await driver.sees("$ sbatch --parsable /runs/job.sh")
        assert driver.ports.job_actions.performed == []
        await answer(driver)
        await driver.until(lambda: driver.ports.job_actions.performed, "resumed")
        assert driver.ports.job_actions.performed[0].verb is Verb.RESUME


async def test_a_run_that_runs_is_not_resumed() -> None:
    async with opened() as driver:
        await driver.press("enter")
        await driver.reaches("job")
        await driver.press("greater_than_sign")
        await driver.sees("it is RUNNING: only a run that has ended can be resumed")


async def test_another_job_is_submitted_again_with_its_script_shown_harmless() -> None:
    async with opened(waiting()) as driver:
        await driver.press("A")
        await driver.sees("$ sbatch --chdir=/home/ada x.sh")
        await driver.sees("echo '[bold]")
        assert "\x1b" not in driver.text()
        await answer(driver)
        await driver.until(lambda: driver.ports.job_actions.performed, "submitted again")


@pytest.mark.parametrize("mode", [Mode.READONLY, Mode.ROOT, Mode.REPLAY, Mode.DEMO])
@pytest.mark.parametrize("key", ["x", "h", "U", "Q", "T", "A", "greater_than_sign", "exclamation_mark"])
async def test_where_nothing_may_be_changed_every_action_is_off_and_says_why(mode: Mode, key: str) -> None:
    async with opened(waiting(), mode=mode) as driver:
        await driver.press(key)
        await driver.sees("is off: ")
        assert driver.place == "cluster"


async def test_slurm_s_refusal_is_shown_whole_and_can_be_left() -> None:
    refusal = UserError("scontrol: 21: Requested operation is presently disabled")
    async with opened(waiting(), FakePorts(job_actions=FakeJobActions(refusal=refusal))) as driver:
        await driver.press("h")
        await driver.sees("$ scontrol hold 21")
        await answer(driver)
        await driver.sees("Requested operation is presently disabled")
        await driver.press("escape")
        await driver.reaches("cluster")


async def test_the_log_of_a_job_that_coach_did_not_launch_is_followed_in_both_streams() -> None:
    session = waiting()
    async with opened(session) as driver:
        await driver.press("l")
        await driver.reaches("log")
        await driver.until(lambda: session.watches[-1].targets == ("21",), "its log is followed")
        await driver.sees("looking for its log")
        tails = (
            LogTail("/home/ada/21.err", 1, ("oh no",), 6, 1),
            LogTail("/home/ada/21.out", 1, ("hello",), 6, 1),
        )
        files = (LogFile("/home/ada/21.out", True), LogFile("/home/ada/21.err", True))
        target = TargetSnapshot("21", NOW_S, log_tails=tails, log_files=files)
        session.push(replace(session.snapshot, targets=MappingProxyType({"21": target})))
        await driver.sees("hello")
        await driver.press("e")
        await driver.sees("oh no")


async def test_the_log_of_a_runs_job_is_the_runs_in_both_streams() -> None:
    session = FakeSession(make_snapshot(), {RUN_ID: History()})
    async with opened(session) as driver:
        await driver.press("home")
        await driver.press("l")
        await driver.reaches("log")
        await driver.until(
            lambda: session.watches[-1].targets == (RUN_ID,), "the run is followed, not its job"
        )
        tails = (
            LogTail(f"/runs/{RUN_ID}/stderr.log", 1, ("oh no",), 6, 1),
            LogTail(f"/runs/{RUN_ID}/stdout.log", 1, ("hello",), 6, 1),
        )
        files = tuple(LogFile(tail.file, is_found=True) for tail in reversed(tails))
        target = replace(session.snapshot.targets[RUN_ID], log_files=files, log_tails=tails)
        session.push(replace(session.snapshot, targets=MappingProxyType({RUN_ID: target})))
        await driver.sees("hello")
        await driver.press("e")
        await driver.sees("oh no")


async def test_a_missing_log_names_the_searched_place() -> None:
    session = waiting()
    async with opened(session) as driver:
        await driver.press("l")
        await driver.reaches("log")
        target = TargetSnapshot("21", NOW_S, log_files=(LogFile("/scratch/gone/21.out", False),))
        session.push(replace(session.snapshot, targets=MappingProxyType({"21": target})))
        await driver.sees("/scratch/gone/21.out: no such file, or not yet")


async def test_telemetry_of_a_job_that_coach_did_not_launch_is_asked_for_and_then_shown_with_source_and_age() -> (
    None
):
    job = make_job("41", nodes="node1", state="RUNNING", raw_job_id="41")
    histories = {"other": History()}
    session = FakeSession(make_snapshot(jobs=(job,), runs=()), histories)
    async with opened(session) as driver:
        await driver.press("enter")
        await driver.sees("not measured: no sampler in this job has been read · t measures inside it")
        await driver.sees(
            "step 0, 8 tasks: a task had at most 2048 MiB; its GPUs together 613 % and 40000 MiB"
        )
        await driver.sees("step batch, 1 task: a task had at most – MiB")
        await driver.press("t")
        await driver.sees("Measure inside 41")
        assert session.attached == []
        await answer(driver)
        await driver.reaches("job")
        await driver.sees("a step in job 41 measures it")
        assert [target for target, _ in session.attached] == ["41"]
        history = History()
        history.add_samples([HostSample("node1", NOW_S - 2, num_gpus=6, num_gpus_allotted=8)], Rung.STEP)
        history.add_samples([GpuSample("node1", NOW_S - 2, 0, "u", power_w=300.0)], Rung.STEP)
        histories["41"] = history
        status = SourceStatus("stream:41", NOW_S, None, None, 0, 0.0)
        session.push(make_snapshot(jobs=(job,), runs=(), sources=MappingProxyType({"stream:41": status})))
        await driver.sees("a step in the job (srun --overlap), 2 s ago;")
        await driver.sees("6 of 8 GPUs visible")
        await driver.sees("power 300 of – W")
        await driver.press("t")
        await driver.sees("a step in it measures it already")


async def test_the_footer_of_an_ended_foreign_job_offers_neither_cancel_nor_compare() -> None:
    jobs = (make_job("21"), make_job("22", state="FAILED"))
    async with opened(FakeSession(make_snapshot(jobs=jobs, runs=()))) as driver:
        driver.app._go("job", "21")
        await driver.sees("x cancel")
        assert "c compare" not in driver.text()
        driver.app._go("job", "22")
        await driver.sees("FAILED")
        assert "x cancel" not in driver.text()


async def test_a_run_that_has_ended_asks_nothing_of_a_queue_that_still_says_running() -> None:
    run, row = make_run(), replace(make_job(state="PENDING", reason="None"), raw_job_id="17")
    goes_on = make_target(run, row)
    ended = replace(goes_on, exit=RunExit("FAILED", 1, NOW_S, ()))
    snapshot = make_snapshot(jobs=(row,), runs=(run,), targets=MappingProxyType({RUN_ID: ended}))
    async with opened(FakeSession(snapshot)) as driver:
        driver.app._go("job", RUN_ID)
        await driver.sees("FAILED")
        assert driver.app.screen.questions == ()
        assert "waits its turn" not in driver.text()
        driver.session.push(replace(snapshot, targets=MappingProxyType({RUN_ID: goes_on})))
        await driver.sees("waits its turn")
        assert driver.app.screen.questions
