"""A log of any size is read in windows: lines, numbers and matches are those of the file."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from coach.model.errors import UserError
from coach.model.training.log_window import LogLook, LogWindow
from coach.sources.io import SystemIo
from coach.sources.logs import log_windows
from coach.sources.logs.log_windows import LogWindows, Stopped, both_by_time
from coach.sources.logs.scanner import LogScanner


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make windows a few lines long, so that a small file has many."""
    monkeypatch.setattr(log_windows, "_HALF_BYTES", 200)
    monkeypatch.setattr(log_windows, "_PIECE_BYTES", 300)
    monkeypatch.setattr(log_windows, "_SEAM_BYTES", 40)
    monkeypatch.setattr(log_windows, "_NEAR_BYTES", 1000)
    monkeypatch.setattr(log_windows, "_SHOWN_BYTES", 50)
    monkeypatch.setattr(log_windows, "_FEW_BYTES", 100)


def _lines(count: int) -> list[str]:
    chosen = random.Random(7)
    return [f"line {number}{' x' * chosen.randrange(20)}" for number in range(1, count + 1)]


def _file(folder: Path, lines: list[str], end: str = "\n") -> Path:
    path = folder / "job.out"
    path.write_bytes(("\n".join(lines) + end).encode())
    return path


def _look(path: Path, **look: object) -> LogWindow:
    return LogWindows(SystemIo({}), path).look(LogLook((str(path),), **look))  # type: ignore[arg-type]


@pytest.mark.parametrize("end", ["\n", ""])
def test_a_log_opens_at_its_end(tmp_path: Path, end: str) -> None:
    lines = _lines(1000)
    window = _look(_file(tmp_path, lines, end))
    assert window.has_end
    assert not window.has_start
    assert list(window.lines) == lines[-len(window.lines) :]
    assert window.first_line is None, "nobody has counted the lines before it"


def test_every_window_holds_the_lines_that_the_file_has_there(tmp_path: Path) -> None:
    lines = _lines(400)
    path = _file(tmp_path, lines)
    data = path.read_bytes()
    windows = LogWindows(SystemIo({}), path)
    for offset in range(0, len(data) + 1, 37):
        window = windows.look(LogLook((str(path),), offset=offset))
        assert window.focus is not None
        for index, text in enumerate(window.lines):
            start, end = window.offsets[index], window.offsets[index + 1]
            assert data[start:end].decode().rstrip("\n") == text
        assert window.offsets[window.focus] <= offset
        if window.first_line is not None:
            assert lines[window.first_line - 1] == window.lines[0]


def test_windows_beside_each_other_leave_no_line_out(tmp_path: Path) -> None:
    lines = _lines(300)
    path = _file(tmp_path, lines)
    windows, seen, offset = LogWindows(SystemIo({}), path), [], 0
    while offset < path.stat().st_size:
        window = windows.look(LogLook((str(path),), offset=offset))
        index = window.offsets.index(offset)
        seen += window.lines[index:]
        offset = window.end
    assert seen == lines


@pytest.mark.parametrize("number", [1, 2, 7, 150, 399, 400])
def test_a_line_is_found_by_its_number_from_both_sides(tmp_path: Path, number: int) -> None:
    lines = _lines(400)
    path = _file(tmp_path, lines)
    windows = LogWindows(SystemIo({}), path)
    for _ in range(2):
        window = windows.look(LogLook((str(path),), line=number))
        assert window.focus is not None
        assert window.lines[window.focus] == lines[number - 1]
        assert window.first_line is not None
        assert window.first_line + window.focus == number
        windows.know_end(path.stat().st_size, 400)


def test_a_number_behind_the_last_line_is_the_end(tmp_path: Path) -> None:
    window = _look(_file(tmp_path, _lines(50)), line=1000)
    assert window.focus is not None
    assert window.lines[window.focus].startswith("line 50")


