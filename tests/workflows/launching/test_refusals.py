"""From a refused submission to the next launch, which asks for nothing more. Slurm's clients are small
scripts."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coach.config import LaunchDefaults, Lock
from coach.launch.refusal import Refused
from coach.launch.submit import NoAnswer
from coach.model.errors import UserError
from coach.model.judging.finding import Fix
from coach.model.launching.launch import LaunchRequest
from coach.sources.runs.run_files import read_run
from coach.workflows.launching.defaults import locked_fields, with_defaults
from coach.workflows.launching.refusals import remember_answers
from coach.workflows.launching.relaunch import changes, request_for_fix
from coach.workflows.launching.start import submit
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
    world.client(
        "sacctmgr",
        'echo "$@" > "$FAKE/sacctmgr.args"; echo "Account|QOS"; echo "lab|normal"; echo "teaching|normal"',
    )
    plan = world.plan()
    with pytest.raises(Refused) as caught:
        submit(plan, world.settings, world.env, world.io)
    assert (caught.value.field, [choice.text for choice in caught.value.choices]) == (
        "account",
        ["lab", "teaching"],
    )
    assert caught.value.hint == "try --account=lab, or teaching"
    assert "show associations where user=" in (world.root / "sacctmgr.args").read_text()
    assert not Path(plan.run_dir).exists()


def test_an_accounting_database_that_hangs_delays_a_refusal_by_no_more_than_its_limit(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coach.sources.slurm.allowed_choices.TIMEOUT_S", 0.1)
    world.client("sacctmgr", "exec sleep 30")
    with pytest.raises(Refused) as caught:
        submit(world.plan(), world.settings, world.env, world.io)
    assert (caught.value.field, caught.value.choices) == ("account", ())


def test_the_site_s_message_about_an_accepted_job_is_shown(world: World) -> None:
    world.client("sbatch", "echo 'sbatch: Your project has used 95 % of its hours.' >&2; echo 17")
    submitted = submit(world.plan(), world.settings, world.env, world.io)
    assert (submitted.job_id, submitted.notes) == (
        "17",
        ("sbatch: Your project has used 95 % of its hours.",),
    )


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            "echo 'Batch job submission failed: Socket timed out on send/recv operation' >&2; exit 1",
            "timed out",
        ),
        ("echo 'Your job is number 17'", "number 17"),
    ],
)
def test_a_submission_whose_answer_was_lost_keeps_the_run_that_may_be_queued(
    world: World, answer: str, words: str
) -> None:
    world.client("sbatch", answer)
    plan = world.plan()
    with pytest.raises(NoAnswer, match=words) as caught:
        submit(plan, world.settings, world.env, world.io)
    assert "may have accepted the job" in (caught.value.hint or "")
    assert Path(plan.run_dir, "job.sh").is_file()


def test_the_plan_knows_the_site_s_locks_by_field_and_reason(world: World) -> None:
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


def launched(world: World, **said: Any) -> tuple[str, ...]:
    """A launch that is accepted because it names an account and a reservation; returns the lines shown. The
    settings then hold its answers."""
    world.client("sbatch", REFUSING)
    plan = world.plan(LaunchRequest("ddp", python=sys.executable, **said))
    submit(plan, world.settings, world.env, world.io)
    world.settings, notes = remember_answers(plan, world.settings)
    return notes


REFUSING = """\
words() { echo "sbatch: error: $1"; echo "sbatch: error: Batch job submission failed: Unspecified error"; exit 1; } >&2
for script; do :; done
grep -q -e --account= "$script" || words "no account"
grep -q -e --reservation= "$script" || words "--reservation=NAME is needed"
echo 17
"""


def test_options_that_a_site_demanded_and_accepted_become_the_next_launch_s_defaults(world: World) -> None:
    with pytest.raises(Refused):
        launched(world)
    with pytest.raises(Refused):
        launched(world, account="lab")
    said = {"account": "lab", "reservation": "workshop", "time_limit_s": 600, "qos": "normal"}
    assert launched(world, **said) == ("remembered for default: --account=lab --reservation=workshop",)
    request = with_defaults(LaunchRequest("ddp"), world.settings)
    assert (request.account, request.reservation, request.qos, request.time_limit_s) == (
        *("lab", "workshop", None, None),
    )
    assert with_defaults(LaunchRequest("ddp", account="other"), world.settings).account == "other"
    assert launched(world) == ()
    assert launched(world, account="other") == ()  # the site had not asked for it


def test_a_fix_of_a_run_on_cpus_is_not_refused_for_a_type_of_gpu_that_the_config_has(world: World) -> None:
    defaults = LaunchDefaults(gpu_type="a100", cpus_per_gpu=4, cpus_per_task=2, python=sys.executable)
    world.settings = replace(world.settings, launch=defaults)
    world.client("sbatch", "echo 17")
    on_cpus = world.plan(LaunchRequest("ddp", partition="cpu"))
    parent = read_run(world.io, Path(submit(on_cpus, world.settings, world.env, world.io).run_dir))
    assert not {"gpu_type", "cpus_per_gpu"} & set(parent.launch)
    assert parent.launch["cpus_per_task"] == 2
    child = world.plan(request_for_fix(parent, Fix("a smaller learning rate", {"lr": 0.003}), "NUM001"))
    assert [name for name, _, _ in changes(parent, child)] == ["lr"]


def test_a_fix_of_a_run_on_gpus_asks_for_their_cpus_in_the_same_way(world: World) -> None:
    defaults = LaunchDefaults(partition="gpu", cpus_per_gpu=4, cpus_per_task=2, python=sys.executable)
    world.settings = replace(world.settings, launch=defaults)
    world.client("sbatch", "echo 17")
    parent = read_run(world.io, Path(submit(world.plan(), world.settings, world.env, world.io).run_dir))
    child = world.plan(request_for_fix(parent, Fix("a smaller learning rate", {"lr": 0.003}), "NUM001"))
    assert (child.resources.cpus_per_gpu, child.resources.cpus_per_task) == (4, 8)
    older = {
        name: value for name, value in parent.resources.items() if name not in ("gpu_request", "exclude")
    }
    assert [name for name, _, _ in changes(replace(parent, resources=older), child)] == ["lr"]


def test_another_process_of_coach_may_give_the_answer(world: World) -> None:
    with pytest.raises(Refused):
        launched(world, reservation="workshop")
    world.settings = replace(world.settings)
    assert launched(world, account="lab", reservation="workshop") == (
        "remembered for default: --account=lab",
    )


def test_a_reservation_that_was_left_out_is_forgotten(world: World) -> None:
    with pytest.raises(Refused):
        launched(world, account="lab")
    launched(world, account="lab", reservation="workshop")
    expired = "sbatch: error: Batch job submission failed: Requested reservation is invalid"
    world.client("sbatch", f"echo '{expired}' >&2; exit 1")
    with pytest.raises(Refused) as caught:
        submit(world.plan(), world.settings, world.env, world.io)
    assert [choice.changes for choice in caught.value.choices] == [{"reservation": ""}]
    world.client("sbatch", "echo 18")
    plan = world.plan(LaunchRequest("ddp", python=sys.executable, reservation=""))
    submit(plan, world.settings, world.env, world.io)
    settings, notes = remember_answers(plan, world.settings)
    assert notes == ("remembered for default: --reservation=none",)
    assert settings.launch.reservation is None
    assert "workshop" not in (settings.config_dir / "remembered.toml").read_text()


def test_an_answer_that_cannot_be_saved_is_reported_and_fails_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Refused):
        launched(world, reservation="workshop")

    def refuse(*_: object) -> None:
        raise UserError("remembered.toml: cannot be written: No space left on device")

    monkeypatch.setattr("coach.workflows.launching.refusals.remember", refuse)
    (note,) = launched(world, account="lab", reservation="workshop")
    assert note.startswith("not remembered for the next launch: remembered.toml: cannot be written")


@pytest.mark.parametrize("spoilt", ["{", "[]", '{"default": "account"}', '{"default": [3, "time"]}'])
def test_a_spoilt_file_of_questions_asks_nothing(world: World, spoilt: str) -> None:
    world.settings.config_dir.mkdir()
    (world.settings.config_dir / "asked.json").write_text(spoilt)
    assert launched(world, account="lab", reservation="workshop") == ()


def test_a_home_that_cannot_be_written_is_no_reason_to_hide_the_refusal(world: World) -> None:
    blocked = world.root / "file"
    blocked.write_text("")
    world.settings = replace(world.settings, config_dir=blocked / "config")
    with pytest.raises(Refused, match="no account"):
        launched(world)
