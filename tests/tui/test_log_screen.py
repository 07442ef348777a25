"""The log screen: any part of a file of any size, a search, and the growing end."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType

import pytest
from textual import events

from coach.model.snapshot import Snapshot, TargetSnapshot
from coach.model.training.log import LogFile, LogTail
from coach.model.training.log_window import LogLook
from coach.sources.io import SystemIo
from coach.sources.logs import log_windows
from coach.tui.screens.log import LogScreen
from coach.tui.widgets.log_pager import LogPager
from tests.tui.driving import Driver, opened
from tests.tui.fake_session import NOW_S, FakeSession, make_job, make_snapshot

_JOB = "21"


def _tail(path: Path) -> LogTail:
    lines = path.read_text().splitlines()
    return LogTail(str(path), max(1, len(lines) - 399), tuple(lines[-400:]), path.stat().st_size, len(lines))


def _session(*paths: Path) -> FakeSession:
    return FakeSession(_snapshot(*paths))


def _tell(session: FakeSession, *paths: Path) -> None:
    session.push(_snapshot(*paths))


def _snapshot(*paths: Path) -> Snapshot:
    target = TargetSnapshot(
        _JOB,
        NOW_S,
        job=make_job(_JOB, "ada"),
        log_files=tuple(LogFile(str(path), is_found=True) for path in paths),
        log_tails=tuple(map(_tail, paths)),
    )
    return make_snapshot(jobs=(make_job(_JOB, "ada"),), targets=MappingProxyType({_JOB: target}))


def _write(folder: Path, lines: Sequence[str], name: str = "job.out") -> Path:
    path = folder / name
    path.write_text("\n".join(lines) + "\n")
    return path


def has_answer(driver: Driver) -> bool:
    screen = driver.app.screen
    return isinstance(screen, LogScreen) and screen._look is None


async def _open_log(driver: Driver, place: tuple[str, int] | None = None) -> LogPager:
    driver.app._go("log", _JOB, *([place] if place else []))
    await driver.reaches("log")
    await driver.until(lambda: driver.app.screen.query(LogPager), "the pager")
    pager = driver.app.screen.query_one(LogPager)
    await driver.until(lambda: pager.window is not None, "a window")
    await driver.settle()
    return pager


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A window of some hundred lines, so that a small file has many."""
    monkeypatch.setattr(log_windows, "_HALF_BYTES", 4000)


def _steps(count: int) -> list[str]:
    return [f"step {number} all is well" for number in range(1, count + 1)]


async def test_it_opens_at_the_end_and_goes_to_the_beginning(tmp_path: Path, small_windows: None) -> None:
    path = _write(tmp_path, _steps(5000))
    async with opened(_session(path)) as driver:
        await _open_log(driver)
        await driver.sees("step 5000 all")
        await driver.sees("of 5,000")
        await driver.press("g")
        await driver.sees("lines 1-")
        await driver.sees("step 1 all")
        await driver.press("G")
        await driver.sees("step 5000 all")


async def test_scrolling_crosses_the_edges_of_windows(tmp_path: Path, small_windows: None) -> None:
    path = _write(tmp_path, _steps(600))
    async with opened(_session(path), size=(80, 24)) as driver:
        pager = await _open_log(driver)
        await driver.sees("step 600 all")
        seen: set[int] = set()
        while 1 not in seen:
            rows = [row.split() for row in driver.text().splitlines()]
            new = {int(row[row.index("step") + 1]) for row in rows if "step" in row}
            assert not seen or max(new) + 2 >= min(seen), "lines were left out"
            seen |= new
            await driver.press("pageup")
            await driver.until(partial(has_answer, driver), "an answer")
            await driver.settle()
        assert seen == set(range(min(seen), 601))
        assert pager.window is not None


