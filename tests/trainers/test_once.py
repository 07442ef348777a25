"""Data that many processes need and one of them makes, seen from each process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.trainers.conftest import TRAINERS
from tests.waiting import PATIENCE, wait_until

MAKER = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from common import once
final, real, skew_s, mode = Path(sys.argv[2]), time.time, float(sys.argv[3]), sys.argv[4]
time.time = lambda: real() + skew_s
print("ready", flush=True)
sys.stdin.readline()
def make(folder, show_alive):
    with open(final.with_name("made"), "a") as made:
        made.write("x")
    if mode == "stuck":
        print("making", flush=True)
        sys.stdin.readline()
    show_alive()
once.made_once(final, make)
print("there" if final.exists() else "missing", flush=True)
"""


def start(final: Path, skew_s: str = "0", mode: str = "quick") -> subprocess.Popen[str]:
    command = [sys.executable, "-c", MAKER, str(TRAINERS), str(final), skew_s, mode]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def go(process: subprocess.Popen[str]) -> None:
    """Let it begin, once it has started."""
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def test_ranks_on_nodes_whose_clocks_differ_by_hours_make_the_data_once(tmp_path: Path) -> None:
    final = tmp_path / "data"
    makers = [start(final, skew_s) for skew_s in ("-7200", "0", "0", "7200")]
    for maker in makers:
        go(maker)
    outputs = [maker.communicate(timeout=60 * PATIENCE)[0] for maker in makers]
    assert outputs == ["there\n"] * 4
    assert (tmp_path / "made").read_text() == "x"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "made"]


def test_a_maker_that_was_killed_is_replaced_when_its_lock_is_old(tmp_path: Path) -> None:
    final, lock = tmp_path / "data", tmp_path / ".data.lock"
    killed, next_one = start(final, mode="stuck"), start(final)
    go(killed)
    assert killed.stdout is not None
    assert killed.stdout.readline() == "making\n"
    killed.kill()
    killed.communicate(timeout=20 * PATIENCE)
    os.utime(lock, (0, 0))  # a long time ago
    go(next_one)
    assert next_one.communicate(timeout=60 * PATIENCE)[0] == "there\n"
    assert (tmp_path / "made").read_text() == "xx"
    assert not lock.exists()
    assert final.stat().st_mode & 0o777 == 0o700


def test_a_slow_maker_that_shows_that_it_is_alive_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(TRAINERS))
    from common import once

    lock = tmp_path / ".lock"
    with once.one_at_a_time(lock, lambda: False) as show_alive:
        made_ns = lock.stat().st_mtime_ns

        def is_touched() -> bool:
            show_alive()
            return lock.stat().st_mtime_ns > made_ns

        wait_until(is_touched, 5, "the clock of the file system has moved")
        once._break_if_stale(lock)
        assert lock.exists()
        os.utime(lock, (0, 0))  # stopped, for very long
        once._break_if_stale(lock)
        assert not lock.exists()
        lock.write_text("the next maker's")
        show_alive()
    assert lock.read_text() == "the next maker's"


def test_a_waiter_who_catches_a_living_makers_lock_gives_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(TRAINERS))
    from common import once

    lock = tmp_path / ".lock"
    lock.touch()
    os.utime(lock, (0, 0))
    rename = Path.rename

    def late(self: Path, target: Path) -> Path:
        self.unlink()
        self.write_text("the quicker one's")  # it broke the old lock and holds its own
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", late)
    once._break_if_stale(lock)
    assert lock.read_text() == "the quicker one's"
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]
