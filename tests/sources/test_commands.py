"""A command that exceeds its time limit, or whose caller was interrupted, is killed with all its children."""

from __future__ import annotations

import os
import secrets
import subprocess
import threading
from pathlib import Path

import pytest

from coach.sources import commands
from coach.sources.commands import run_command, running_command
from coach.sources.io import Query, SystemIo
from tests.cluster.processes import with_environment
from tests.waiting import wait_until

WRAPPER = "sleep 300 & sleep 300"
PRINTER = "{ while :; do echo y; done; }"


def test_the_status_and_both_outputs_of_a_command_are_separate() -> None:
    done = run_command(("sh", "-c", "echo out; echo err >&2; exit 3"), os.environ, 10.0)
    assert (done.returncode, done.stdout, done.stderr) == (3, b"out\n", b"err\n")


def test_error_messages_that_are_not_utf_8_are_still_shown() -> None:
    argv = ("sh", "-c", r"printf 'error: caf\351 closed\n' >&2; exit 1")
    result = SystemIo(os.environ).run(Query("jobs", argv), 10.0)
    assert (result.returncode, result.stderr, result.error) == (
        1,
        "error: caf\N{REPLACEMENT CHARACTER} closed\n",
        None,
    )


def test_a_command_gets_neither_input_nor_our_terminal() -> None:
    done = run_command(("sh", "-c", "cat; ps -o pgid= -p $$"), os.environ, 10.0)
    assert int(done.stdout) != os.getpgrp()


def test_a_site_s_wrapper_that_hangs_is_ended_with_its_children() -> None:
    mark = f"COMMAND_MARK={secrets.token_hex(8)}"
    env = {**os.environ, **dict([mark.split("=")])}
    with pytest.raises(subprocess.TimeoutExpired):
        run_command(("sh", "-c", WRAPPER), env, 0.3)
    wait_until(lambda: not with_environment(mark), 5.0, "nothing of it is left")


def test_a_site_s_wrapper_that_goes_on_is_ended_with_its_children() -> None:
    mark = f"COMMAND_MARK={secrets.token_hex(8)}"
    env = {**os.environ, **dict([mark.split("=")])}
    asked = "trap 'sleep 0.2; echo asked; exit' TERM; echo ready; while :; do sleep 0.05; done"
    with running_command(("sh", "-c", f'sh -c "{asked}"; true'), env) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        output = os.dup(process.stdout.fileno())
    assert not with_environment(mark)
    with os.fdopen(output, "rb") as rest:
        assert rest.read() == b"asked\n"


def test_a_command_whose_answer_nobody_waits_for_is_killed_at_once_with_its_children() -> None:
    mark = f"COMMAND_MARK={secrets.token_hex(8)}"
    io, results = SystemIo({**os.environ, **dict([mark.split("=")])}), []

    def ask() -> None:
        results.append(io.run(Query("jobs", ("sh", "-c", WRAPPER)), 300.0))
        results.append(io.run(Query("jobs", ("sh", "-c", WRAPPER)), 300.0))

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    wait_until(lambda: with_environment(mark), 20, "the command runs")
    io.stop()
    thread.join(20.0)
    assert not thread.is_alive(), "the second command does not start"
    assert [result.stdout for result in results] == [b"", b""]
    assert 0 not in [result.returncode for result in results]
    wait_until(lambda: not with_environment(mark), 5.0, "nothing of it is left")


def test_a_missing_command_is_an_error_and_leaves_no_files() -> None:
    with pytest.raises(FileNotFoundError):
        run_command(("no-such-client",), os.environ, 1.0)


def test_output_can_be_read_while_the_command_still_prints(tmp_path: Path) -> None:
    pieces: list[bytes] = []
    was_read = tmp_path / "was-read"

    def take(piece: bytes) -> None:
        pieces.append(piece)
        was_read.touch()

    script = 'echo one; echo err >&2; while [ ! -e "$0" ]; do sleep 0.02; done; echo two'
    done = run_command(("sh", "-c", script, str(was_read)), os.environ, 10.0, on_output=take)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"err\n")
    assert b"".join(pieces) == b"one\ntwo\n"


@pytest.mark.parametrize("script", [WRAPPER, f"{PRINTER} & {PRINTER}", "exec >&- 2>&-; sleep 300"])
def test_a_command_with_streamed_output_is_killed_at_its_time_limit_too(script: str) -> None:
    mark = f"COMMAND_MARK={secrets.token_hex(8)}"
    env = {**os.environ, **dict([mark.split("=")])}
    with pytest.raises(subprocess.TimeoutExpired):
        run_command(("sh", "-c", script), env, 0.3, on_output=len)  # five times as long, if it prints
    wait_until(lambda: not with_environment(mark), 5.0, "nothing of it is left")


@pytest.mark.parametrize(("where", "most"), [("", "MAX_OUTPUT_BYTES"), (">&2", "MAX_ERROR_BYTES")])
def test_a_command_that_prints_more_than_its_budget_is_killed(
    where: str, most: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, most, 100_000)
    exact = run_command(("sh", "-c", f"head -c 100000 /dev/zero {where}"), os.environ, 10.0)
    assert len(exact.stdout + exact.stderr) == 100_000
    mark = f"COMMAND_MARK={secrets.token_hex(8)}"
    env = {**os.environ, **dict([mark.split("=")])}
    with pytest.raises(OSError, match="printed too much, and was ended"):
        run_command(("sh", "-c", f"yes {where}"), env, 30.0)
    wait_until(lambda: not with_environment(mark), 5.0, "nothing of it is left")


def test_a_command_that_goes_on_printing_is_given_more_time_than_a_silent_one() -> None:
    pieces: list[bytes] = []
    script = "for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.25; done"
    done = run_command(("sh", "-c", script), os.environ, 1.2, on_output=pieces.append)
    assert (done.returncode, b"".join(pieces).split()) == (0, [b"%d" % number for number in range(1, 9)])
