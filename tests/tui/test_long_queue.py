"""A long queue on the screens: as many rows as there are, and only those in sight are made."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coach.model.slurm.cluster import Job
from coach.tui.render import queue as render_queue
from tests.tui.driving import opened
from tests.tui.fake_session import FakeSession, make_job, make_snapshot

NUM_JOBS = 5000


@pytest.fixture
def rendered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The rows that were made, in this order."""
    made: list[str] = []
    real = render_queue._row

    def noted(row: render_queue.QueueRow, *args: object) -> object:
        made.append(render_queue.row_key(row))
        return real(row, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(render_queue, "_row", noted)
    return made


def jobs_of_bob() -> tuple[Job, ...]:
    return tuple(make_job(str(number), "bob") for number in range(NUM_JOBS))


async def test_only_rows_in_sight_are_made_wherever_the_cursor_goes(rendered: list[str]) -> None:
    async with opened(FakeSession(make_snapshot(jobs=jobs_of_bob()))) as driver:
        await driver.sees(f"{NUM_JOBS:,} jobs, 0 yours")
        await driver.press("G")
        await driver.sees(f" {NUM_JOBS - 1} ")
        await driver.press("pageup", "g")
        await driver.sees(" 0 ")
        rendered.clear()
        await driver.press("j")
        assert rendered == []
    assert len(set(rendered)) < 200


async def test_a_filter_over_the_whole_queue_shows_its_matches(rendered: list[str]) -> None:
    async with opened(FakeSession(make_snapshot(jobs=jobs_of_bob()))) as driver:
        await driver.sees(f"{NUM_JOBS:,} jobs")
        await driver.press("slash", *"id:4321", "enter")
        await driver.sees(f"1 of {NUM_JOBS:,}")
        await driver.sees(" 4321 ")
        assert len(rendered) < 1000


async def test_everybodys_jobs_are_asked_for_only_while_they_are_shown() -> None:
    session = FakeSession(make_snapshot())
    async with opened(session, are_all_shown=False) as driver:
        await driver.until(lambda: session.watches and not session.watches[-1].all_jobs, "own jobs alone")
        await driver.press("a")
        await driver.until(lambda: session.watches[-1].all_jobs, "everybody's jobs are asked for")
        session.push(replace(session.snapshot, jobs=(), is_queue_whole=False))
        await driver.sees("0 yours, asking for everybody's…")
        await driver.sees("waiting for the first answer…")
        await driver.press("a")
        await driver.until(lambda: not session.watches[-1].all_jobs, "only one's own again")
