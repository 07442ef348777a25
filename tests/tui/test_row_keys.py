"""A job's keys on every row that names a job: the queue, the verdicts above it, the runs, the ended jobs."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest

from coach.lookback.history import History
from coach.model.errors import UserError
from coach.model.judging.finding import Diagnosis, Fix
from coach.model.slurm.accounting import PastJob
from coach.model.slurm.cluster import Job
from coach.model.snapshot import Snapshot, TargetSnapshot
from coach.tui.mode import Mode
from coach.tui.widgets.keyed_table import KeyedTable
from coach.workflows.jobs.ended_jobs import PastJobs
from coach.workflows.launching.relaunch_offer import RelaunchOffer
from tests.tui.driving import Driver, opened
from tests.tui.fake_ports import FakeFixes, FakePorts, FakeQuestions
from tests.tui.fake_session import NOW_S, RUN_ID, FakeSession, make_job, make_snapshot
from tests.tui.test_findings import idle

ENDED = make_job("41", state="FAILED", end_time_s=NOW_S - 900, num_gpus=2, name="bert", raw_job_id="41")
OF_RUN = make_job("17", state="FAILED", end_time_s=NOW_S - 1000)


def queue_of(*jobs: Job) -> FakeSession:
    return FakeSession(make_snapshot(jobs=jobs, runs=()))


def ports() -> FakePorts:
    past = (PastJob(ENDED), PastJob(OF_RUN, source="run", run_id=RUN_ID))
    return FakePorts(questions=FakeQuestions(past=PastJobs(past, (), 0)))


async def history(driver: Driver) -> None:
    await driver.press("H")
    await driver.reaches("history")
    await driver.sees("bert")


async def test_f_in_the_queue_fixes_the_run_of_the_row() -> None:
    async with opened() as driver:
        await driver.press("home", "F")
        await driver.reaches("fix")
        await driver.sees("y relaunches as a child run")


async def test_a_page_without_a_further_fix_does_not_offer_to_relaunch() -> None:
    class NoFixes(FakeFixes):
        def offer_fix(self, *arguments: object, **options: object) -> RelaunchOffer:
            raise UserError("no further fix: ddp-4f2a was launched exactly so")

    async with opened(ports=FakePorts(fixes=NoFixes())) as driver:
        await driver.press("home", "F")
        await driver.sees("no further fix")
        footer = driver.text().splitlines()[-1]
        assert "Esc back" in footer
        assert not any(word in footer for word in ("y yes", "parent", "try"))


async def test_f_in_the_queue_submits_a_foreign_job_again_with_time_memory_and_excluded_nodes() -> None:
    async with opened(queue_of(replace(ENDED, state="RUNNING"))) as driver:
        await driver.press("F")
        await driver.reaches("foreign_fix")
        for word in ("time", "memory", "y submits"):
            await driver.sees(word)


async def test_f_on_a_job_that_asks_for_too_much_time_begins_with_the_limit_of_its_partition() -> None:
    """The form used to begin with the time that the partition refuses."""
    job = replace(
        ENDED,
        state="PENDING",
        reason="PartitionTimeLimit",
        partition="gpu",
        time_limit_s=172_800,
        end_time_s=None,
    )
    async with opened(queue_of(job), size=(80, 24)) as driver:
        await driver.press("enter")
        await driver.sees("allows: 1-00:00:00")
        await driver.press("F")
        await driver.reaches("foreign_fix")
        await driver.sees("--time=1-00:00:00")
        await driver.sees("its time limit of 2-00:00:00")


async def test_f_on_a_verdict_fixes_the_job_that_enter_opens() -> None:
    async with opened() as driver:
        await driver.sees("went wrong")
        await driver.press("shift+tab")
        while getattr(driver.app.focused, "id", "") != "verdicts":
            await driver.press("shift+tab")
        await driver.press("F")
        await driver.reaches("fix")


async def test_f_on_a_row_of_the_runs_fixes_it() -> None:
    async with opened() as driver:
        await driver.press("r")
        await driver.reaches("runs")
        table = driver.app.screen.query_one(KeyedTable)
        await driver.until(lambda: table.num_rows, "a run")
        await driver.press("home")
        assert table.cursor_key == RUN_ID
        await driver.press("F")
        await driver.reaches("fix")


async def test_f_on_another_users_job_or_on_no_row_explains_itself() -> None:
    async with opened(queue_of(make_job("12", "bob"))) as driver:
        await driver.press("F")
        await driver.sees("job 12 is bob's, not yours")
        await driver.press("slash", *"zzz", "enter", "F")
        await driver.sees("F fixes one job: the cursor names it")
        assert driver.place == "cluster"


async def test_l_on_another_users_job_opens_its_log() -> None:
    async with opened(queue_of(make_job("12", "bob"))) as driver:
        await driver.press("l")
        await driver.reaches("log")


async def test_f_on_several_selected_jobs_says_that_it_fixes_one() -> None:
    jobs = [
        replace(ENDED, job_id=name, raw_job_id=name, state="PENDING", nodes=None) for name in ("41", "42")
    ]
    async with opened(queue_of(*jobs)) as driver:
        await driver.press("space", "space", "F")
        await driver.sees("F fixes one job: the cursor names it")


async def test_f_on_an_unread_run_names_the_key_that_reads_it() -> None:
    snapshot = make_snapshot(targets=MappingProxyType({}), diagnoses=MappingProxyType({}))
    async with opened(FakeSession(snapshot)) as driver:
        await driver.press("home", "F")
        await driver.sees("not checked yet: ")
        assert driver.place == "cluster"


@pytest.mark.parametrize("mode", [Mode.READONLY, Mode.REPLAY, Mode.ROOT])
async def test_f_is_off_where_nothing_may_be_changed(mode: Mode) -> None:
    async with opened(queue_of(ENDED), mode=mode) as driver:
        await driver.press("F")
        await driver.sees("F is off: ")
        assert driver.place == "cluster"


async def test_an_ended_job_has_its_log_its_fix_and_a_reason_for_the_rest() -> None:
    session = queue_of()
    async with opened(session, ports()) as driver:
        await history(driver)
        await driver.press("l")
        await driver.reaches("log")
        await driver.until(lambda: session.watches[-1].targets == ("41",), "its log is followed")
        await driver.press("escape", "D")
        await driver.sees("job 41 has ended, and no GPU of it was measured")
        await driver.press("S")
        await driver.sees("41 bert (FAILED): only a running job has stacks")
        await driver.press("c")
        await driver.sees("only runs that coach launched can be compared")
        await driver.press("F")
        await driver.reaches("foreign_fix")
        await driver.press("escape", "x")
        await driver.sees("x cancels a job: choose one in the queue first")
        assert driver.place == "history"


async def test_f_on_a_job_that_left_the_queue_shows_the_change_that_its_finding_suggests() -> None:
    workers = Fix("DataLoader workers 2 → 6 per rank", {"num_workers": 6})
    told = Diagnosis("41", "FAILED", (replace(idle("41").findings[0], fixes=(workers,)),), ())
    snapshot = make_snapshot(
        jobs=(),
        runs=(),
        targets=MappingProxyType({"41": TargetSnapshot("41", NOW_S)}),
        diagnoses=MappingProxyType({"41": told}),
    )
    async with opened(FakeSession(snapshot), ports(), size=(120, 36)) as driver:
        await history(driver)
        await driver.press("home", "F")
        await driver.reaches("foreign_fix")
        await driver.sees("script: as Slurm keeps it")


async def test_the_ended_job_of_a_run_is_its_run_in_every_key() -> None:
    async with opened(FakeSession(with_run(), {RUN_ID: History()}), ports(), size=(80, 24)) as driver:
        for key, place in (("l", "log"), ("D", "gpus"), ("F", "fix")):
            await history(driver)
            await driver.press("end", key)
            await driver.reaches(place)
            assert driver.app.top is not None
            assert driver.app.top.targets[0] == RUN_ID
            await driver.press("escape", "escape")
            await driver.reaches("cluster")


def with_run() -> Snapshot:
    return replace(make_snapshot(), jobs=())


async def test_keys_of_rows_on_an_empty_history_say_so() -> None:
    async with opened(queue_of()) as driver:
        await driver.press("H")
        await driver.reaches("history")
        for key, words in (
            ("l", "l shows the log of one job"),
            ("D", "D shows the GPUs of one job"),
            ("S", "S shows the stacks of the ranks of one job"),
            ("c", "c compares the run of one job, or those of two"),
            ("F", "F fixes one job"),
        ):
            await driver.press(key)
            await driver.sees(words)
            assert driver.place == "history"
