"""While the controller is away, one probe is sent for all sources, and all sources learn of its return at
once.

The controller is a value, and the clock is the test's. docs/measured/faults.md counts the calls of real
coaches to a real controller that is away.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from coach.model.reading import Reading
from coach.sources.io import CommandResult, Query, SystemIo
from coach.sources.polite.outage import PROBE_EVERY_S, Outage, OutageSource
from coach.sources.polite.polling import Pace, poll_loop
from coach.sources.polite.shared_cache import SharedIo
from coach.sources.slurm.client import Client
from coach.sources.slurm.nodes import NODES_QUERY
from coach.sources.slurm.queue import jobs_query
from tests.waiting import wait_until

PRIORITY = Query("priority", ("sprio", "-h"))


class Controller(SystemIo):
    """A Slurm that is up or away, with a journal of its requests."""

    def __init__(self) -> None:
        super().__init__({})
        self.now_s, self.is_up, self.asked = 1000.0, True, list[str]()

    def now(self) -> float:
        return self.now_s

    def run(self, query: Query, timeout_s: float | None = None) -> CommandResult:
        self.asked.append(query.kind)
        if query.kind == "ping":
            words = b"Slurmctld(primary) at c is " + (b"UP\n" if self.is_up else b"DOWN\n")
            return CommandResult(query, 0 if self.is_up else 1, words, "", self.now_s, 0.0)
        if self.is_up:
            return CommandResult(query, 0, b"", "", self.now_s, 0.0)
        said = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
        return CommandResult(query, 1, b"", said, self.now_s, 9.0)


class Coach:
    """One coach: its sources share the state of the outage, and all coaches share a folder."""

    def __init__(self, controller: Controller, folder: Path) -> None:
        self.num_returns = 0
        self.shared = shared = SharedIo(controller, folder, "tiger")
        self.outage = Outage(self._count)
        self.outage.probe_by(shared)
        self.io = self.outage.spare(shared)
        self.clients = [Client(self.io), Client(self.io), Client(self.io)]

    def ask_all(self) -> list[str | None]:
        OutageSource(self.outage).poll()
        queries = (jobs_query("ada"), NODES_QUERY, jobs_query(None))
        return [client.ask(query).error for client, query in zip(self.clients, queries, strict=True)]

    def _count(self) -> None:
        self.num_returns += 1


@pytest.fixture
def controller() -> Controller:
    return Controller()


@pytest.fixture
def coach(controller: Controller, tmp_path: Path) -> Coach:
    return Coach(controller, tmp_path)


def test_an_outage_costs_four_probes_a_minute_for_any_number_of_coaches(
    controller: Controller, coach: Coach, tmp_path: Path
) -> None:
    other = Coach(controller, tmp_path)
    controller.is_up = False
    for each in (coach, other):
        assert all(each.ask_all())
    controller.now_s += 1.0
    for each in (coach, other):
        assert all(each.ask_all())
    controller.asked.clear()
    for _ in range(60):
        controller.now_s += 1.0
        for each in (coach, other):
            each.ask_all()
            each.io.run(PRIORITY)
    assert set(controller.asked) == {"ping"}
    assert len(controller.asked) <= 4


def test_another_coach_hears_of_the_outage_and_asks_nothing(
    controller: Controller, coach: Coach, tmp_path: Path
) -> None:
    controller.is_up = False
    coach.ask_all()
    coach.ask_all()
    controller.asked.clear()
    controller.now_s += 10.0
    other = Coach(controller, tmp_path)
    assert all(other.ask_all())
    assert controller.asked == []
    controller.now_s += PROBE_EVERY_S
    controller.is_up = True
    assert not any(other.ask_all())
    assert not any(coach.ask_all())


def test_a_request_that_was_not_sent_has_a_reason(controller: Controller, coach: Coach) -> None:
    controller.is_up = False
    coach.outage.probe()
    result = coach.io.run(PRIORITY)
    assert (result.returncode, result.error) == (
        None,
        "sprio was not run, the Slurm controller does not answer: Slurmctld(primary) at c is DOWN",
    )
    assert controller.asked == ["ping"]


def test_commands_without_rpcs_run_during_an_outage(controller: Controller, coach: Coach) -> None:
    controller.is_up = False
    coach.outage.probe()
    coach.io.run(Query("past", ("sacct", "-X")))
    assert controller.asked == ["ping", "past"]


def test_one_probe_finds_it_up_for_all(controller: Controller, coach: Coach) -> None:
    controller.is_up = False
    coach.ask_all()
    coach.ask_all()
    controller.now_s += PROBE_EVERY_S
    controller.is_up = True
    controller.asked.clear()
    assert coach.ask_all() == [None, None, None]
    assert sorted(controller.asked) == ["jobs", "jobs", "nodes", "ping"]
    assert coach.num_returns == 1


def test_a_user_who_refreshes_gets_a_new_probe(controller: Controller, coach: Coach) -> None:
    controller.is_up = False
    coach.outage.probe()
    controller.is_up, controller.now_s = True, controller.now_s + 0.5
    assert coach.io.run(jobs_query("ada")).returncode is None, "it was looked just now"
    coach.shared.refuse_older()
    coach.outage.doubt()
    assert coach.io.run(jobs_query("ada")).returncode == 0
    assert coach.num_returns == 1


def test_an_answer_that_came_late_is_taken_although_the_probe_was_silent(
    controller: Controller, coach: Coach
) -> None:
    controller.is_up = False
    coach.outage.probe()
    io = coach.outage.spare(controller, has_late=lambda: True)
    controller.asked.clear()
    assert b"is UP" in io.run(Query("ping", ("scontrol", "ping"))).stdout
    io.run(jobs_query("ada"))
    assert controller.asked == ["jobs"]


def test_a_source_that_waits_a_minute_after_failures_looks_at_once_when_the_controller_is_back() -> None:
    class Failing:
        name, interval_s = "jobs", 3600.0

        def poll(self) -> Iterator[Reading]:
            yield Reading("jobs", 1.0, 0.0, None, error="away")

    class Well(Failing):
        def poll(self) -> Iterator[Reading]:
            yield Reading("jobs", 1.0, 0.0, None)

    pace, stop, failed, well = Pace(), threading.Event(), list[Reading](), list[Reading]()
    loops = [
        threading.Thread(target=poll_loop, args=(source, told.append, stop), kwargs={"pace": pace})
        for source, told in ((Failing(), failed), (Well(), well))
    ]
    for loop in loops:
        loop.start()
    try:
        for number in range(1, 4):  # the third pause would be 8 s
            wait_until(lambda number=number: len(failed) >= number, 1.5, "it has looked")
            pace.end_back_off()
        wait_until(lambda: len(failed) >= 4, 1.5, "it has looked")
        assert len(well) == 1
    finally:
        stop.set()
        pace.ring()
        for loop in loops:
            loop.join(10)
