"""Kill -9 at a boundary between two system calls: no run is lost, no order given twice, nothing left running.

`make test-real` takes some moments of each program, `make test-long` up to 200: all that there are, where a
program makes fewer changes. With COACH_FAULTS_TABLE=FILE the long part writes a row for each kill there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.kill_points import CHANGING, Moment, forked, moments_of, spread
from tests.faults.programs import VICTIMS, Victim
from tests.faults.world import Worlds

pytestmark = [pytest.mark.strace, pytest.mark.real]

SOME = {
    "launch": 5,
    "first launch": 1,
    "local launch": 3,
    "sweep": 2,
    "fix": 2,
    "coach run": 3,
    "local supervisor": 4,
    "sampler": 3,
    "verdict in the job": 3,
    "cohort writer": 3,
}
"""Ten of each were asked for: each costs a start of coach, and `make test-real` has to stay short."""
MANY = 200


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Worlds:
    return Worlds(tmp_path_factory.mktemp("kills"))


@pytest.fixture
def table() -> Iterator[list[str]]:
    rows: list[str] = []
    yield rows
    path = os.environ.get("COACH_FAULTS_TABLE")
    if path:
        with open(path, "a") as file:
            file.writelines(f"{row}\n" for row in rows)


@pytest.mark.parametrize("name", list(VICTIMS))
def test_a_program_that_is_killed_loses_nothing_and_the_next_start_goes_on(
    name: str, worlds: Worlds, tmp_path: Path
) -> None:
    victim = VICTIMS[name]
    moments = spread(all_moments(victim, worlds, tmp_path), SOME[name])
    said = [killed(victim, worlds, moment, tmp_path) for moment in moments]
    assert any(is_killed for is_killed, _ in said)


@pytest.mark.long
@pytest.mark.parametrize("name", list(VICTIMS))
def test_at_each_of_two_hundred_moments(name: str, worlds: Worlds, tmp_path: Path, table: list[str]) -> None:
    victim = VICTIMS[name]
    failed = []
    for number, moment in enumerate(spread(all_moments(victim, worlds, tmp_path), MANY), 1):
        try:
            is_killed, said = killed(victim, worlds, moment, tmp_path)
        except AssertionError as error:
            failed.append(f"{moment}: {error}")
            is_killed, said = True, f"**failed**: {str(error).splitlines()[0][:120]}"
        table.append(f"{name}\t{number}\t{moment.what}\t{'killed' if is_killed else 'ended first'}\t{said}")
    assert not failed, "\n".join(failed)


def all_moments(victim: Victim, worlds: Worlds, folder: Path) -> list[Moment]:
    """The changes that a program makes without a kill."""
    world, trace = worlds.make(victim.has_code), folder / "whole"
    try:
        victim.prepare(world)
        program = forked(victim.body(world))
        tracer = program.trace(trace, "-y", "-e", f"trace={','.join(CHANGING)}")
        assert program.wait() == 0, world.output
        tracer.wait()
        victim.check(world)
        found = moments_of(trace.read_text(errors="replace"), [world.root, world.home / "cohort"])
    finally:
        world.end()
    assert found
    return found


def killed(victim: Victim, worlds: Worlds, moment: Moment, folder: Path) -> tuple[bool, str]:
    """Kill the program at a moment. Returns whether it was killed, and the message of the next start."""
    world = worlds.make(victim.has_code)
    try:
        victim.prepare(world)
        program = forked(victim.body(world))
        tracer = program.trace(
            folder / "cut", "-e", f"trace={moment.call}", "-e", f"inject={moment.injection}"
        )
        status = program.wait()
        tracer.wait()
        return status == -9, victim.check(world)
    finally:
        world.end()
