"""The places that a launch writes to, and the quota, which is asked once a minute."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from coach.config import Settings
from coach.model.errors import UserError
from coach.sources.io import CommandResult, Query
from coach.sources.machine.disk import choose_root
from coach.workflows.launching.prepare import look_at_rooms, with_room
from tests.launch.examples import plan
from tests.sources.fake_io import FakeIo

ROW = b"/dev/home 1000 0 2000 0 5 0 100 0\n"


class World:
    def __init__(self, root: Path) -> None:
        self.settings = Settings(root / "runs", root / "cache", root / "config")
        self.io = FakeIo()
        self.io.write("/proc/self/mounts", f"/dev/home {root} ext4 rw 0 0\n".encode())
        self.num_asked = 0

    def answer(self, query: Query) -> bytes:
        self.num_asked += 1
        return ROW


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_two_plans_within_a_minute_ask_for_the_quota_once(world: World) -> None:
    world.io.answer("quota", world.answer)
    first, again, later = (
        look_at_rooms({"width": 8}, world.settings, world.io, now_s) for now_s in (100.0, 150.0, 161.0)
    )
    assert [room.quota and room.quota.left_bytes for room in (*first, *again, *later)] == [1000 * 1024] * 3
    assert world.num_asked == 2


def test_a_file_server_that_hangs_is_not_asked_by_every_plan(world: World) -> None:
    def hang(query: Query) -> CommandResult:
        world.num_asked += 1
        world.io.now_s += 2.0
        return CommandResult(query, None, b"", "", world.io.now_s, 2.0, "quota: no answer within 2 s")

    world.io.answers["quota"] = hang
    rooms = [look_at_rooms({}, world.settings, world.io, now_s)[0] for now_s in (100.0, 110.0)]
    assert [room.quota for room in rooms] == [None, None]
    assert world.num_asked == 1


def test_without_the_tool_nothing_is_written(world: World) -> None:
    (room,) = look_at_rooms({"width": 8}, world.settings, world.io, 100.0)
    assert room.quota is None
    assert not world.settings.cache_dir.exists()


def test_data_that_will_be_generated_needs_room_where_the_cache_lies(world: World, tmp_path: Path) -> None:
    (room,) = look_at_rooms({"width": 8}, world.settings, world.io, 100.0)
    assert list(room.needs) == ["checkpoints", "generated data"]
    world.io.append("/proc/self/mounts", f"/dev/other {tmp_path / 'cache'} ext4 rw 0 0\n".encode())
    on_runs, on_cache = look_at_rooms({"width": 8}, world.settings, world.io, 100.0)
    assert (list(on_runs.needs), on_cache.key, list(on_cache.needs)) == (
        ["checkpoints"],
        "cache_dir",
        ["generated data"],
    )


def test_data_that_is_there_needs_no_room(world: World, tmp_path: Path) -> None:
    world.io.write(f"{tmp_path}/cache/cifar-10-generated-10000-2000-v2/x", b"")
    (room,) = look_at_rooms({"width": 8}, world.settings, world.io, 100.0)
    assert list(room.needs) == ["checkpoints"]


def test_a_plan_tells_that_the_first_choice_of_a_runs_root_could_not_be_taken(
    world: World, tmp_path: Path
) -> None:
    (tmp_path / "full").touch()
    candidates = ((tmp_path / "full", "/etc/coach/site.toml:3"), (tmp_path / "runs", "$SCRATCH"))
    choice = choose_root(candidates)
    settings = replace(
        world.settings,
        runs_root=choice.path,
        runs_root_candidates=candidates,
        runs_root_text=choice.text,
    )
    notes = with_room(plan(tmp_path / "data"), settings, world.io, 100.0).notes
    assert [note for note in notes if "passed over" in note] == [
        f"runs go to {tmp_path}/runs ($SCRATCH); passed over: "
        f"{tmp_path}/full (/etc/coach/site.toml:3): {tmp_path}/full is not a directory"
    ]


def test_a_root_that_cannot_be_written_refuses_the_plan(world: World, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    settings = replace(world.settings, runs_root=tmp_path / "file" / "runs")
    with pytest.raises(UserError, match=r"runs cannot be written there: .* is not a directory"):
        with_room(plan(tmp_path / "data"), settings, world.io, 100.0)
