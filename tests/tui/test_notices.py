"""Toasts, bell, terminal and the user's command tell of jobs; nothing does until the config says so."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from coach.analysis.jobs.notices import Notice
from coach.config import NoticeSettings, Settings
from coach.model.errors import UserError
from coach.tui.live_ports import LiveNotices, Reach
from coach.tui.render.notice import notice_text, tab_title, terminal_notice
from tests.tui.driving import Driver, opened
from tests.tui.fake_ports import FakePorts
from tests.tui.fake_session import FakeSession, make_snapshot

BAD = Notice("17", "FAILED: MEM001 CUDA out of memory", is_bad=True)


async def toasts(driver: Driver) -> list[str]:
    await driver.settle()
    return [notice.message for notice in driver.app._notifications]


async def see_a_start(driver: Driver, session: FakeSession) -> None:
    """Job 18 starts."""
    before = session.snapshot
    jobs = tuple(
        replace(job, state="RUNNING", reason=None, nodes="node1") if job.job_id == "18" else job
        for job in before.jobs
    )
    session.push(replace(before, jobs=jobs))
    await driver.settle()


async def test_a_start_is_a_toast_a_line_of_tmux_and_a_command_where_the_config_says_so() -> None:
    session, ports = FakeSession(make_snapshot()), FakePorts()
    settings = NoticeSettings(("toast", "bell", "terminal", "title"), ("tell-me",))
    async with opened(session, ports, notices=settings) as driver:
        await see_a_start(driver, session)
        assert await toasts(driver) == ["18: RUNNING on node1"]
        await driver.until(lambda: ports.notices.in_tmux, "the line of tmux")
        assert ports.notices.in_tmux == ["18: RUNNING on node1"]
        await driver.until(lambda: ports.notices.commands, "the command")
        assert ports.notices.commands == [Notice("18", "RUNNING on node1", is_bad=False)]
        assert driver.app.focused is not None


async def test_the_ways_are_offered_once_and_no_notice_comes_before_the_config_asks_for_it(
    tmp_path: Path,
) -> None:
    offered, session = tmp_path / "new" / "offered", FakeSession(make_snapshot())
    async with opened(session, offered=offered) as driver:
        await see_a_start(driver, session)
        await driver.until(lambda: driver.app._notifications, "the offer")
        (toast,) = await toasts(driver)
        assert 'notify.ways = ["toast", "bell"]' in toast
    async with opened(FakeSession(make_snapshot()), offered=offered) as driver:
        assert await toasts(driver) == []


def test_a_hostile_name_ends_no_sequence_and_becomes_none() -> None:
    text = notice_text(Notice("17", "evil\x1b]0;x\x07;\n" + "x" * 500, is_bad=True))
    assert len(text) == 200
    for term in ("xterm-256color", "foot", "rxvt-unicode"):
        sequence = terminal_notice(text, term)
        assert sequence.count("\x1b") == 1
        assert sequence.index("\x07") == len(sequence) - 1
    assert terminal_notice("a;b", "foot") == "\x1b]777;notify;coach;a,b\x07"
    assert tab_title(BAD) == "\x1b]2;coach · ✖ 17: FAILED: MEM001 CUDA out of memory\x07"


def run(command: str) -> None:
    """As the screens do it."""
    notices = NoticeSettings(command=tuple(shlex.split(command)))
    settings = Settings(Path("/runs"), Path("/cache"), Path("/config"), notices=notices)
    LiveNotices(Reach(settings, dict(os.environ))).run_command(BAD)


def test_the_users_command_gets_the_notice_and_no_shell(tmp_path: Path) -> None:
    program = tmp_path / "tell"
    program.write_text(
        f'#!/bin/sh\necho "$1|$COACH_JOB|$COACH_NOTICE|$COACH_NOTICE_IS_BAD" > {tmp_path}/told\n'
    )
    program.chmod(0o755)
    run(f"{program} '$(id) x'")
    told = (tmp_path / "told").read_text()
    assert told == "$(id) x|17|FAILED: MEM001 CUDA out of memory|1\n"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("/nonexistent/tell", "notify.command: /nonexistent/tell: No such file"),
        ("sh -c 'echo no mail here >&2; exit 3'", "notify.command: exit status 3: no mail here"),
    ],
)
def test_a_failing_command_is_reported(command: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        run(command)
