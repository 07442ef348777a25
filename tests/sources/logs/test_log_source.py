from __future__ import annotations

import errno
from collections.abc import Iterable
from pathlib import Path

from coach import runs
from coach.model.reading import LogChunk, LogFiles, Reading
from coach.model.training.log import LogFile, Signature
from coach.sources.io import SystemIo
from coach.sources.logs.log_source import BITE_BYTES, LogSource
from tests.sources.fake_io import FakeIo

KILLED = Signature("MEM007", "killed", ("Killed",), r"^Killed$")
PATH = Path("/runs/r/stdout.log")


def source_of(io: FakeIo, *paths: Path) -> LogSource:
    return LogSource(io, "r", lambda: paths or (PATH,), lambda: (KILLED,))


def chunks_of(readings: Iterable[Reading]) -> list[LogChunk]:
    """The readings of one look; the last one lists all searched places."""
    *parts, last = readings
    assert isinstance(last.payload, LogFiles)
    assert [part.is_part for part in parts] == [True] * len(parts)
    return [part.payload for part in parts if isinstance(part.payload, LogChunk)]


def chunk_of(readings: Iterable[Reading]) -> LogChunk:
    (chunk,) = chunks_of(readings)
    return chunk


def files_of(readings: Iterable[Reading]) -> tuple[LogFile, ...]:
    *_, last = readings
    assert isinstance(last.payload, LogFiles)
    return last.payload.files


def test_a_log_that_is_yet_to_come_is_empty_and_no_error() -> None:
    source = source_of(FakeIo())
    assert chunk_of(source.poll()).tail.size_bytes == 0
    assert files_of(source.poll()) == (LogFile(str(PATH), is_found=False),)


def test_a_growing_log_is_read_once_and_hits_come_as_they_are_written() -> None:
    io = FakeIo()
    io.write(str(PATH), b"step 1\n" * 2000)
    source = source_of(io)
    assert chunk_of(source.poll()).hits == ()
    io.append(str(PATH), b"Killed\n")
    chunk = chunk_of(source.poll())
    (hit,) = chunk.hits
    assert (hit.file, hit.line) == (str(PATH), 2001)
    assert chunk.tail.lines[-1] == "Killed"
    io.reads.clear()
    assert chunk_of(source.poll()).hits == ()
    assert io.reads == []


def test_a_log_that_is_a_link_is_followed_from_before_slurm_has_made_the_file(tmp_path: Path) -> None:
    (tmp_path / ".logs").mkdir()
    paths = runs.create_run_dir(tmp_path, "20261121-142233-ddp-4f2a")
    runs.link_scheduler_logs(paths)
    output, _ = runs.scheduler_logs(tmp_path, paths.run_dir.name)
    source = LogSource(SystemIo({}), "r", lambda: (paths.stdout_log,), lambda: (KILLED,))
    assert chunk_of(source.poll()).tail.size_bytes == 0
    output.write_bytes(b"step 1\n" * 100)
    assert chunk_of(source.poll()).tail.lines[-1] == "step 1"
    with open(output, "ab") as file:
        file.write(b"Killed\n")
    (hit,) = [hit for _ in range(2) for hit in chunk_of(source.poll()).hits]
    assert (hit.file, hit.line) == (str(paths.stdout_log), 101)


def test_an_unfinished_last_line_is_scanned_at_the_next_look() -> None:
    io = FakeIo()
    io.write(str(PATH), b"step 1\n" * 2000 + b"Killed")
    source = source_of(io)
    assert chunk_of(source.poll()).hits == ()
    assert [hit.line for hit in chunk_of(source.poll()).hits] == [2001]
    assert chunk_of(source.poll()).hits == ()


def test_a_replaced_log_is_read_from_its_start() -> None:
    io = FakeIo()
    io.write(str(PATH), b"x\n" * 5000)
    source = source_of(io)
    list(source.poll())
    io.write(str(PATH), b"y\n" * 4096 + b"Killed\n")
    chunk = chunk_of(source.poll())
    assert chunk.is_restart
    assert [hit.line for hit in chunk.hits] == [4097]


def test_a_log_that_is_gone_is_an_error_that_names_it() -> None:
    io = FakeIo()
    io.write(str(PATH), b"x\n")
    source = source_of(io)
    list(source.poll())
    del io.files[str(PATH)]
    (reading,) = source.poll()
    assert reading.error == f"{PATH}: No such file or directory"
    assert files_of([reading]) == (LogFile(str(PATH), False, reading.error),)


