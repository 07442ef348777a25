"""An answer that comes after the limit is used, and an open query is not sent twice.

The client is a script that a test lets answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from coach.sources.io import Query
from coach.sources.polite.outage import Outage
from coach.sources.polite.patient_io import PatientIo
from coach.sources.polite.shared_cache import SharedIo
from coach.sources.slurm.client import Client, JobsSource
from coach.sources.slurm.queue import jobs_query
from tests.waiting import wait_until

LIMIT_S = 0.6


class Slow:
    """A squeue that answers on request, and a scontrol that never answers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.io = PatientIo(
            {"PATH": f"{folder}:/usr/bin:/bin"},
            timeout_s=LIMIT_S,
            before_command=lambda num_rpcs: True,
            on_file_op=lambda path: None,
        )
        body = (
            'echo x >> "$0.asked"; while [ ! -e "$0.may" ]; do sleep 0.02; done; echo "$0.answered" > '
            '"$0.said"; echo told'
        )
        for name, script in (("squeue", body), ("scontrol", "exec sleep 60")):
            (folder / name).write_text(f"#!/bin/sh\n{script}\n")
            (folder / name).chmod(0o755)

    @property
    def num_asked(self) -> int:
        return len((self.folder / "squeue.asked").read_text().split())

    def let_answer(self) -> None:
        (self.folder / "squeue.may").touch()


@pytest.fixture
def slow(tmp_path: Path) -> Slow:
    return Slow(tmp_path)


def has_ended(slow: Slow) -> Callable[[], bool]:
    return lambda: any(one.has_ended.is_set() for one in slow.io._open.values())


def test_a_late_answer_serves_the_next_look(slow: Slow) -> None:
    first, second = jobs_query("ada"), jobs_query("ada")
    late = slow.io.run(first)
    assert (late.returncode, late.error) == (None, "squeue: no answer within 1 s")
    slow.let_answer()
    wait_until(has_ended(slow), 10, "the answer comes")
    result = slow.io.run(second)
    assert (result.returncode, result.stdout, slow.num_asked) == (0, b"told\n", 1)
    assert result.query is first  # with the separators that squeue was given
    assert slow.io.run(jobs_query("ada")).returncode == 0
    assert slow.num_asked == 2


def test_an_open_request_is_awaited_and_not_sent_again(slow: Slow) -> None:
    assert slow.io.run(jobs_query("ada")).returncode is None
    assert slow.io.run(jobs_query("ada")).returncode is None
    assert slow.num_asked == 1


def test_a_controller_that_answered_late_needs_no_ping(slow: Slow) -> None:
    outage = Outage()
    outage.probe_by(slow.io)
    client = Client(outage.spare(slow.io, slow.io.has_late))
    assert "no answer" in (client.ask(jobs_query("ada")).error or "")
    slow.let_answer()
    wait_until(has_ended(slow), 10, "the answer comes")
    assert client.ask(jobs_query("ada")).text == "told\n"


def test_requests_from_before_a_change_are_dropped(slow: Slow) -> None:
    assert slow.io.run(jobs_query("ada")).returncode is None
    slow.io.forget_late()
    slow.let_answer()
    assert slow.io.run(jobs_query("ada")).stdout == b"told\n"
    assert slow.num_asked == 2


def test_a_late_answer_that_is_too_old_is_not_used(slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    assert slow.io.run(jobs_query("ada")).returncode is None
    slow.let_answer()
    wait_until(has_ended(slow), 10, "the answer comes")
    monkeypatch.setattr("coach.sources.polite.patient_io.MAX_AGE_S", 0.0)
    assert slow.io.run(jobs_query("ada")).returncode == 0
    assert slow.num_asked == 2


def test_other_questions_pass_through(slow: Slow) -> None:
    assert slow.io.run(Query("job-state", ("squeue",)), 0.2).error == "squeue: no answer within 0 s"
    assert slow.io.run(Query("x", ("no-such-client",))).error == "no-such-client: command not found"


class _Broken:
    """A reader with a defect."""

    is_torn = False

    def feed(self, piece: bytes) -> None:
        raise ValueError("no such row")


def test_a_defect_of_a_reader_costs_one_look_and_names_itself(slow: Slow) -> None:
    slow.let_answer()
    broken = slow.io.run(replace(jobs_query("ada"), reader=_Broken()), 10.0)
    assert (broken.returncode, broken.error) == (
        None,
        "squeue: its answer was not read: ValueError: no such row",
    )
    again = slow.io.run(jobs_query("ada"), 10.0)
    assert (again.stdout, slow.num_asked) == (b"told\n", 2)


def test_a_late_answer_is_parsed_by_the_first_request(slow: Slow, tmp_path: Path) -> None:
    shared = SharedIo(slow.io, tmp_path / "answers", "tiger")
    (tmp_path / "answers").mkdir(mode=0o700)
    outage = Outage()
    outage.probe_by(shared)
    source = JobsSource(outage.spare(shared, slow.io.has_late), "ada", 10.0, is_all=False)
    (late,) = source.poll()
    assert late.error == "squeue: no answer within 1 s"
    slow.let_answer()
    wait_until(has_ended(slow), 10, "the answer comes")
    (told,) = source.poll()
    # "told" is no complete record: the reader of the first request has detected that, though the second got
    # the answer.
    assert (told.error, slow.num_asked) == ("squeue: its answer is incomplete", 1)
