"""A command that is waited for too long, or whose asker was interrupted, is ended with all that it
started."""

from __future__ import annotations

import os
import secrets
import subprocess

import pytest

from coach.sources.commands import run_command, running_command
from tests.cluster.processes import with_environment
from tests.waiting import wait_until

WRAPPER = "sleep 300 & sleep 300"


def test_its_status_and_both_outputs_are_told_apart() -> None:
    done = run_command(("sh", "-c", "echo out; echo err >&2; exit 3"), os.environ, 10.0)
    assert (done.returncode, done.stdout, done.stderr) == (3, b"out\n", b"err\n")


def test_it_gets_no_input_and_no_terminal_of_ours() -> None:
    done = run_command(("sh", "-c", "cat; ps -o pgid= -p $$"), os.environ, 10.0)
    assert int(done.stdout) != os.getpgrp()


def test_a_site_s_wrapper_that_hangs_is_ended_with_its_children() -> None:
    mark = f"COMMAND_MARK={secrets.token_hex(8)}"
    env = {**os.environ, **dict([mark.split("=")])}
    with pytest.raises(subprocess.TimeoutExpired):
        run_command(("sh", "-c", WRAPPER), env, 0.3)
    wait_until(lambda: not with_environment(mark), 5.0, "nothing of it is left")


def test_a_site_s_wrapper_that_goes_on_is_asked_to_end_with_what_it_started() -> None:
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


def test_a_command_that_is_not_there_is_an_error_and_leaves_nothing() -> None:
    with pytest.raises(FileNotFoundError):
        run_command(("no-such-client",), os.environ, 1.0)
