"""A log that changes while coach follows it: each line is read once, and an unreadable file is named until it
can be read again."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from coach.model.reading import LogChunk, LogFiles
from coach.sources.io import SystemIo
from coach.sources.logs.log_source import LogSource

OLD = "".join(f"old line {number}\n" for number in range(40))
NEW = "new line, and é\n"


class FailingIo(SystemIo):
    """The real files; the next `num_failing` calls fail."""

    def __init__(self) -> None:
        super().__init__({}, on_file_op=self._fail)
        self.error, self.num_failing = 0, 0

    def _fail(self, path: Path | None) -> None:
        if path is not None and self.num_failing:
            self.num_failing -= 1
            raise OSError(self.error, os.strerror(self.error), str(path))


class Followed:
    """One log in its own folder, and all readings of it."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "job" / "slurm-17.out"
        self.log.parent.mkdir()
        self.io = FailingIo()
        self._source = LogSource(self.io, "17", lambda: [self.log], tuple)
        self.lines: list[str] = []
        self.problems: list[str] = []

    def look(self) -> None:
        """Look until nothing is new; an unfinished last line then counts as it is."""
        for _ in range(3):
            for reading in self._source.poll():
                if isinstance(reading.payload, LogChunk):
                    self.lines = list(reading.payload.tail.lines)
                elif isinstance(reading.payload, LogFiles):
                    self.problems = [file.problem for file in reading.payload.files if file.problem]

    def append(self, text: str) -> None:
        with open(self.log, "a", encoding="utf-8") as file:
            file.write(text)


@pytest.fixture
def followed(tmp_path: Path) -> Followed:
    made = Followed(tmp_path)
    made.append(OLD)
    made.look()
    assert made.lines == OLD.splitlines()
    return made


def deleted(one: Followed) -> None:
    one.log.unlink()
    one.look()
    assert one.problems == [f"{one.log}: No such file or directory"]
    one.append(NEW)


def rotated(one: Followed) -> None:
    one.log.rename(f"{one.log}.1")
    one.append(NEW)


def truncated(one: Followed) -> None:
    os.truncate(one.log, 0)
    one.append(NEW)


def truncated_and_grown(one: Followed) -> None:
    os.truncate(one.log, 0)
    one.append(NEW * 100)


def replaced(one: Followed) -> None:
    other = one.log.with_name("other")
    other.write_text(NEW)
    other.replace(one.log)


def folder_gone(one: Followed) -> None:
    shutil.rmtree(one.log.parent)
    one.look()
    assert one.problems == [f"{one.log}: No such file or directory"]
    one.log.parent.mkdir()
    one.append(NEW)


@pytest.mark.parametrize(
    "change",
    [deleted, rotated, truncated, truncated_and_grown, replaced, folder_gone],
    ids=lambda f: f.__name__,
)
def test_a_log_that_is_another_one_is_read_from_its_start(
    followed: Followed, change: Callable[[Followed], None]
) -> None:
    change(followed)
    followed.look()
    assert set(followed.lines) == {NEW.strip()}
    assert followed.problems == []
    followed.append("and on\n")
    followed.look()
    assert followed.lines[-2:] == [NEW.strip(), "and on"]


@pytest.mark.parametrize("error", [errno.ESTALE, errno.EACCES, errno.EIO], ids=errno.errorcode.get)
def test_a_log_that_cannot_be_read_for_a_while_loses_no_line_and_repeats_none(
    followed: Followed, error: int
) -> None:
    followed.append("written meanwhile\n")
    followed.io.error, followed.io.num_failing = error, 9
    followed.look()
    assert followed.problems == [f"{followed.log}: {os.strerror(error)}"]
    assert followed.lines == OLD.splitlines(), "what was read still stands"
    followed.io.num_failing = 0
    followed.look()
    assert followed.lines == [*OLD.splitlines(), "written meanwhile"]
    assert followed.problems == []


def test_one_handle_that_went_stale_is_no_trouble(followed: Followed) -> None:
    followed.append(NEW)
    followed.io.error, followed.io.num_failing = errno.ESTALE, 2
    followed.look()
    assert (followed.lines[-1], followed.problems) == (NEW.strip(), [])


def test_a_character_that_is_torn_between_two_looks_is_whole(followed: Followed) -> None:
    half, rest = "é".encode()[:1], "é".encode()[1:]
    with open(followed.log, "ab", buffering=0) as file:
        file.write(b"caf" + half)
        followed.look()
        file.write(rest + b" closed\n")
    followed.look()
    assert followed.lines[-1] == "café closed"
