"""Kill -9 of the screens, as they are about to change something: nothing is lost, and the next start goes on.

`make test-real` takes some moments, `make test-long` all of them. With COACH_FAULTS_TABLE=FILE the long part
appends its rows there.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from coach.runs import has_lost_its_owner
from tests.faults import programs, screens
from tests.faults.kill_points import forked
from tests.faults.world import Worlds
from tests.waiting import PATIENCE

pytestmark = pytest.mark.real

SOME = 3
"""Ten were asked for: each costs two starts of the screens, and `make test-real` has to stay short."""


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Worlds:
    return Worlds(tmp_path_factory.mktemp("screens"))


def test_killed_screens_lose_nothing_and_the_next_start_cleans_up(worlds: Worlds, tmp_path: Path) -> None:
    number = num_moments(worlds, tmp_path)
    for at in range(1, SOME + 1):
        killed(worlds, tmp_path / f"{at}", number * at // (SOME + 1))


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_screens_that_are_killed_at_each_moment(worlds: Worlds, tmp_path: Path) -> None:
    table = os.environ.get("COACH_FAULTS_TABLE", os.devnull)
    for at in range(1, num_moments(worlds, tmp_path) + 1):
        is_killed, moment, said = killed(worlds, tmp_path / f"{at}", at)
        with open(table, "a") as file:
            end = "killed" if is_killed else "ended first"
            file.write(f"screens\t{at}\t{moment}\t{end}\t{said}\n")


def num_moments(worlds: Worlds, folder: Path) -> int:
    """The changes of screens without a kill."""
    world = worlds.make()
    try:
        screens.prepare(world)
        assert started(world, folder / "whole", None) == 0, world.output
        return len(screens.journal_of(folder / "whole"))
    finally:
        world.end()


def killed(worlds: Worlds, journal: Path, at: int) -> tuple[bool, str, str]:
    """Kill the screens at a moment and start them again. Returns whether and where they were killed, and the
    result."""
    world = worlds.make()
    try:
        screens.prepare(world)
        status = started(world, journal, at)
        assert status in (-9, 0), world.output
        world.wait_for_silence("screens that were killed")
        was_settled = screens.has_settled(world)
        start_s = time.monotonic()
        status_of_next = started(world, journal.with_suffix(".next"), None)
        assert status_of_next == 0, (status_of_next, (world.home / "painted").read_bytes()[-3000:])
        passed_s = time.monotonic() - start_s
        assert screens.has_settled(world)
        assert passed_s < 14.0 * PATIENCE, "nobody waits for a lock of the dead"
        programs.check_queue(world)
        assert len(world.clients.jobs) == 2
        # A lock may be left beside a file that has no writer any more; a later writer does not wait for it.
        # An empty one, left before its owner wrote a name, is given up by its age.
        left = [path for path in world.root.rglob("*.lock") if path.stat().st_size]
        assert all(has_lost_its_owner(path) for path in left)
        said = "both runs had been seen to" if was_settled else "the next start saw to what was left"
        return status == -9, screens.journal_of(journal)[-1], said
    finally:
        world.end()


def started(world: programs.World, journal: Path, kill_at: int | None) -> int:
    program = forked(screens.body(world, journal, kill_at))
    program.go()
    return program.wait()
