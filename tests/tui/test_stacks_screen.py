"""`S`: the current lines of a hanging run's ranks, on one screen. coach enters a foreign job only after a
question."""

from __future__ import annotations

import threading
from dataclasses import replace

from coach.model.errors import UserError
from coach.model.training.stacks import StacksPlan
from coach.tui.key_guard import GUARD_S
from coach.tui.mode import Mode
from tests.tui.driving import Driver, opened
from tests.tui.fake_ports import FakePorts, FakeStacks
from tests.tui.fake_session import RUN_ID, FakeSession, make_job, make_run, make_snapshot

OWN = FakeSession(make_snapshot(jobs=(make_job("21"),), runs=()))


async def on_the_run(driver: Driver) -> None:
    await driver.press("r")
    await driver.reaches("runs")
    await driver.press("enter")
    await driver.reaches("job")


async def test_the_rank_that_the_others_wait_for_is_named_at_once_for_a_run() -> None:
    async with opened() as driver:
        await on_the_run(driver)
        await driver.press("S")
        await driver.reaches("stacks")
        await driver.sees("ranks 0-2 wait in all_reduce; rank 3 is in DataLoader.__next__")
        await driver.sees("▲ not where the others are: rank 3 (node2 pid 103)")
        await driver.sees("rank 3: seen by faulthandler (not by py-spy: ptrace is refused here)")
        await driver.sees("S takes them again")
        await driver.press("S")
        await driver.until(lambda: len(driver.ports.stacks.taken) == 2, "taken again")
        await driver.press("escape")
        await driver.reaches("job")


async def test_stacks_are_taken_also_while_the_help_lies_on_top() -> None:
    gate = threading.Event()

    class SlowStacks(FakeStacks):
        def plan_stacks(self, target: str) -> StacksPlan:
            gate.wait(5)
            return super().plan_stacks(target)

    async with opened(ports=FakePorts(stacks=SlowStacks())) as driver:
        await on_the_run(driver)
        await driver.press("S")
        await driver.reaches("stacks")
        await driver.press("question_mark")
        await driver.reaches("help")
        gate.set()
        await driver.until(lambda: len(driver.ports.stacks.taken) == 1, "taken")
        await driver.press("escape")
        await driver.sees("rank 3 is in DataLoader.__next__")


async def test_a_job_that_coach_did_not_launch_is_entered_after_y_alone() -> None:
    async with opened(OWN) as driver:
        await driver.press("enter")
        await driver.reaches("job")
        await driver.press("S")
        await driver.sees("$ srun --jobid=21 --overlap python stacks")
        await driver.sees("one row to its accounting")
        await driver.press("enter", "y")
        assert driver.ports.stacks.taken.count("srun --jobid=21 --overlap python stacks") == 0
        driver.clock.turn(GUARD_S + 0.1)
        await driver.press("y")
        await driver.sees("rank 3 is in DataLoader.__next__")
        await driver.press("y")
        assert driver.ports.stacks.taken.count("srun --jobid=21 --overlap python stacks") == 1


async def test_a_small_screen_shows_the_answer_first_and_slurm_s_refusal_whole() -> None:
    ports = FakePorts(
        stacks=FakeStacks(refusal=UserError("job 17: no stacks: srun: error: Slurm job 17 has expired"))
    )
    async with opened(ports=ports, size=(80, 24)) as driver:
        await on_the_run(driver)
        await driver.press("S")
        await driver.sees("Slurm job 17 has expired")
        ports.stacks.refusal = None
        await driver.press("S")
        await driver.sees("ranks 0-2 wait in all_reduce; rank 3 is in DataLoader.__next__")


async def test_nothing_is_entered_where_nothing_may_be_changed_or_nothing_runs() -> None:
    async with opened(mode=Mode.READONLY) as driver:
        await on_the_run(driver)
        await driver.press("S")
        await driver.sees("S is off: coach was opened read-only")
    ended = FakeSession(
        make_snapshot(runs=(replace(make_run(RUN_ID), state="COMPLETED"),), jobs=(), targets={})
    )
    async with opened(ended) as driver:
        await on_the_run(driver)
        await driver.press("S")
        await driver.sees("only a running job has stacks")
