"""The doctor's judgement of the main job, from its plan and from Slurm's test of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from coach.launch.environment_check import EnvironmentCheck
from coach.model.judging.doctor_report import CheckState
from coach.model.launching.environment import Environment, EnvironmentKind
from coach.model.launching.launch import Plan
from coach.sources.io import CommandResult, Query
from coach.workflows.doctor.launching import judge_environment, judge_plan, judge_test
from tests.launch.examples import PATHS, plan, write_recipe


@pytest.fixture
def ddp(tmp_path: Path) -> Plan:
    write_recipe(tmp_path)
    return plan(tmp_path, partition="gpu", account="x", num_nodes=2, gpus_per_node=1)


def planned_in(data: Path, python: str, environment: Environment | None) -> Plan:
    return plan(data, paths=replace(PATHS, python=python), trained_in=environment)


def answer(returncode: int | None, stderr: str = "", error: str | None = None) -> CommandResult:
    return CommandResult(Query("test-only", ("sbatch",)), returncode, b"", stderr, 0.0, 0.1, error)


def test_the_plan_is_summarized_in_one_line(ddp: Plan) -> None:
    check = judge_plan("plan of ddp", ddp)
    assert check.state is CheckState.OK
    assert "2 nodes, 1" in (check.value or "")
    assert "partition gpu" in (check.value or "")


def test_an_unusual_plan_is_a_warning(tmp_path: Path) -> None:
    write_recipe(tmp_path)
    check = judge_plan("plan of ddp", plan(tmp_path, set={"lr": "30"}))
    assert check.state is CheckState.WARNING
    assert "lr = 30" in (check.because or "")


def test_an_unverified_torch_is_unknown_and_not_well(ddp: Plan, tmp_path: Path) -> None:
    known = judge_environment(ddp, EnvironmentCheck(torch="2.6.0"), has_own_torch=False)
    assert (known.state, known.value) == (CheckState.OK, "/env/bin/python, torch 2.6.0")

    by_path = planned_in(tmp_path, "python3", None)
    unknown = judge_environment(by_path, EnvironmentCheck(), has_own_torch=False)
    assert (unknown.state, unknown.is_needed) == (CheckState.UNKNOWN, True)
    assert "launch.environment" in (unknown.todo or "")

    modules = Environment(EnvironmentKind.MODULES, "pt", modules=("pytorch/2.6",))
    later = EnvironmentCheck(unknown="the torch of modules is not checked until the job starts")
    check = judge_environment(planned_in(tmp_path, "python3", modules), later, has_own_torch=False)
    assert (check.state, check.because) == (CheckState.UNKNOWN, later.unknown)
    assert "pytorch/2.6" in (check.value or "")


def test_slurm_s_yes_is_shown_with_the_expected_start(ddp: Plan) -> None:
    said = (
        "sbatch: Job 5 to start at 2026-11-21T07:00:00 using 1 processors on nodes node1 in partition gpu\n"
    )
    check = judge_test(answer(0, said), ddp)
    assert (check.state, check.value) == (CheckState.OK, "Slurm accepts it")
    assert (check.because or "").startswith("Job 5 to start at")


def test_slurm_s_no_is_shown_in_its_own_words_with_the_option_to_set(ddp: Plan) -> None:
    said = (
        "sbatch: error: Invalid account or account/partition combination specified\n"
        "allocation failure: Invalid account or account/partition combination specified\n"
    )
    check = judge_test(answer(1, said), ddp)
    assert (check.state, check.value) == (CheckState.WRONG, "refused")
    assert "Invalid account" in (check.because or "")
    assert "--account" in (check.todo or "")


def test_no_answer_is_no_refusal(ddp: Plan) -> None:
    check = judge_test(answer(None, error="sbatch: no answer within 3.0 s"), ddp)
    assert (check.state, check.because) == (CheckState.UNKNOWN, "sbatch: no answer within 3.0 s")
    assert check.is_needed