async def test_it_follows_its_end_and_stands_still_above(tmp_path: Path) -> None:
    path = _write(tmp_path, _steps(200))
    session = _session(path)
    async with opened(session) as driver:
        pager = await _open_log(driver)
        _write(tmp_path, _steps(300))
        _tell(session, path)
        await driver.sees("step 300 all")
        await driver.press("pageup")
        await driver.until(lambda: not pager.follows, "the page above")
        before = driver.text()
        _write(tmp_path, _steps(400))
        _tell(session, path)
        await driver.settle()
        assert "step 400" not in driver.text()
        assert before.splitlines()[5:20] == driver.text().splitlines()[5:20]


async def test_an_end_that_was_read_while_the_user_left_it_is_not_shown(tmp_path: Path) -> None:
    path = _write(tmp_path, _steps(200))
    session = _session(path)
    async with opened(session) as driver:
        pager = await _open_log(driver)
        screen = driver.app.screen
        assert isinstance(screen, LogScreen)
        look = screen._look = screen._following = LogLook((str(path),))  # under way
        await driver.press("pageup")
        await driver.until(lambda: not pager.follows, "the page above")
        before = driver.text()
        _write(tmp_path, _steps(300))
        screen.set_window(look, log_windows.LogWindows(SystemIo({}), path).look(look))
        await driver.settle()
        assert before.splitlines()[5:20] == driver.text().splitlines()[5:20]
        await driver.press("G")
        _tell(session, path)
        await driver.sees("step 300 all")


@pytest.mark.parametrize("size", [(60, 14), (150, 45)])
async def test_the_end_stays_in_sight_after_a_resize(tmp_path: Path, size: tuple[int, int]) -> None:
    path = _write(tmp_path, [*_steps(300), "x" * 500, "the last line"])
    async with opened(_session(path)) as driver:
        await _open_log(driver)
        await driver.sees("the last line")
        await driver.pilot.resize_terminal(*size)
        await driver.sees("the last line")


async def test_words_are_found_in_the_whole_file_and_esc_forgets_them(
    tmp_path: Path, small_windows: None
) -> None:
    lines = _steps(5000)
    lines[99] = "the Needle in it"
    async with opened(_session(_write(tmp_path, lines))) as driver:
        pager = await _open_log(driver)
        await driver.press("g")
        await driver.sees("step 1 all")
        await driver.press("slash", *"needle", "enter")
        await driver.sees("▸")
        await driver.sees("the Needle in it")
        await driver.press("n")
        await driver.sees("wrapped: not found below, so this is the first from the beginning")
        await driver.press("slash", *"zebra", "enter")
        await driver.sees("not found in this log: ")
        await driver.press("escape")
        assert not pager.words
        assert driver.place == "log"
        await driver.press("escape")
        await driver.reaches("cluster")


async def test_words_above_the_end_are_found_from_the_beginning(tmp_path: Path, small_windows: None) -> None:
    lines = _steps(5000)
    lines[99] = "the needle in it"
    async with opened(_session(_write(tmp_path, lines))) as driver:
        await _open_log(driver)
        await driver.press("slash", *"needle", "enter")
        await driver.sees("the needle in it")
        await driver.sees("wrapped")


async def test_brackets_go_from_error_to_error(tmp_path: Path, small_windows: None) -> None:
    lines = _steps(5000)
    lines[10] = "RuntimeError: the first"
    lines[4000] = "RuntimeError: the second"
    async with opened(_session(_write(tmp_path, lines))) as driver:
        await _open_log(driver)
        await driver.press("left_square_bracket")
        await driver.sees("the second")
        await driver.press("left_square_bracket")
        await driver.sees("the first")
        await driver.press("left_square_bracket")
        await driver.sees("no error above here")
        await driver.press("right_square_bracket")
        await driver.sees("the second")


async def test_it_opens_at_the_line_of_a_finding(tmp_path: Path, small_windows: None) -> None:
    out, err = _write(tmp_path, _steps(10)), _write(tmp_path, _steps(5000), "job.err")
    async with opened(_session(out, err)) as driver:
        await _open_log(driver, (str(err), 3000))
        await driver.sees("▸3000 step 3000 all is well")
        await driver.sees("stderr")