def test_a_huge_log_is_read_in_bites() -> None:
    io = FakeIo()
    io.write(str(PATH), b"healthy line of a log\n" * (BITE_BYTES // 10))
    source = source_of(io)
    first, second = list(source.poll()), source.poll()
    assert [reading.is_caught_up for reading in first] == [False, False]
    assert chunk_of(second).tail.num_lines > 0


def test_each_log_of_a_run_is_followed_by_itself() -> None:
    io = FakeIo()
    io.write("/a", b"Killed\n" + b"x\n" * 5000)
    io.write("/b", b"fine\n" * 5000)
    first, second = chunks_of(source_of(io, Path("/a"), Path("/b")).poll())
    assert (len(first.hits), len(second.hits)) == (1, 0)


def test_an_unreadable_log_is_reported_and_delays_no_other() -> None:
    io = FakeIo()
    io.write("/a", b"fine\n" * 5000)
    io.write("/b", b"x\n")
    io.failing["/b"] = errno.EACCES
    *parts, last = source_of(io, Path("/a"), Path("/b")).poll()
    assert len(parts) == 1
    assert last.error is None
    problem = "/b: Permission denied"
    assert files_of([last]) == (LogFile("/a", True), LogFile("/b", True, problem))


def test_the_end_of_a_huge_log_is_shown_long_before_all_of_it_was_read(tmp_path: Path) -> None:
    path = tmp_path / "slurm-17.out"
    with path.open("wb") as file:
        file.write(b"step 1\n" * 1000)
        file.truncate(10 << 30)
        file.seek(0, 2)
        file.write(b"\nstep 999998\nstep 999999\n")
    source = LogSource(SystemIo({}), "r", lambda: (path,), lambda: (KILLED,))
    tail = chunk_of(source.poll()).tail
    assert tail.lines[-2:] == ("step 999998", "step 999999")
    assert (tail.size_bytes > 10 << 30, tail.is_counted) == (True, False)


def test_hits_of_a_huge_log_are_reported_even_if_its_end_is_unreadable() -> None:
    class Stale(FakeIo):
        def size(self, path: Path, owner: int | None = None) -> int:
            return 10 << 30

        def read(self, path: Path, offset: int, limit: int, owner: int | None = None) -> bytes:
            if offset > 1 << 30:
                raise OSError(errno.ESTALE, "Stale file handle", str(path))
            return super().read(path, offset, limit)

    io = Stale()
    io.write(str(PATH), b"step 1\nKilled\n" + b"step 2\n" * 5000)
    assert [hit.line for hit in chunk_of(source_of(io).poll()).hits] == [2]


def test_lines_from_before_the_run_are_counted_but_not_searched() -> None:
    io = FakeIo()
    before = b"Killed\n" * 3
    io.write(str(PATH), before + b"step 1\n" * 2000 + b"Killed\n")
    source = LogSource(io, "r", lambda: (PATH,), lambda: (KILLED,), start_of=lambda path: len(before))
    [hit] = chunk_of(source.poll()).hits
    assert hit.line == 2004


def test_a_restarted_file_is_searched_from_its_start() -> None:
    io = FakeIo()
    io.write(str(PATH), b"Killed\n" + b"step 1\n" * 2000)
    source = LogSource(io, "r", lambda: (PATH,), lambda: (KILLED,), start_of=lambda path: 1 << 20)
    [hit] = chunk_of(source.poll()).hits
    assert hit.line == 1


def test_the_first_look_at_a_log_that_has_ended_has_all_of_its_last_words(tmp_path: Path) -> None:
    """The scanner holds back the end of a log, because more of its last error may come. An ended job is
    judged once, and must not lack it."""
    log = tmp_path / "5.out"
    log.write_text(
        'Traceback (most recent call last):\n  File "t.py", line 1, in <module>\nImportError: x\nbye\n'
    )
    signature = Signature("X", "x", ("ImportError",), "ImportError: x")
    source = LogSource(SystemIo({}), "5", lambda: [log], lambda: [signature])
    seen: list[str] = []
    for _ in range(3):
        readings = list(source.poll())
        chunks = [reading.payload for reading in readings if isinstance(reading.payload, LogChunk)]
        seen += [hit.rule for chunk in chunks for hit in chunk.hits]
        if all(reading.is_caught_up for reading in readings):
            break
    assert seen == ["X"]


def test_the_time_of_the_last_write_to_a_log_is_known() -> None:
    io = FakeIo()
    io.write(str(PATH), b"step 1\n")
    io.modified[str(PATH)] = io.now_s - 300.0
    source = source_of(io)
    assert chunk_of(source.poll()).tail.written_s == io.now_s - 300.0
    io.now_s += 10.0
    assert chunk_of(source.poll()).tail.written_s == io.now_s - 310.0
    io.append(str(PATH), b"step 2\n")
    io.now_s += 5.0
    assert chunk_of(source.poll()).tail.written_s == io.now_s


def test_the_pause_before_the_last_words_of_slurm_is_known() -> None:
    io = FakeIo()
    io.write(str(PATH), b"step 1\n")
    io.modified[str(PATH)] = io.now_s
    source = source_of(io)
    assert chunk_of(source.poll()).tail.last_pause_s == 0.0
    pauses = []
    for later_s in (480.0, 4.0, 70.0, 4.0):  # slurmstepd's words, srun's, then those of a next attempt
        io.now_s += later_s
        io.append(str(PATH), b"words\n")
        pauses.append(chunk_of(source.poll()).tail.last_pause_s)
    assert pauses == [480.0, 480.0, 70.0, 70.0]
