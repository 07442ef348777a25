"""The first screen as a person uses it: how trainings go, the detail beside the list, saved views, the first
start."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from coach.config.load import load
from coach.model.judging.finding import Diagnosis, Verdict
from coach.model.launching.launch import SweepPoint
from coach.model.slurm.accounting import PastJob
from coach.model.snapshot import Snapshot, TargetSnapshot
from coach.tui.app import CoachApp
from coach.tui.mode import Mode
from coach.tui.widgets.keyed_table import KeyedTable
from coach.tui.widgets.lines import LinesView
from coach.tui.wiring import Opening
from coach.workflows.jobs.ended_jobs import PastJobs
from coach.workflows.watching.table_views import SavedView, View, ViewStore
from tests.tui.driving import Clock, Driver, opened
from tests.tui.fake_ports import FakePorts, FakeQuestions
from tests.tui.fake_session import (
    NOW_S,
    RUN_ID,
    FakeSession,
    add_gpus,
    make_history,
    make_job,
    make_run,
    make_snapshot,
    make_target,
    nan_diagnosis,
)


def detail(driver: Driver) -> str:
    return "\n".join(
        "".join(span.text for span in row) for row in driver.app.screen.query_one("#detail", LinesView).lines
    )


async def test_a_training_shows_its_progress_in_its_row_and_the_nodes_show_their_measurements() -> None:
    session = FakeSession(make_snapshot(), {RUN_ID: add_gpus(make_history(lost_at=150))})
    async with opened(session, size=(120, 36), are_all_shown=False) as driver:
        await driver.sees("✖ NUM001")
        row = next(line for line in driver.text().splitlines() if line.startswith(" 17 "))
        assert all(told in row for told in ("RUNNING", "✖ NaN", "%", "✖ lr"))
        assert "1 GPU of yours" in driver.text()
        assert "GPU USE" in driver.text()


async def test_a_job_that_has_just_failed_is_not_called_healthy_by_the_verdict_from_while_it_ran() -> None:
    ran = Diagnosis("99", "RUNNING", (), (), health=Verdict.HEALTHY)

    def queue(state: str, reason: str | None, diagnosis: Diagnosis) -> Snapshot:
        job = replace(make_job("99", "ada", name="bert", state=state, reason=reason), raw_job_id="99")
        target = TargetSnapshot("99", NOW_S, job=job)
        return make_snapshot(
            runs=(),
            jobs=(job,),
            targets=MappingProxyType({"99": target}),
            diagnoses=MappingProxyType({"99": diagnosis}),
        )

    async with opened(FakeSession(queue("RUNNING", None, ran)), are_all_shown=False) as driver:
        await driver.sees("✓ healthy")
        driver.session.push(queue("FAILED", "NonZeroExitCode", ran))
        await driver.sees("NonZeroExitCode")
        assert "healthy" not in driver.text()
        driver.session.push(queue("COMPLETED", None, replace(ran, state="COMPLETED")))
        await driver.sees("✓ healthy")


GROUP_ID = "20261121-142233-ddp-0000"


def sweep() -> FakeSession:
    """A sweep of three runs: the first has ended and left the queue, the last waits."""
    states = ("COMPLETED", "RUNNING", "PENDING")
    runs = [
        make_run(
            f"{GROUP_ID[:-1]}{index}",
            job_id=f"40_{index}",
            state=state,
            sweep=SweepPoint(GROUP_ID, "lr", 0.1 * (index + 1), index, 3),
        )
        for index, state in enumerate(states)
    ]
    jobs = (
        make_job("40_1", "ada", submit_time_s=NOW_S - 140, raw_job_id="41"),
        make_job("40_[2%2]", "ada", state="PENDING", reason="JobArrayTaskLimit", time_used_s=0),
    )
    ids = [run.run_id for run in runs]
    snapshot = make_snapshot(
        runs=tuple(runs),
        jobs=jobs,
        targets=MappingProxyType({run.run_id: make_target(run) for run in runs[:2]}),
        diagnoses=MappingProxyType(
            {
                ids[0]: replace(nan_diagnosis(ids[0]), state="COMPLETED"),
                ids[1]: replace(nan_diagnosis(ids[1]), state="RUNNING"),
            }
        ),
    )
    return FakeSession(snapshot, {ids[0]: make_history(lost_at=150), ids[1]: make_history()})


async def test_the_row_of_a_sweep_counts_tasks_that_have_left_the_queue() -> None:
    """Slurm forgets ended tasks after some minutes; the runs remember them."""
    async with opened(sweep(), size=(80, 24), are_all_shown=False) as driver:
        await driver.sees("1/3 ended")
        row = next(line for line in driver.text().splitlines() if "1/3 ended" in line)
        assert all(told in row for told in ("40 ×3", " _1 ", "✖ 2/3 NUM001")), row


async def test_the_row_of_a_sweep_leads_to_a_fix_of_a_run_its_findings_and_the_table_of_its_values() -> None:
    async with opened(sweep(), size=(120, 36), are_all_shown=False) as driver:
        await driver.sees("1/3 ended")
        await driver.press("F")
        await driver.reaches("fix")
        await driver.press("escape", "enter")
        await driver.sees("NUM001 The loss is NaN since step 2")
        await driver.press("c")
        await driver.reaches("group")
        await driver.sees("a run for each lr")


async def test_on_a_wide_terminal_the_job_under_the_cursor_stands_beside_and_is_read_when_it_rests(
    tmp_path: Path,
) -> None:
    job = replace(make_job("21", "ada", name="second"), raw_job_id="21", submit_time_s=NOW_S - 900)
    snapshot = make_snapshot()
    session = FakeSession(replace(snapshot, jobs=(*snapshot.jobs, job)), {RUN_ID: make_history(lost_at=150)})
    async with opened(session, size=(200, 50), are_all_shown=False, views=ViewStore(tmp_path)) as driver:
        await driver.until(lambda: "The loss is NaN" in detail(driver), "the run under the cursor")
        before = len(session.watches)
        await driver.press("down")
        assert "second" in detail(driver)
        await driver.until(lambda: session.watches[-1].targets[0] == "21", "it is read")
        assert len(session.watches) > before
        await driver.press("vertical_line")
        assert not driver.app.screen.query_one("#beside").display
        await driver.until(lambda: "detail" in ViewStore(tmp_path).read()[0], "it is kept")
    async with opened(session, size=(200, 50), views=ViewStore(tmp_path)) as driver:
        assert not driver.app.screen.query_one("#beside").display


async def test_a_view_is_saved_under_a_name_chosen_again_and_found_by_its_name(tmp_path: Path) -> None:
    store = ViewStore(tmp_path)
    async with opened(views=store, are_all_shown=False) as driver:
        await driver.press("slash", *"ddp", "enter", "V")
        await driver.pilot.press(*"tests")
        await driver.sees("keep this view under this name")
        await driver.press("enter")
        kept = {"tests": SavedView("tests", View("ddp"))}
        await driver.until(lambda: store.read_saved()[0] == kept, "it is kept")
        await driver.sees("tests · queue")
        await driver.press("escape", "V")
        await driver.pilot.press(*"every")
        await driver.sees("everybody's jobs")
        await driver.press("enter")
        assert driver.app.context.are_all_shown
        await driver.press("colon")
        await driver.pilot.press(*"tests")
        await driver.press("enter")
        await driver.until(lambda: "tests · queue" in driver.text(), "the view of this name")
        assert not driver.app.context.are_all_shown


async def test_todays_failures_are_listed_also_when_the_queue_has_forgotten_them() -> None:
    failed = replace(make_job("9", "ada"), state="FAILED", end_time_s=NOW_S - 3600)
    old = replace(failed, job_id="8", end_time_s=NOW_S - 90_000)
    told = PastJobs(tuple(PastJob(job, source="seen") for job in (failed, old)), (), 0)
    ports = FakePorts(questions=FakeQuestions(failed=told))
    async with opened(ports=ports) as driver:
        await driver.until(lambda: driver.app.context.answers.past_jobs, "what failed is remembered")
        await driver.press("V")
        await driver.pilot.press(*"failed", "enter")
        await driver.sees("failed today · queue")
        assert list(driver.app.screen.query_one("#queue", KeyedTable).keys) == ["9"]
        await driver.press("escape")
        assert list(driver.app.screen.query_one("#queue", KeyedTable).keys) == ["17", "18"]


async def test_a_run_that_completed_with_a_critical_cause_is_among_todays_failures() -> None:
    run = make_run(state="COMPLETED", ended_time_s=NOW_S - 60)
    targets = MappingProxyType({RUN_ID: make_target(run)})
    forgotten = make_snapshot(jobs=(), runs=(run,), targets=targets)
    async with opened(FakeSession(forgotten), are_all_shown=False, size=(120, 36)) as driver:
        await driver.sees("✖ NUM001")
        await driver.press("V")
        await driver.pilot.press(*"failed", "enter")
        await driver.sees("failed today · queue")
        assert list(driver.app.screen.query_one("#queue", KeyedTable).keys) == ["17"]
        await driver.press("enter")
        await driver.reaches("job")


async def test_an_empty_queue_names_the_next_steps() -> None:
    nothing = make_snapshot(jobs=(), runs=(), targets=MappingProxyType({}), diagnoses=MappingProxyType({}))
    async with opened(FakeSession(nothing), are_all_shown=False, size=(80, 24)) as driver:
        await driver.sees("You have no jobs. 1: train a small model, +: launch yours, a: everybody's")


@asynccontextmanager
async def started(directory: Path) -> AsyncIterator[Driver]:
    """coach as a user opens it whose caches are in this directory."""
    session, ports, clock = FakeSession(make_snapshot()), FakePorts(), Clock()
    opening = Opening(session, ports, Mode.LIVE, "ada", "slurm · tiger", "slurm")
    settings = load({"COACH_HOME": str(directory)})
    app = CoachApp(replace(opening, first_start=directory / "cache" / "started", settings=settings), clock)
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot, session, ports, clock)
        await driver.until(lambda: app.context.launch_keys, "the recipes")
        yield driver
        app.workers.cancel_all()


async def test_the_first_start_has_a_strip_that_goes_at_the_first_key_for_good(tmp_path: Path) -> None:
    async with started(tmp_path) as driver:
        await driver.sees("Here: slurm tiger · 6 a100 · 2 partitions")
        await driver.sees("1 trains a small model")
        await driver.press("a")
        assert driver.app.context.are_all_shown
        assert "Here: slurm tiger" not in driver.text()
        await driver.until((tmp_path / "cache" / "started").exists, "it is noted")
    async with started(tmp_path) as driver:
        await driver.press("j")
        assert driver.app.context.here is None
        assert "Here: slurm tiger" not in driver.text()


async def test_a_low_terminal_shows_jobs_rather_than_nodes() -> None:
    async with opened(size=(40, 12)) as driver:
        job_id = driver.app.context.snapshot.jobs[0].job_id
        await driver.sees(f" {job_id} ")
        assert "nodes ·" not in driver.text()
        await driver.pilot.resize_terminal(80, 30)
        await driver.sees("nodes ·")


async def test_an_enlarged_pane_fills_a_small_terminal() -> None:
    session = FakeSession(make_snapshot(), {RUN_ID: make_history(lost_at=150)})
    async with opened(session, size=(40, 12), are_all_shown=False) as driver:
        table = driver.app.screen.query_one("#verdicts", KeyedTable)
        await driver.until(lambda: table.display, "verdicts")
        lines = table.outer_size.height
        await driver.press("tab", "z")
        await driver.until(lambda: table.outer_size.height == 12, "the whole screen")
        await driver.press("z")
        await driver.until(lambda: table.outer_size.height == lines, "its own lines")
