"""The Reservations screen, driven by keys: what is reserved, for whom, and how that is known."""

from __future__ import annotations

from dataclasses import replace

from coach.model.errors import UserError, hidden_by_site
from coach.model.slurm.accounting import Part
from coach.model.slurm.cluster import Reservation
from coach.render.text import line_width, plain
from coach.tui.mode import Mode
from coach.tui.question import FRESH_S
from coach.tui.render.reservations import reservation_lines
from tests.tui.driving import go_to, opened
from tests.tui.fake_ports import FakePorts, FakeQuestions
from tests.tui.fake_session import NOW_S

COURSE = Reservation(
    name="course",
    state="active",
    start_time_s=NOW_S - 3600,
    end_time_s=NOW_S + 7200,
    nodes="node[1-2]",
    num_nodes=2,
    flags=("IGNORE_JOBS", "SPEC_NODES"),
    users=("ada", "bob"),
    accounts=(),
    partition=None,
)
MAINT = replace(
    COURSE,
    name="maint",
    state="inactive",
    start_time_s=NOW_S + 7200,
    end_time_s=NOW_S + 10800,
    flags=("MAINT",),
    users=("root",),
)


def shown(told: Part[tuple[Reservation, ...]], width: int = 78) -> str:
    rows = reservation_lines(told, "ada", NOW_S, width)
    assert all(line_width(row) <= width for row in rows)
    return "\n".join(plain(row).rstrip() for row in rows)


def asking(told: Part[tuple[Reservation, ...]], refusal: UserError | None = None) -> FakePorts:
    return FakePorts(questions=FakeQuestions(reservations=told, refusal=refusal))


async def test_a_key_lists_what_is_reserved_with_its_age_in_a_small_terminal() -> None:
    ports = asking(Part((MAINT, COURSE)))
    async with opened(ports=ports, size=(80, 24)) as driver:
        await driver.press("K")
        await driver.reaches("reservations")
        await driver.sees("● course  active")
        await driver.sees("○ maint for maintenance  inactive")
        await driver.sees("began 60 min ago, ends in 2 h, lasts 3:00:00")
        await driver.sees("node[1-2] (2 nodes)")
        await driver.sees("you: users ada, bob")
        await driver.sees("asked 0 s ago, ^r asks again")
        text = driver.text()
        assert text.index("course") < text.index("maint"), "what holds now comes first"


async def test_opening_it_again_asks_slurm_once_a_minute_at_most() -> None:
    ports = asking(Part((COURSE,)))
    async with opened(ports=ports) as driver:
        for _ in range(2):
            await go_to(driver, "reservations")
            await driver.sees("● course")
            await driver.press("escape")
            await driver.reaches("cluster")
        assert ports.questions.asked == ["reservations"]
        driver.clock.turn(FRESH_S + 1)
        await driver.press("K")
        await driver.until(lambda: len(ports.questions.asked) == 2, "an old answer is asked for again")


async def test_a_slurm_that_does_not_answer_is_not_an_empty_list() -> None:
    async with opened(ports=asking(Part(()), UserError("Unable to contact slurm controller"))) as driver:
        await driver.press("K")
        await driver.sees("not available: Unable to contact slurm controller")
        assert "no reservation" not in driver.text()


async def test_a_recording_says_that_it_has_no_reservations() -> None:
    async with opened(mode=Mode.DEMO) as driver:
        await driver.press("K")
        await driver.sees("this is a recording: it does not hold this")


def test_what_the_site_hides_is_not_said_to_be_absent() -> None:
    hidden: Part[tuple[Reservation, ...]] = Part((), hidden_by_site("others' reservations"))
    assert shown(hidden).splitlines() == [
        " ▲ others' reservations are hidden by the site (PrivateData)",
        " no reservation that you may see",
    ]
    assert shown(Part(())) == " no reservation on this cluster"


def test_what_slurm_does_not_say_is_unknown() -> None:
    bare = replace(COURSE, start_time_s=None, end_time_s=None, nodes=None, num_nodes=None, users=(), flags=())
    text = shown(Part((bare,), None, 1))
    assert "1 line of Slurm could not be read" in text
    assert "– (no start is known), – (no end is known)" in text
    assert "– (–)" in text
    assert "– (Slurm names no user and no account)" in text