async def test_long_lines_are_wrapped_or_cut(tmp_path: Path) -> None:
    path = _write(tmp_path, ["a" * 300 + "END", "last"])
    async with opened(_session(path), size=(80, 24)) as driver:
        await _open_log(driver)
        await driver.sees("END")
        await driver.press("w")
        await driver.sees("›")
        assert "END" not in driver.text()


async def test_line_numbers_come_and_go(tmp_path: Path) -> None:
    path = _write(tmp_path, _steps(50))
    async with opened(_session(path), size=(80, 24)) as driver:
        await _open_log(driver)
        assert " 50 step 50 " not in driver.text()
        await driver.press("number_sign")
        await driver.sees(" 50 step 50 ")


async def test_both_streams_are_one_by_time(tmp_path: Path) -> None:
    out = _write(tmp_path, ["2026-01-01 10:00:00 start", "2026-01-01 10:00:20 end"])
    err = _write(tmp_path, ["2026-01-01 10:00:10 warned"], "job.err")
    async with opened(_session(out, err)) as driver:
        await _open_log(driver)
        await driver.press("B")
        await driver.sees("e 2026-01-01 10:00:10 warned")
        text = driver.text()
        assert text.index("start") < text.index("warned") < text.index("10:00:20 end")
        await driver.press("B")
        await driver.until(lambda: "warned" not in driver.text(), "standard output alone")


async def test_of_a_job_with_the_logs_of_its_ranks_the_one_with_the_cause_is_opened(tmp_path: Path) -> None:
    paths = [_write(tmp_path, _steps(9), name) for name in ("slurm-21.out", "rank0.log", "rank3.log")]
    paths[2].write_text("2026-01-01 10:00:00 step 1\nCUDA out of memory\n")
    async with opened(_session(*paths), size=(140, 24)) as driver:
        await _open_log(driver, (str(paths[2]), 2))
        await driver.sees("CUDA out of memory")
        await driver.sees("rank3.log · lines 1-2")
        await driver.press("B")
        await driver.sees("this job has 3 logs")
        await driver.press("o")
        await driver.sees("step 9 all is well")
        assert "CUDA" not in driver.text()


async def test_a_stream_without_times_says_why_both_cannot_be_one(tmp_path: Path) -> None:
    out = _write(tmp_path, ["2026-01-01 10:00:00 start"])
    err = _write(tmp_path, ["no time"], "job.err")
    async with opened(_session(out, err), size=(200, 24)) as driver:
        await _open_log(driver)
        await driver.press("B")
        await driver.sees("its lines have no times")
        await driver.sees("start")


async def test_a_file_that_is_gone_shows_the_lines_that_were_read_last(tmp_path: Path) -> None:
    path = _write(tmp_path, _steps(30))
    session = _session(path)
    path.unlink()
    async with opened(session) as driver:
        await _open_log(driver)
        await driver.sees("step 30 all")
        await driver.sees("No such file")


async def test_esc_stops_a_search(tmp_path: Path) -> None:
    path = _write(tmp_path, _steps(30))
    async with opened(_session(path)) as driver:
        await _open_log(driver)
        screen = driver.app.screen
        assert isinstance(screen, LogScreen)
        driver.ports.logs.is_held = True
        screen._ask(look := screen_look(path))
        screen.set_progress(look, 50, 100)
        await driver.sees("searching: 50 %, Esc stops")
        await driver.press("escape")
        await driver.sees("stopped")
        assert screen._look is None


def screen_look(path: Path) -> log_windows.LogLook:
    return log_windows.LogLook((str(path),), offset=0, words="nowhere")


async def test_each_of_many_pages_in_one_burst_counts(tmp_path: Path) -> None:
    path = _write(tmp_path, _steps(1000))
    async with opened(_session(path)) as driver:
        pager = await _open_log(driver)
        await driver.press("home")
        await driver.until(lambda: pager.in_sight[0] == 0, "the first line")
        for key in ("pagedown",) * 10 + ("pageup",) * 4:
            driver.app.post_message(events.Key(key, None))
        await driver.settle()
        assert pager.in_sight[0] == 6 * pager.room.height
