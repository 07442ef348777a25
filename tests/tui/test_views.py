"""The queue and the nodes filtered, sorted and cut to columns, and all that kept from one start to the
next."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from coach.analysis.query.job_fields import job_vocabulary
from coach.model.slurm.accounting import Efficiency, PastJob
from coach.sources.slurm.node_sets import expand_nodes
from coach.tui.mode import Mode
from coach.tui.render.queue import JOB_COLUMNS
from coach.tui.table_view import TableView
from coach.tui.widgets.keyed_table import KeyedTable
from coach.workflows.jobs.ended_jobs import PastJobs
from coach.workflows.watching.table_views import FILE_NAME, View, ViewStore
from tests.tui.driving import Driver, opened
from tests.tui.fake_ports import FakePorts, FakeQuestions
from tests.tui.fake_session import NOW_S, FakeSession, make_job, make_snapshot


def ids(driver: Driver) -> list[str]:
    """The jobs of the queue, from top to bottom."""
    return list(driver.app.screen.query_one("#queue", KeyedTable)._rows.keys)


def queue_text(driver: Driver) -> str:
    """The screen below the title of the queue, as far as the nodes."""
    return driver.text().split("queue ·")[1].split("nodes ·")[0]


async def type_in(driver: Driver, text: str) -> None:
    names = {
        " ": "space",
        ":": "colon",
        ">": "greater_than_sign",
        ",": "comma",
        "-": "minus",
        "!": "exclamation_mark",
    }
    await driver.press(*(names.get(char, char) for char in text))


async def test_the_queue_takes_the_words_of_the_command_line_and_counts_its_matches() -> None:
    async with opened() as driver:
        await driver.press("slash")
        await type_in(driver, "state:pending user:me")
        await driver.sees('filter "state:pending user:me": 1 of 4')
        assert ids(driver) == ["18"]
        await driver.press("enter", "escape")
        assert len(ids(driver)) == 4


async def test_a_filter_with_a_mistake_shows_the_error_and_the_last_good_filter_stays() -> None:
    async with opened() as driver:
        await driver.press("slash")
        await type_in(driver, "user:bob gpus:1x")
        await driver.sees("gpus:1x: expected 4, >0")
        assert ids(driver) == ["12"]
        assert 'filter "user:bob gpus:1": 1 of 4' in driver.text()
        await driver.press("backspace")
        await driver.until(lambda: "expected" not in driver.text(), "no slip any more")


async def test_escape_drops_typed_text() -> None:
    async with opened() as driver:
        await driver.press("slash", "z", "z", "escape")
        assert len(ids(driver)) == 4
        await driver.press("C", "ctrl+u")
        await type_in(driver, "user")
        assert "STATE" not in queue_text(driver)
        await driver.press("escape")
        assert "STATE" in queue_text(driver)


async def test_a_key_sorts_by_one_column_after_the_other_and_another_turns_the_order_round() -> None:
    jobs = tuple(make_job(str(number), num_gpus=gpus) for number, gpus in ((20, 2), (21, None), (22, 8)))
    async with opened(FakeSession(make_snapshot(jobs=jobs)), size=(200, 36)) as driver:
        queue = driver.app.screen.query_one("#queue", KeyedTable)
        at_first = ids(driver)
        steps = [name for name in queue.shown_columns if name != "own"]
        await driver.press(*"s" * (steps.index("gpus") + 1))
        assert "↑" in driver.text()
        assert ids(driver) == ["20", "22", "21"]
        await driver.press("I")
        assert "↓" in driver.text()
        assert ids(driver) == ["22", "20", "21"]
        await driver.press(*"s" * (len(steps) - steps.index("gpus")))
        assert ids(driver) == at_first
        assert "↓" not in driver.text()
        await driver.press("I")
        await driver.sees("nothing to reverse")


async def test_columns_are_chosen_by_name_also_those_that_are_not_there_at_first() -> None:
    jobs = (make_job("20", account="physics", priority=77),)
    async with opened(FakeSession(make_snapshot(jobs=jobs))) as driver:
        await driver.press("C", "ctrl+u")
        await type_in(driver, "account id priority")
        await driver.press("enter")
        header = next(line for line in driver.text().splitlines() if "ACCOUNT" in line)
        assert header.split() == ["ACCOUNT", "JOB", "ID", "PRIORITY"]
        assert "physics" in driver.text()
        await driver.press("C", "ctrl+u")
        await type_in(driver, "acount")
        await driver.sees('no column "acount"; did you mean account?')
        await driver.press("ctrl+u", "enter")
        assert "LEFT/START" in driver.text()


async def test_the_nodes_are_filtered_by_words_of_their_own() -> None:
    async with opened() as driver:
        await driver.press("shift+tab", "slash")
        await type_in(driver, "free:>0")
        await driver.sees('nodes · 3 · filter "free:>0": 2 of 3')
        assert "disk failure" not in driver.text()
        assert len(ids(driver)) == 4


async def test_views_are_as_they_were_left_at_the_last_start(tmp_path: Path) -> None:
    async with opened(views=ViewStore(tmp_path)) as driver:
        await driver.press("slash")
        await type_in(driver, "vasp")
        await driver.press("enter", "s", "C", "ctrl+u")
        await type_in(driver, "id user")
        await driver.press("enter")
        kept = View("vasp", "id", "job_id,user")
        await driver.until(lambda: ViewStore(tmp_path).read()[0].get("queue") == kept, "it is kept")
    async with opened(views=ViewStore(tmp_path)) as driver:
        await driver.sees('filter "vasp": 2 of 4')
        assert ids(driver) == ["12", "13"]
        assert "JOB ID↑" in driver.text()
        assert "STATE" not in queue_text(driver)


@pytest.mark.parametrize("mode", [Mode.READONLY, Mode.ROOT, Mode.REPLAY, Mode.DEMO])
async def test_nothing_is_kept_where_nothing_may_be_changed(mode: Mode, tmp_path: Path) -> None:
    async with opened(mode=mode, views=ViewStore(tmp_path)) as driver:
        await driver.press("s", "slash", "v", "enter")
        await driver.sees('filter "v": 2 of 4')
    assert not (tmp_path / FILE_NAME).exists()


async def test_a_kept_view_with_an_unknown_key_is_reported_and_the_rest_of_it_applies(tmp_path: Path) -> None:
    ViewStore(tmp_path).keep({"queue": View("colour:red", "-id", "")})
    async with opened(views=ViewStore(tmp_path)) as driver:
        await driver.sees('no key "colour"')
        assert ids(driver) == ["18", "17", "13", "12"]
    (tmp_path / FILE_NAME).write_bytes(b"\xff")
    async with opened(views=ViewStore(tmp_path)) as driver:
        await driver.sees("not in the form that coach writes")
        assert len(ids(driver)) == 4


async def test_the_cursor_stays_on_its_job_when_the_order_changes() -> None:
    session = FakeSession(make_snapshot())
    async with opened(session) as driver:
        await driver.press("down")
        queue = driver.app.screen.query_one("#queue", KeyedTable)
        held = queue.cursor_key
        await driver.press("s", "I")
        assert queue.cursor_key == held
        session.push(replace(session.snapshot, jobs=(*session.snapshot.jobs, make_job("99"))))
        await driver.sees("5 jobs")
        assert ids(driver)[0] == "99"
        assert queue.cursor_key == held


async def test_the_history_is_filtered_and_sorted_by_its_own_words() -> None:
    ended = (
        PastJob(make_job("7", state="COMPLETED", num_gpus=2), Efficiency(gpu_pct=90.0)),
        PastJob(make_job("8", state="FAILED", exit_code=1, num_gpus=2), Efficiency(gpu_pct=3.0)),
        PastJob(make_job("9", state="COMPLETED"), source="seen"),
    )
    async with opened(ports=FakePorts(questions=FakeQuestions(past=PastJobs(ended, (), 0)))) as driver:
        await driver.press("H", "slash")
        await type_in(driver, "use_gpu:<30")
        await driver.press("enter")
        await driver.sees('3 ended jobs · filter "use_gpu:<30": 1 of 3')
        await driver.press("escape", "C", "ctrl+u")
        await type_in(driver, "id use_gpu")
        await driver.press("enter", "s", "s", "I")
        await driver.sees("GPU↓")
        table = driver.app.screen.query_one("#past", KeyedTable)
        assert [key.split()[0] for key in table._rows.keys] == ["7", "8", "9"]


def test_sorting_goes_through_the_columns_of_a_narrow_list_and_names_the_others() -> None:
    view = TableView(lambda: job_vocabulary("ada", NOW_S, expand_nodes), JOB_COLUMNS)
    shown = ("job_id", "short_name", "state", "doing", "why")
    sorted_by = []
    for _ in range(4):
        view.sort_by_next(shown)
        sorted_by.append(view.view.sort)
        assert view.sort_words(shown).endswith("; not sortable: PROGRESS, FINDING, WHY")
    assert sorted_by == ["id", "name", "state", ""]