@pytest.mark.parametrize("end", ["\n", "", "\nunended"])
def test_the_end_has_its_numbers_from_the_scanner(tmp_path: Path, end: str) -> None:
    lines = _lines(1000)
    path = _file(tmp_path, lines, end)
    scanner = LogScanner(())
    scanner.feed(path.read_bytes())
    tail = scanner.tail()
    windows = LogWindows(SystemIo({}), path)
    windows.know_end(tail.size_bytes, tail.num_lines)
    window = windows.look(LogLook((str(path),)))
    assert window.first_line is not None
    assert window.first_line + len(window.lines) - 1 == tail.num_lines
    assert window.lines[-1] == tail.lines[-1]


def test_a_search_works_in_both_directions_and_small_letters_match_capitals(tmp_path: Path) -> None:
    lines = _lines(400)
    lines[100] = "here is a Needle"
    lines[300] = "here is a needle"
    path = _file(tmp_path, lines)
    windows = LogWindows(SystemIo({}), path)

    def found(**look: object) -> str | None:
        window = windows.look(LogLook((str(path),), **look))  # type: ignore[arg-type]
        return None if window.focus is None else window.lines[window.focus]

    size = path.stat().st_size
    assert found(offset=0, words="needle") == lines[100]
    assert found(offset=0, words="Needle") == lines[100]
    assert found(offset=size // 2, words="needle") == lines[300]
    assert found(offset=size // 2, words="Needle") is None
    assert found(offset=size, words="needle", is_backwards=True) == lines[300]
    assert found(offset=size // 2, words="needle", is_backwards=True) == lines[100]
    assert found(offset=0, words="needle", is_backwards=True) is None


def test_an_error_line_is_found_but_an_error_metric_is_not(tmp_path: Path) -> None:
    lines = _lines(200)
    lines[20] = "val error: 0.25"
    lines[21] = "Errors are written to errors.txt, 0 errors"
    lines[60] = "RuntimeError: CUDA error"
    lines[160] = "[rank0]: Traceback (most recent call last):"
    path = _file(tmp_path, lines)
    forward = _look(path, offset=0, is_for_error=True)
    assert forward.focus is not None
    assert forward.lines[forward.focus] == lines[60]
    assert forward.focus in forward.errors
    back = _look(path, offset=path.stat().st_size, is_for_error=True, is_backwards=True)
    assert back.focus is not None
    assert back.lines[back.focus] == lines[160]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "latin-1"])
def test_other_encodings_are_read_and_searched(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "job.out"
    path.write_bytes("\n".join([*_lines(80), "Zubehör fehlt", "the end"]).encode(encoding))
    window = _look(path, offset=0, words="fehlt")
    assert window.focus is not None
    assert window.lines[window.focus] == "Zubehör fehlt"


def test_colours_and_progress_are_shown_as_a_terminal_shows_them(tmp_path: Path) -> None:
    path = tmp_path / "job.out"
    path.write_bytes(b"\x1b[31mred\x1b[0m words\n 10%\r 20%\r 30%\nlast")
    assert _look(path).lines == ("red words", " 30%", "last")
    assert _look(path, offset=0, words="red words").focus == 0


def test_a_line_without_an_end_is_read_in_parts_and_searched(tmp_path: Path) -> None:
    path = tmp_path / "job.out"
    path.write_bytes(b"a" * 5000 + b"needle" + b"b" * 5000)
    for is_backwards, offset in ((False, 0), (True, 10006)):
        window = _look(path, offset=offset, words="needle", is_backwards=is_backwards)
        assert window.focus is not None
    assert _look(path).lines[-1].endswith("bbb")


@pytest.mark.parametrize("number", [1, 4, 21])
def test_a_line_longer_than_a_window_is_cut_with_its_length_and_passed(tmp_path: Path, number: int) -> None:
    lines = _lines(60)
    lines[number - 1] = "y" * 899
    path = _file(tmp_path, lines)
    windows = LogWindows(SystemIo({}), path)
    below, above = [*lines[: number - 1], "y" * 50 + " … (900 bytes in this line)", *lines[number:]], []
    for offset in range(0, path.stat().st_size + 1, 31):
        window = windows.look(LogLook((str(path),), offset=offset))
        assert window.focus is not None
        assert window.offsets[window.focus] <= offset < window.offsets[window.focus + 1] or window.has_end
        first = window.first_line
        assert first is not None
        assert list(window.lines) == below[first - 1 : first - 1 + len(window.lines)]
        above.append(window.has_start or window.focus > 0)
        above.append(window.has_end or window.focus < len(window.lines) - 1)
    assert all(above), "there is a line to scroll to on both sides"


def test_a_long_progress_bar_shows_its_last_state(tmp_path: Path) -> None:
    path = _file(tmp_path, ["begin", "\r".join(f"{number} %" for number in range(101)), "end"])
    window = LogWindows(SystemIo({}), path).look(LogLook((str(path),), offset=0))
    assert window.lines == ("begin", "100 %", "end")


def test_a_search_can_be_stopped(tmp_path: Path) -> None:
    path = _file(tmp_path, _lines(400))
    told: list[int] = []

    def heed(done: int, total: int) -> bool:
        told.append(done)
        return len(told) < 3

    with pytest.raises(Stopped):
        LogWindows(SystemIo({}), path).look(LogLook((str(path),), offset=0, words="nowhere"), heed)
    assert told == sorted(told)
    assert len(told) == 3


def test_lines_are_counted_again_after_the_file_was_replaced(tmp_path: Path) -> None:
    path = _file(tmp_path, _lines(400))
    windows = LogWindows(SystemIo({}), path)
    windows.look(LogLook((str(path),), line=300))
    path.write_text("new 1\nnew 2\nnew 3\n")
    window = windows.look(LogLook((str(path),), line=3))
    assert window.lines == ("new 1", "new 2", "new 3")
    assert window.focus == 2
    assert window.first_line == 1


def test_a_file_that_is_no_text_is_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "job.out"
    path.write_bytes(b"\x7fELF" + bytes(range(256)) * 20)
    assert _look(path).is_binary


def test_an_empty_file_has_one_empty_line(tmp_path: Path) -> None:
    path = tmp_path / "job.out"
    path.write_bytes(b"")
    window = _look(path)
    assert window.has_start
    assert window.has_end
    assert (window.lines, window.offsets) == (("",), (0, 0))


def _window(file: str, lines: list[str], start: int = 0) -> LogWindow:
    offsets = tuple(range(start, start + len(lines) + 1))
    return LogWindow(file, tuple(lines), offsets, start + len(lines))


def test_two_streams_are_put_into_one_by_their_times() -> None:
    one = _window(
        "out", ["2026-01-01 10:00:00 a", "2026-01-01 10:00:10 b", "  goes on", "2026-01-01 10:00:30 c"]
    )
    other = _window("err", ["2026-01-01 10:00:05 warned", "2026-01-01 10:00:20 failed"])
    both = both_by_time(one, other)
    assert [text.split(maxsplit=2)[-1] for text in both.lines] == ["a", "warned", "b", "on", "failed", "c"]
    assert both.streams == ("out", "err", "out", "out", "err", "out")


def test_merged_streams_show_only_the_period_that_both_cover() -> None:
    one = _window("out", ["2026-01-01 09:00:00 a", "2026-01-01 10:00:10 b"])
    other = _window("err", ["2026-01-01 10:00:05 warned"], start=99)
    assert both_by_time(one, other).streams == ("err", "out")


def test_a_stream_without_times_is_refused() -> None:
    with pytest.raises(UserError, match="err: its lines have no times"):
        both_by_time(_window("out", ["2026-01-01 09:00:00 a"]), _window("err", ["warned"]))
