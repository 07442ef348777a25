"""A launch that shares a summary with a cohort: noted in its plan, refused or left out if it is impossible,
and kept up to date by coach."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coach.cli import guarded, run_command
from coach.config import LaunchDefaults, Lock
from coach.model.errors import UserError
from coach.model.judging.finding import Diagnosis
from coach.model.launching.launch import LaunchRequest
from coach.model.slurm.job_action import Verb
from coach.model.snapshot import Snapshot, TargetSnapshot
from coach.sources.io import SystemIo
from coach.sources.runs.run_files import read_run
from coach.workflows.jobs.job_actions import perform, plan_action
from coach.workflows.launching.start import submit
from coach.workflows.sharing import Sharer, unshared
from coach.workflows.teaching.drill_answer import answer_drill
from tests.installed import REPOSITORY
from tests.waiting import wait_until
from tests.workflows.test_launching import World

RECORDING = REPOSITORY / "tests" / "recordings" / "nan"
RUN_ID = "20261121-043902-baseline-bca6"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    place = tmp_path / "cohort"
    place.mkdir()
    place.chmod(0o1777)
    return place


def shared(place: Path) -> list[dict[str, Any]]:
    return [json.loads(file.read_bytes()) for file in place.iterdir() if not file.name.startswith(".")]


def asked(place: Path) -> LaunchRequest:
    return LaunchRequest("ddp", python=sys.executable, share=str(place))


def test_the_plan_lists_the_shared_facts_and_the_cohort_sees_the_run_as_soon_as_it_waits(
    world: World, place: Path
) -> None:
    plan = world.plan(asked(place))
    assert any(str(place) in note and "shares a summary" in note for note in plan.notes)
    assert list(place.iterdir()) == []
    submit(plan, world.settings, world.env, world.io)
    [told] = shared(place)
    assert (told["run_id"], told["state"], told["recipe"]) == (plan.run_id, "PENDING", "ddp")


def test_without_being_asked_nothing_is_shared(world: World) -> None:
    plan = world.plan()
    assert not any("share" in note for note in plan.notes)
    assert plan.request.share is None


def test_a_launch_that_is_refused_leaves_nothing_behind(world: World, place: Path) -> None:
    world.client("sbatch", 'echo "sbatch: error: Invalid account" >&2; exit 1')
    with pytest.raises(UserError):
        submit(world.plan(asked(place)), world.settings, world.env, world.io)
    assert list(place.iterdir()) == []


def test_a_run_that_is_cancelled_while_it_waits_is_not_waited_for_any_longer(
    world: World, place: Path
) -> None:
    submitted = submit(world.plan(asked(place)), world.settings, world.env, world.io)
    action = plan_action(Verb.CANCEL, [submitted.run_id], world.settings, world.env, world.io)
    perform(action, world.env, world.io.now())
    assert [told["state"] for told in shared(place)] == ["CANCELLED"]


def test_an_unsafe_directory_is_refused_on_the_command_line_and_skipped_from_the_config(
    world: World, place: Path
) -> None:
    place.chmod(0o777)
    with pytest.raises(UserError, match="could replace"):
        world.plan(asked(place))
    world.settings = replace(world.settings, launch=LaunchDefaults(share=str(place)))
    plan = world.plan()
    assert plan.request.share is None
    assert any("shares no summary" in warning for warning in plan.warnings)


def test_a_person_may_share_nothing_unless_the_site_has_locked_it(world: World, place: Path) -> None:
    world.settings = replace(world.settings, launch=LaunchDefaults(share=str(place)))
    assert world.plan().request.share == str(place)
    plan = world.plan(LaunchRequest("ddp", python=sys.executable, share="none"))
    assert not any("shares" in note for note in plan.notes)
    submit(plan, world.settings, world.env, world.io)
    assert list(place.iterdir()) == []
    world.settings = replace(world.settings, locks={"launch.share": Lock("the course", "site.toml:3")})
    with pytest.raises(UserError, match="the course"):
        world.plan(LaunchRequest("ddp", python=sys.executable, share="none"))


def test_a_launch_that_only_tries_something_is_no_work_of_anybody_s(world: World, place: Path) -> None:
    tried = unshared(LaunchRequest("ddp", python=sys.executable))
    world.settings = replace(world.settings, launch=LaunchDefaults(share=str(place)))
    assert not any("shares" in note for note in world.plan(tried).notes)
    assert unshared(asked(place)) == asked(place)
    world.settings = replace(world.settings, locks={"launch.share": Lock("the course", "site.toml:3")})
    assert world.plan(tried).request.share == str(place)


@pytest.fixture
def recorded(tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """A run whose loss became NaN, launched to be shared."""

    def make(**more: Any) -> Path:
        run_dir = tmp_path / "home" / "runs" / RUN_ID
        shutil.copytree(RECORDING, run_dir)
        record = json.loads((run_dir / "run.json").read_text())
        record |= {"run_id": RUN_ID, "launch": {"share": str(place)}, "state": "COMPLETED", **more}
        (run_dir / "run.json").write_text(json.dumps(record))
        monkeypatch.setenv("COACH_HOME", str(tmp_path / "home"))
        return run_dir

    return make


def test_checking_a_run_shares_its_finding_with_the_cohort(
    recorded: Callable[..., Path], place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    recorded()
    guarded(lambda: run_command("check", [RUN_ID, "--backend", "local"]))
    [told] = shared(place)
    assert told["finding"] == {"code": "NUM001", "severity": "critical"}
    assert told["state"] == "COMPLETED"


def test_a_read_only_coach_shares_nothing(
    recorded: Callable[..., Path],
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    recorded()
    monkeypatch.setenv("COACH_READONLY", "1")
    guarded(lambda: run_command("check", [RUN_ID, "--backend", "local"]))
    assert list(place.iterdir()) == []


def test_the_cohort_sees_if_a_drill_was_solved_and_never_its_cause(
    recorded: Callable[..., Path], place: Path, capfd: pytest.CaptureFixture[str], world: World
) -> None:
    from coach.config import load

    recorded(recipe="typo", drill="typo")
    guarded(lambda: run_command("check", [RUN_ID, "--backend", "local"]))
    [told] = shared(place)
    assert (told["finding"], told["is_judged"], told["is_solved"]) == (None, False, None)
    answer_drill(RUN_ID, None, load(dict(os.environ)), world.io, "ada")
    [told] = shared(place)
    assert (told["finding"], told["is_judged"], told["is_solved"]) == (None, False, False)


def test_an_open_coach_shares_new_results(recorded: Callable[..., Path], place: Path, tmp_path: Path) -> None:
    run = read_run(SystemIo({}), recorded())
    diagnosis = Diagnosis(RUN_ID, "COMPLETED", (), ())
    snapshot = Snapshot(
        1.0, targets={RUN_ID: TargetSnapshot(RUN_ID, None, run=run)}, diagnoses={RUN_ID: diagnosis}
    )
    sharer = Sharer()
    sharer.tell(snapshot)
    wait_until(lambda: [told["is_judged"] for told in shared(place)] == [True], what="a summary")
    for file in place.iterdir():
        file.unlink()
    sharer.tell(snapshot)
    sharer.tell(replace(snapshot, diagnoses={RUN_ID: replace(diagnosis, state="TIMEOUT")}))
    wait_until(lambda: [told["state"] for told in shared(place)] == ["TIMEOUT"], what="the news")
