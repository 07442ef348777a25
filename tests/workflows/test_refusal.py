"""From a refused submission to the next launch, which needs no answer any more. Slurm's clients are small scripts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from coach.config import Lock, Settings
from coach.launch.refusal import Refused
from coach.launch.submit import NoAnswer
from coach.model.launch import LaunchRequest
from coach.workflows.defaults import locked_fields, with_defaults
from coach.workflows.refusal import remember_answers
from coach.workflows.submit import submit
from tests.workflows.test_launching import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.client(
        "sbatch",
        "echo 'sbatch: error: Batch job submission failed: Invalid account or account/partition' >&2; exit 1",
    )
    return world


def test_a_refusal_offers_the_accounts_that_slurm_knows(world: World) -> None:
    world.client("sacctmgr", 'echo "$@" > "$FAKE/sacctmgr.args"; echo "lab|normal"; echo "teaching|normal"')
    plan = world.plan()
    with pytest.raises(Refused) as caught:
        submit(plan, world.settings, world.env, world.io)
    assert (caught.value.field, [choice.text for choice in caught.value.choices]) == (
        "account",
        ["lab", "teaching"],
    )
    assert caught.value.hint == "try --account=lab, or teaching"
    assert "show assoc user=" in (world.root / "sacctmgr.args").read_text()
    assert not Path(plan.run_dir).exists()


def test_an_accounting_database_that_hangs_delays_a_refusal_by_no_more_than_its_limit(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coach.sources.allowed.TIMEOUT_S", 0.1)
    world.client("sacctmgr", "exec sleep 30")
    with pytest.raises(Refused) as caught:
        submit(world.plan(), world.settings, world.env, world.io)
    assert (caught.value.field, caught.value.choices) == ("account", ())


def test_a_submission_whose_answer_was_lost_keeps_the_run_that_may_be_queued(world: World) -> None:
    lost = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"
    world.client("sbatch", f"echo '{lost}' >&2; exit 1")
    plan = world.plan()
    with pytest.raises(NoAnswer, match="Socket timed out") as caught:
        submit(plan, world.settings, world.env, world.io)
    assert "may have taken it" in (caught.value.hint or "")
    assert Path(plan.run_dir, "job.sh").is_file()


def test_what_the_site_locks_is_known_to_the_plan_by_field_and_reason(world: World) -> None:
    locks = {
        "launch.time": Lock("one hour each", "/etc/coach/site.toml:8"),
        "launch.sbatch": Lock("no more", "s:9"),
    }
    world.settings = replace(world.settings, locks=locks)
    assert world.plan().locked == {
        "time_limit_s": "one hour each (/etc/coach/site.toml:8)",
        "sbatch": "no more (s:9)",
    }
    whole = replace(world.settings, locks={"launch": Lock("all of it", "s:1")})
    assert {"account", "partition", "num_nodes", "sbatch"} <= set(locked_fields(whole))


def test_an_answer_that_was_taken_is_the_next_launch_s_default(world: World) -> None:
    answers = {"account": "lab", "gpu_type": "a100", "time_limit_s": "600"}
    settings, notes = remember_answers(answers, world.settings)
    assert notes == (f"remembered for {settings.cluster}: account lab, gpu_type a100",)
    request = with_defaults(LaunchRequest("ddp"), settings)
    assert (request.account, request.gpu_type) == ("lab", "a100")
    assert request.time_limit_s is None
    assert {"account", "gpu_type"} <= request.defaulted
    assert with_defaults(LaunchRequest("ddp", account="other"), settings).account == "other"


def test_a_reservation_that_was_left_out_is_forgotten(world: World) -> None:
    settings, _ = remember_answers({"account": "lab", "reservation": "workshop"}, world.settings)
    assert settings.launch.reservation == "workshop"
    settings, notes = remember_answers({"reservation": ""}, settings)
    assert notes == (f"remembered for {settings.cluster}: reservation none",)
    assert (settings.launch.account, settings.launch.reservation) == ("lab", None)
    written = (settings.config_dir / "remembered.toml").read_text()
    assert "lab" in written
    assert "workshop" not in written


def test_an_answer_that_cannot_be_written_is_told_and_fails_nothing(world: World) -> None:
    blocked = world.root / "file"
    blocked.write_text("")
    settings: Settings = replace(world.settings, config_dir=blocked / "config")
    same, (note,) = remember_answers({"account": "lab"}, settings)
    assert same == settings
    assert note.startswith("not remembered for the next launch: ")
    assert remember_answers({}, settings) == (settings, ())
