"""Files that other programs append to, replace and truncate, on file systems that show changes late."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from coach.sources.follow import FileFollower
from coach.sources.io import SystemIo
from tests.sources.fake_io import FakeIo

PATH = Path("/logs/slurm-17.out")
FIRST = b"".join(b"step %d\n" % step for step in range(200))


class _StaleIo(FakeIo):
    """A file server that has lost its handle of the file for some requests, or reports an outdated size."""

    def __init__(self) -> None:
        super().__init__()
        self.num_stale = 0
        self.old_size: int | None = None

    def size(self, path: Path, owner: int | None = None) -> int:
        if self.num_stale:
            self.num_stale -= 1
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(path))
        return super().size(path) if self.old_size is None else self.old_size


def followed(io: FakeIo) -> FileFollower:
    io.write(str(PATH), FIRST)
    follower = FileFollower(io, PATH)
    assert follower.read().data == FIRST
    return follower


def test_a_handle_that_the_file_server_lost_is_asked_for_again() -> None:
    io = _StaleIo()
    follower = followed(io)
    io.append(str(PATH), b"more\n")
    io.num_stale = 2
    assert follower.read().data == b"more\n"
    io.num_stale = 99
    with pytest.raises(OSError, match="Stale file handle"):
        follower.read()


def test_an_outdated_size_does_not_restart_the_reading() -> None:
    io = _StaleIo()
    follower = followed(io)
    io.append(str(PATH), b"more\n")
    io.old_size = 100
    assert follower.read().is_restart is False
    io.old_size = None
    assert follower.read().data in (b"more\n", b"")
    assert follower.offset == len(FIRST) + 5


def test_a_log_that_was_cut_and_rewritten_is_read_from_its_start() -> None:
    io = FakeIo()
    follower = followed(io)
    io.write(str(PATH), FIRST[:50])
    bite = follower.read()
    assert (bite.data, bite.is_restart) == (FIRST[:50], True)


def test_a_new_file_that_begins_like_the_old_one_is_recognised_and_longer_than_it() -> None:
    io = FakeIo()
    follower = followed(io)
    again = FIRST[:1000] + b"and now something else\n" * 100
    io.write(str(PATH), again)
    bite = follower.read()
    assert (bite.data, bite.is_restart) == (again, True)


def test_zeros_at_the_end_wait_for_the_bytes_that_another_machine_has_not_written_back() -> None:
    io = FakeIo()
    follower = followed(io)
    io.append(str(PATH), b"loss 2.3\n" + bytes(20))
    assert follower.read().data == b"loss 2.3\n"
    io.write(str(PATH), FIRST + b"loss 2.3\n" + b"loss 2.2 and so on.\n")
    assert follower.read().data == b"loss 2.2 and so on.\n"


def test_zeros_that_stay_are_accepted_as_data() -> None:
    io = FakeIo()
    follower = followed(io)
    io.append(str(PATH), bytes(20))
    assert [follower.read().data for _ in range(3)] == [b"", bytes(20), b""]


@pytest.mark.parametrize(("make", "what"), [(os.mkfifo, "a pipe"), (os.mkdir, "Is a directory")])
def test_a_pipe_or_folder_is_refused_instead_of_waited_for(tmp_path: Path, make: object, what: str) -> None:
    path = tmp_path / "log"
    make(path)  # type: ignore[operator]
    with pytest.raises(OSError, match=what):
        FileFollower(SystemIo({}), path).read()
    with pytest.raises(OSError, match=what):
        SystemIo({}).read(path, 0, 10)


def test_a_device_is_not_read() -> None:
    with pytest.raises(OSError, match="a device, not a file"):
        FileFollower(SystemIo({}), Path("/dev/zero")).read()
