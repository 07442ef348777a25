"""Removals, and the runs that stay with the reason; nothing outside the runs root is ever touched."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from coach.model.errors import UserError
from coach.workflows.jobs.clean import CleanPlan, Selection, clean, plan_clean, still_meant
from tests.workflows.known import DAY_S, NOW_S, World

OLD, MIDDLE, NEW = (f"20261121-14223{number}-ddp-000{number}" for number in range(3))
LATER = "2026-11-30T12:00:00"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def plan(world: World, **selection: object) -> CleanPlan:
    return plan_clean(Selection(**selection), world.settings, world, ("ada"))  # type: ignore[arg-type] # a test's keywords


def ids(found: CleanPlan) -> list[str]:
    return [removal.run.run_id for removal in found.removals]


def do(found: CleanPlan, world: World) -> list[str]:
    problems: list[str] = []
    clean(found, world.settings, problems.append)
    return problems


def test_age_state_and_number_choose_together(world: World) -> None:
    world.make(OLD, "FAILED", 40 * DAY_S)
    world.make(MIDDLE, "COMPLETED", 35 * DAY_S)
    world.make(NEW, "FAILED", 5 * DAY_S)
    assert ids(plan(world)) == [NEW, MIDDLE, OLD]
    assert ids(plan(world, older_than_s=30 * DAY_S)) == [MIDDLE, OLD]
    assert ids(plan(world, older_than_s=30 * DAY_S, states=frozenset(["FAILED"]))) == [OLD]
    assert ids(plan(world, num_kept=2)) == [OLD]
    assert ids(plan(world, run_ids=(NEW,))) == [NEW]


def test_a_run_goes_with_its_logs_and_the_others_stay_whole(world: World) -> None:
    gone, stays = world.make(OLD), world.make(NEW)
    found = plan(world, run_ids=(OLD,))
    assert found.size_bytes > 1000
    assert do(found, world) == []
    assert not gone.exists()
    assert sorted(path.name for path in (gone.parent / ".logs").iterdir()) == [f"{NEW}.err", f"{NEW}.out"]
    assert (stays / "stdout.log").read_bytes() == b"x" * 10


def test_checkpoints_alone_leave_the_run_readable(world: World) -> None:
    run_dir = world.make(OLD)
    found = plan(world, is_checkpoints_only=True)
    assert (ids(found), found.size_bytes) == ([OLD], 1000)
    do(found, world)
    assert list((run_dir / "checkpoints").iterdir()) == []
    assert (run_dir / "run.json").is_file()
    assert plan(world, is_checkpoints_only=True).is_empty


def test_a_run_that_is_alive_stays_and_says_why(world: World) -> None:
    world.make(OLD, "RUNNING")
    world.queue({"job_id": "17", "state": "RUNNING", "submit": LATER})
    found = plan(world, run_ids=(OLD,))
    assert ids(found) == []
    assert [(kept.run_id, kept.because) for kept in found.kept] == [(OLD, "job 17 is RUNNING")]


def test_without_an_answer_of_the_queue_nothing_that_may_be_alive_goes(world: World) -> None:
    world.make(OLD, "RUNNING")
    world.make(NEW, "COMPLETED", 40 * DAY_S)
    world.rows = None
    found = plan(world, older_than_s=DAY_S)
    assert ids(found) == [NEW]
    assert "does not answer" in found.kept[0].because


def test_a_run_from_whose_checkpoint_another_one_starts_stays(world: World) -> None:
    start = world.make(OLD) / "checkpoints" / "step-00000040.pt"
    world.make(NEW, "PENDING", job_id="18", launch={"resume_from": str(start)})
    world.queue({"job_id": "18", "state": "PENDING", "submit": LATER})
    found = plan(world, older_than_s=DAY_S)
    assert ids(found) == []
    assert {kept.run_id: kept.because for kept in found.kept}[OLD] == f"{NEW} starts from its checkpoint"


def test_links_are_never_followed_out_of_the_runs_root(world: World, tmp_path: Path) -> None:
    treasure = tmp_path / "treasure"
    treasure.mkdir()
    (treasure / "thesis.tex").write_text("years")
    elsewhere = World(tmp_path / "elsewhere").make(MIDDLE)
    (world.make(OLD) / "profile").symlink_to(treasure)
    (world.settings.runs_root / MIDDLE).symlink_to(elsewhere)
    swapped = world.make(NEW)
    checkpoints = plan(world, run_ids=(NEW,), is_checkpoints_only=True)
    (swapped / "checkpoints").rename(tmp_path / "moved")
    (swapped / "checkpoints").symlink_to(tmp_path / "moved")
    assert "outside of" in do(checkpoints, world)[0]
    everything = plan(world, older_than_s=DAY_S)
    assert ids(everything) == [NEW, OLD]
    assert [kept.because for kept in everything.kept] == [
        "it is not a directory of this name in the runs root"
    ]
    assert do(everything, world) == []
    assert (treasure / "thesis.tex").read_text() == "years"
    assert (tmp_path / "moved" / "step-00000040.pt").exists()
    assert elsewhere.is_dir()


def test_a_run_json_that_names_another_run_removes_neither(world: World) -> None:
    world.make(OLD, run_id="../../home")
    found = plan(world, older_than_s=DAY_S)
    assert (ids(found), len(found.kept)) == ([], 1)


def test_leftovers_are_logs_without_a_run_and_code_that_no_run_uses(world: World) -> None:
    root = world.settings.runs_root
    world.make(NEW)
    old_s = NOW_S - 2 * DAY_S
    for name in ("0123456789abcdef", "fedcba9876543210"):
        (root / ".code" / name).mkdir(parents=True)
        (root / ".code" / name / "train.py").write_bytes(b"x" * 50)
        os.utime(root / ".code" / name, (old_s, old_s))
    for name in (f"{OLD}.out", "notes.txt", f"{MIDDLE}.out"):
        (root / ".logs" / name).write_bytes(b"x" * 7)
        os.utime(root / ".logs" / name, (old_s, old_s))
    os.utime(root / ".logs" / f"{MIDDLE}.out", (NOW_S, NOW_S))  # its run may be in preparation
    found = plan(world, num_kept=1)
    assert [(one.path.name, one.size_bytes) for one in found.leftovers] == [
        (f"{OLD}.out", 7),
        ("fedcba9876543210", 50),
    ]
    assert do(found, world) == []
    assert sorted(path.name for path in (root / ".code").iterdir()) == ["0123456789abcdef"]
    assert (root / ".logs" / "notes.txt").exists()


def test_code_stays_while_a_dry_run_s_script_may_start_from_it(world: World) -> None:
    root = world.settings.runs_root
    (root / OLD).mkdir(parents=True)
    (root / ".code" / "fedcba9876543210").mkdir(parents=True)
    os.utime(root / ".code" / "fedcba9876543210", (1, 1))
    os.utime(root / OLD, (NOW_S, NOW_S))
    assert plan(world).leftovers == ()
    os.utime(root / OLD, (1, 1))
    assert [one.path.name for one in plan(world).leftovers] == [OLD, "fedcba9876543210"]


def test_a_run_that_came_back_to_life_before_the_answer_stays(world: World) -> None:
    world.make(OLD)
    world.make(NEW, job_id="18")
    asked = plan(world, older_than_s=DAY_S)
    world.queue({"job_id": "18", "state": "PENDING", "submit": LATER})
    confirmed = still_meant(asked, plan(world, older_than_s=0.0))
    assert ids(confirmed) == [OLD]
    assert [kept.because for kept in confirmed.kept] == ["job 18 is PENDING"]


def test_a_missing_run_is_an_error_and_a_read_only_coach_removes_nothing(world: World) -> None:
    with pytest.raises(UserError, match="no such run"):
        plan(world, run_ids=(OLD,))
    run_dir = world.make(OLD)
    world.settings = replace(world.settings, is_readonly=True)
    with pytest.raises(UserError, match="read-only"):
        do(plan(world), world)
    assert run_dir.is_dir()
