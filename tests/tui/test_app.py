"""The screens, driven by keys on a scripted session."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest

from coach.lookback.history import History
from coach.model.errors import UserError
from coach.model.judging.finding import Diagnosis, Verdict
from coach.model.slurm.cluster import Job
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogTail
from coach.render.text import plain
from coach.sources.logs.printed_metrics import PrintedNumbers
from coach.tui.key_guard import GUARD_S
from coach.tui.keys import keys_of
from coach.tui.mode import Mode
from coach.tui.screen_specs import by_name
from coach.tui.widgets.keyed_table import KeyedTable
from coach.tui.widgets.lines import LinesView
from tests.tui.driving import go_to, opened
from tests.tui.fake_ports import FakeJobActions, FakePorts
from tests.tui.fake_session import (
    CHILD_ID,
    NOW_S,
    RUN_ID,
    FakeSession,
    applied_fix,
    make_history,
    make_job,
    make_run,
    make_snapshot,
    make_target,
    nan_diagnosis,
    status,
)

SIZES = [(80, 24), (120, 36)]


@pytest.mark.parametrize("size", SIZES)
async def test_the_first_screen_shows_partitions_nodes_queue_and_the_age_of_the_data(
    size: tuple[int, int],
) -> None:
    async with opened(size=size) as driver:
        text = driver.text()
        for part in (
            "slurm · tiger",
            "cpu default",
            "node3",
            "✖ down+drain",
            "a100 1/2",
            "JOB ID",
            "jobs 2 s",
            "? keys",
            "q quit",
        ):
            assert part in text, part


async def test_own_jobs_stand_first_and_are_marked_by_a_sign() -> None:
    async with opened() as driver:
        queue = driver.text().partition("your trainings")[0]
        rows = [row for row in queue.splitlines() if "coach-ddp" in row or "vasp" in row]
        assert [row.split()[0] for row in rows] == ["▸", "▸", "12", "13"]


async def test_a_hides_the_jobs_of_others_and_shows_them_again() -> None:
    async with opened() as driver:
        await driver.press("a")
        assert "vasp" not in driver.text()
        await driver.press("a")
        assert "vasp" in driver.text()


async def test_a_filter_narrows_the_queue_while_typing_and_escape_clears_it() -> None:
    async with opened() as driver:
        await driver.press("slash", *"bob pend", "enter")
        await driver.sees('filter "bob pend": 1')
        queue = driver.app.screen.query_one("#queue", KeyedTable)
        assert list(queue.keys) == ["13"]
        await driver.press("escape")
        assert len(queue.keys) == 4
        assert driver.place == "cluster"


async def test_the_cursor_stays_on_its_job_when_jobs_come_above_it() -> None:
    session = FakeSession(make_snapshot())
    async with opened(session) as driver:
        await driver.press("down", "down")
        queue = driver.app.screen.query_one("#queue")
        assert queue.cursor_key == "12"  # type: ignore[attr-defined]  # a KeyedTable
        new = tuple(make_job(str(number), submit_time_s=NOW_S) for number in range(100, 105))
        session.push(replace(session.snapshot, jobs=(*session.snapshot.jobs, *new)))
        await driver.sees("104")
        assert queue.cursor_key == "12"  # type: ignore[attr-defined]  # a KeyedTable


async def test_a_controller_that_does_not_answer_is_shown_with_the_age_of_the_data() -> None:
    words = "slurmctld does not answer: Unable to contact slurm controller (connect failure)"
    sources = MappingProxyType(
        {"jobs": status("jobs", 42, words), "nodes": status("nodes", 42, words), "runs": status("runs")}
    )
    async with opened(FakeSession(make_snapshot(sources=sources)), size=(120, 36)) as driver:
        text = driver.text()
        assert f"✖ {words} · jobs, nodes: data 42 s old" in text
        assert "node3" in text
        driver.clock.turn(5)
        driver.app.context.snapshot_time_s = driver.clock() - 5
        driver.app.screen.tick()  # type: ignore[attr-defined]  # a CoachScreen
        await driver.sees("data 47 s old")


async def test_rows_that_could_not_be_read_are_counted() -> None:
    sources = MappingProxyType({"jobs": status("jobs", num_bad_rows=3)})
    async with opened(FakeSession(make_snapshot(sources=sources))) as driver:
        assert "3 rows of jobs could not be read" in driver.text()


@pytest.mark.parametrize(
    "name",
    [
        "[bold red]x",
        "[@click=app.quit]x[/]",
        "[/nope]y",
        "a\x1b[31mb",
        "new\nline",
        "\u202egnp.exe",
        "a|b",
        "\udcff",
    ],
)
async def test_a_hostile_name_is_text_and_nothing_else(name: str) -> None:
    jobs = (make_job("17", name=name), make_job("18", name="after"))
    async with opened(FakeSession(make_snapshot(jobs=jobs))) as driver:
        text = driver.text()
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert sum("▸" in row for row in text.splitlines()) == 2
        if name.startswith("["):
            assert name[:10] in text
        await driver.press("x")
        await driver.sees("$ scancel 17")
        await driver.press("escape")
        assert driver.app.is_running


@pytest.mark.parametrize("size", SIZES)
async def test_the_run_screen_shows_finding_curves_nodes_and_log(size: tuple[int, int]) -> None:
    async with opened(size=size) as driver:
        await driver.press("enter")
        await driver.reaches("job")
        await driver.sees("samples/s")
        text = driver.text()
        for part in (
            "● RUNNING",
            "2:10 of 30:00",
            "✖ critical NUM001",
            "F fix",
            "loss NaN",
            "not finite from step 150",
            "waits for data",
            "step 59 loss",
        ):
            assert part in text, part
        await driver.press("pagedown")
        await driver.sees("lr 1e+20")
        await driver.sees("node1")


async def test_o_and_e_choose_the_log() -> None:
    async with opened() as driver:
        await driver.press("enter")
        await driver.reaches("job")
        await driver.press("e")
        await driver.sees("a warning from torch")
        await driver.press("o")
        await driver.sees("step 59 loss")


async def test_a_foreign_job_opens_as_its_facts() -> None:
    async with opened() as driver:
        await driver.press("down", "down", "enter")
        await driver.reaches("job")
        await driver.sees("vasp")


async def test_the_page_of_a_foreign_job_shows_what_its_lines_print() -> None:
    def line(step: int) -> str:
        return f"step {step}/5000 loss {2.3 - step / 100:.2f} tokens/s 40946 data_time 0.2 step_time 0.5"

    lines = [line(step) for step in range(121)]
    history = History()
    history.add_steps(PrintedNumbers().take(("\n".join(lines) + "\n").encode())[0])
    job = replace(make_job("99"), raw_job_id="99", name="bert", state="RUNNING")
    tails = (LogTail("slurm-99.out", 1, tuple(lines), 9000, len(lines)),)
    session = FakeSession(
        make_snapshot(
            jobs=(job,),
            targets=MappingProxyType({"99": TargetSnapshot("99", NOW_S, job=job, log_tails=tails)}),
        ),
        {"99": history},
    )
    async with opened(session, size=(80, 24)) as driver:
        await driver.press("enter")
        await driver.reaches("job")
        await driver.sees("step 120 of 5,000, 40:40 left by its last 60 steps")
        await driver.sees("waits for data 40% of it")
        await driver.sees("40,946 tokens/s, steady")
        await driver.sees("loss 1.1 at step 120, falls since step 0")


async def test_a_run_that_is_looked_at_is_followed() -> None:
    async with opened() as driver:
        await driver.press("enter")
        await driver.reaches("job")
        await driver.until(lambda: driver.session.watches[-1].targets == (RUN_ID,), "the run is followed")


async def test_x_shows_the_exact_command_and_y_does_it() -> None:
    async with opened() as driver:
        await driver.press("x")
        await driver.sees("$ scancel 17")
        driver.clock.turn(GUARD_S + 0.1)
        await driver.press("enter")
        assert driver.ports.job_actions.performed == []
        driver.clock.turn(GUARD_S + 0.1)
        await driver.press("y")
        await driver.until(
            lambda: [each.job_ids for each in driver.ports.job_actions.performed] == [("17",)], "cancelled"
        )
        await driver.reaches("cluster")


async def test_x_and_y_in_one_burst_cancel_nothing() -> None:
    async with opened() as driver:
        await driver.press("x", "enter", "enter", "y", "y")
        await driver.sees("$ scancel 17")
        await driver.press("y")
        assert driver.ports.job_actions.performed == []


async def test_another_user_s_job_cannot_be_cancelled() -> None:
    async with opened() as driver:
        await driver.press("down", "down", "x")
        await driver.sees("job 12 is bob's, not yours")
        assert driver.place == "cluster"


async def test_a_refused_cancel_is_shown_whole() -> None:
    async with opened(
        ports=FakePorts(
            job_actions=FakeJobActions(refusal=UserError("scancel: error: Kill job error on job id 17"))
        )
    ) as driver:
        await driver.press("x")
        await driver.sees("$ scancel 17")
        driver.clock.turn(1)
        await driver.press("y")
        await driver.sees("Kill job error on job id 17")


@pytest.mark.parametrize(
    ("mode", "reason"), [(Mode.READONLY, "read-only"), (Mode.REPLAY, "recording"), (Mode.DEMO, "recording")]
)
async def test_without_the_right_to_change_anything_keys_say_why(mode: Mode, reason: str) -> None:
    async with opened(mode=mode) as driver:
        assert mode.value in driver.text().splitlines()[0]
        for key in ("x", "2"):
            await driver.press(key)
            await driver.sees(reason)
            assert driver.place == "cluster"
        await driver.press("enter")
        await driver.reaches("job")
        await driver.press("F")
        await driver.sees(reason)
        assert driver.place == "job"
        assert driver.ports.launches.requests == []


async def test_the_fix_shows_its_changes_and_relaunches_on_y_alone() -> None:
    async with opened() as driver:
        await driver.press("enter")
        await driver.reaches("job")
        await driver.press("F", "y")
        await driver.sees("relaunches as a child run")
        text = driver.text()
        for part in (
            "lr  1e+20  →  0.05",
            "changes the training result",
            "is still running",
            "(•) cancel",
            "40 steps would be lost",
            "lost: 0.3 GPU-hours since the newest complete checkpoint",
            "incomplete: step-80.pt (PyTorch, step 80): its end is missing",
            "-  --lr 1e+20",
        ):
            assert part in text, part
        assert driver.ports.fixes.relaunched == []
        driver.clock.turn(GUARD_S + 0.1)
        await driver.press("enter")
        assert driver.ports.fixes.relaunched == []
        await driver.press("p")
        await driver.sees("(•) keep")
        assert "GPU-hours" not in driver.text()
        driver.clock.turn(GUARD_S + 0.1)
        await driver.press("y")
        await driver.until(lambda: driver.ports.fixes.relaunched, "relaunched")
        assert driver.ports.fixes.relaunched[0][1] == "keep"
        await driver.reaches("job")
        assert driver.app.screen.target == CHILD_ID  # type: ignore[attr-defined]  # a JobScreen


async def test_a_fix_is_tried_short_beside_the_run_that_it_comes_from() -> None:
    async with opened() as driver:
        await driver.press("enter")
        await driver.reaches("job")
        await driver.press("F")
        await driver.sees("(•) cancel")
        await driver.press("b")
        await driver.sees("tries it for a few steps beside this run")
        await driver.sees("(•) keep")
        driver.clock.turn(GUARD_S + 0.1)
        await driver.press("y")
        await driver.until(lambda: driver.ports.fixes.relaunched, "relaunched")
        offer, choice = driver.ports.fixes.relaunched[0]
        assert (offer.plan.request.set["max_steps"], choice) == (100, "keep")


def family() -> FakeSession:
    parent = make_run(state="CANCELLED", ended_time_s=NOW_S - 50)
    child = make_run(CHILD_ID, job_id="19", parent_run_id=RUN_ID, fix=applied_fix(), parameters={"lr": 0.05})
    snapshot = make_snapshot(
        runs=(parent, child),
        targets=MappingProxyType({RUN_ID: make_target(parent), CHILD_ID: make_target(child)}),
        diagnoses=MappingProxyType(
            {
                RUN_ID: replace(nan_diagnosis(), state="CANCELLED"),
                CHILD_ID: Diagnosis(CHILD_ID, "RUNNING", (), (), health=Verdict.HEALTHY),
            }
        ),
    )
    return FakeSession(snapshot, {RUN_ID: make_history(400, lost_at=2), CHILD_ID: make_history(400)})


@pytest.mark.parametrize("size", SIZES)
async def test_a_child_run_names_its_parent_and_c_compares_them(size: tuple[int, int]) -> None:
    async with opened(family(), size=size) as driver:
        await driver.press("r")
        await driver.reaches("runs")
        await driver.press("enter")
        await driver.reaches("job")
        await driver.sees(f"child of {RUN_ID}")
        await driver.sees("✓ healthy")
        await driver.press("c")
        await driver.reaches("compare")
        for part in ("before", RUN_ID, CHILD_ID, "throughput", "step time", "±", "finite"):
            await driver.sees(part)


async def test_nothing_is_compared_while_a_run_is_still_read() -> None:
    """The child has ended since it was judged; its last losses are not here."""
    session = family()
    before = session.snapshot
    ended = make_run(CHILD_ID, job_id="19", parent_run_id=RUN_ID, state="COMPLETED", ended_time_s=NOW_S)
    target = make_target(ended)
    session = FakeSession(
        replace(before, targets=MappingProxyType({**before.targets, CHILD_ID: target})),
        {RUN_ID: make_history(400), CHILD_ID: make_history(10)},
    )
    async with opened(session) as driver:
        await driver.press("r", "enter", "c")
        await driver.reaches("compare")
        await driver.sees("reading ddp-")
        assert "VERDICT" not in driver.text()
        done = replace(before.diagnoses[CHILD_ID], state="COMPLETED")
        key = f"metrics:{CHILD_ID}"
        judged = replace(session.snapshot, diagnoses={**before.diagnoses, CHILD_ID: done}, now_s=NOW_S + 1.0)
        session.push(replace(judged, sources={key: status(key, age_s=1.0)}))
        await driver.sees("reading ddp-")
        assert "VERDICT" not in driver.text()
        session.push(replace(judged, sources={key: status(key, age_s=-1.0)}))
        await driver.sees("VERDICT")
        assert "reading" not in driver.text()


async def test_two_marked_runs_are_compared_the_older_first() -> None:
    async with opened(family()) as driver:
        await driver.press("r")
        await driver.reaches("runs")
        await driver.press("m", "down", "m")
        await driver.sees("2 marked")
        await driver.press("c")
        await driver.reaches("compare")
        text = driver.text()
        assert text.index(RUN_ID) < text.index(CHILD_ID)


async def test_the_list_of_runs_keeps_a_finding_that_was_once_known() -> None:
    session = FakeSession(make_snapshot(), {RUN_ID: make_history()})
    async with opened(session) as driver:
        session.push(make_snapshot(diagnoses=MappingProxyType({}), targets=MappingProxyType({})))
        await driver.press("r")
        await driver.sees("✖ NUM001")


async def test_help_lists_every_key_that_works_on_the_screen() -> None:
    """Checks each screen that keys reach from the first one, in one app, because its start costs more than
    the keys."""
    path: dict[str, list[str]] = {
        "cluster": [],
        "runs": ["r"],
        "job": ["enter"],
        "doctor": ["d"],
        "recipes": ["R"],
        "new_launch": ["plus"],
        "drills": ["P"],
        "history": ["H"],
        "log": ["l"],
        "where": ["W"],
        "reservations": ["K"],
        "findings": ["f"],
        "cohort": ["L"],
        "gpus": ["enter", "D"],
        "explained": ["E"],
        "rule": [],
        "node": ["shift+tab", "enter"],
    }
    behind_others = {"help", "plan", "confirm", "fix", "foreign_fix", "finding", "compare", "group"}
    assert path.keys() == by_name().keys() - behind_others - {"stacks", "answer"}
    async with opened(size=(120, 60)) as driver:
        for place, keys in path.items():
            if place == "rule":
                await go_to(driver, "num001", "NUM001")
            elif keys:
                await driver.press(*keys)
            await driver.reaches(place)
            bound = {binding.key for _, binding, *_ in driver.app.screen.active_bindings.values()}
            keys_here = keys_of(by_name()[place], driver.app.context.launch_keys)
            wanted = [key for key in keys_here if not key.is_of_story]
            assert {key.key for key in wanted} <= bound | {"ctrl+p"}, place
            await driver.press("question_mark")
            await driver.reaches("help")
            listed = "\n".join(map(plain, driver.app.screen.query_one("#body", LinesView).lines))
            for key in wanted:
                assert key.description in listed, (place, key.id)
            while driver.place != "cluster":
                await driver.press("escape")


async def test_a_queue_of_thousands_is_shown_to_its_last_row() -> None:
    jobs: tuple[Job, ...] = tuple(make_job(str(i), "bob") for i in range(6000))
    async with opened(FakeSession(make_snapshot(jobs=jobs))) as driver:
        await driver.press("G")
        await driver.sees(" 5999 ")


async def test_a_screen_that_fails_ends_the_app_and_keeps_the_reason() -> None:
    class Broken(FakeSession):
        def refresh_soon(self, *, is_cluster_only: bool = False) -> None:
            raise ZeroDivisionError("a bug")

    with pytest.raises(ZeroDivisionError, match="a bug"):
        async with opened(Broken(make_snapshot())) as driver:
            await driver.press("ctrl+r")


async def test_leaving_stops_the_session() -> None:
    session = FakeSession(make_snapshot())
    async with opened(session) as driver:
        await driver.press("q")
    assert session.is_stopped
