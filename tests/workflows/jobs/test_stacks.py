"""Entering a running job for its stacks: the exact command, the question before it, and the refusals before
anything runs."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coach import runs
from coach.model.errors import UserError
from coach.model.training.stacks import StacksPlan
from coach.sources.metrics.stack_dumps import parse_stacks
from coach.workflows.jobs.stacks import plan_stacks, take_stacks
from tests.workflows.jobs.test_job_actions import MADE_S, RUN, queue_says, recorded
from tests.workflows.test_launching import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.client("srun", 'echo "slurm 24.11.5"')
    return world


def planned(world: World, target: str) -> StacksPlan:
    return plan_stacks(target, world.settings, world.env, world.io)


def test_the_step_runs_on_all_nodes_of_a_run_under_its_own_interpreter_without_a_question(
    world: World,
) -> None:
    paths = recorded(
        world, submitted_time_s=MADE_S, environment={"kind": "venv", "python": "/home/ada/venv/bin/python"}
    )
    queue_says(world, "RUNNING")
    plan = planned(world, RUN)
    assert not plan.must_ask
    assert plan.argv[:6] == (
        *("srun", "--jobid=17", "--overlap", "--nodes=1", "--ntasks=1", "--ntasks-per-node=1"),
    )
    assert plan.argv[7] == "/home/ada/venv/bin/python"
    assert plan.folder.parent == paths.stacks_dir
    assert not plan.folder.exists()


@pytest.mark.parametrize(
    "environment",
    [{}, {"kind": "apptainer", "python": "/opt/python"}, {"kind": "modules", "python": "python3"}],
)
def test_an_interpreter_that_needs_more_than_its_path_is_not_used(
    world: World, environment: dict[str, Any]
) -> None:
    recorded(world, submitted_time_s=MADE_S, environment=environment)
    queue_says(world, "RUNNING")
    assert planned(world, RUN).argv[7] == sys.executable


def test_stacks_of_a_foreign_job_need_a_question_also_under_coach_run(world: World) -> None:
    queue_says(world, "RUNNING")
    plan = planned(world, "17")
    assert plan.must_ask
    assert plan.folder.parent == world.settings.cache_dir / "stacks" / "17"
    recorded(world, command=["python", "train.py"])
    assert planned(world, "17").must_ask
    assert planned(world, RUN).must_ask


def test_stacks_are_refused_first_for_a_waiting_job_an_old_slurm_and_a_read_only_coach(world: World) -> None:
    queue_says(world, "PENDING")
    with pytest.raises(UserError, match="it is PENDING"):
        planned(world, "17")
    queue_says(world, "RUNNING")
    world.client("srun", 'echo "slurm 21.08.8"')
    with pytest.raises(UserError, match=r"this is Slurm 21\.08\.8: before 22\.05"):
        planned(world, "17")
    world.settings = replace(world.settings, is_readonly=True)
    with pytest.raises(UserError, match="starts nothing beside a job"):
        planned(world, "17")


def test_a_node_that_was_silent_is_counted_and_the_others_are_shown_and_kept(world: World) -> None:
    queue_says(world, "RUNNING")
    plan = replace(planned(world, "17"), num_nodes=2)
    answer = json.dumps({"node": "node1", "ranks": [{"pid": 7, "rank": 0, "rung": "/proc", "state": "S"}]})
    words = "srun: error: node2: task 1: Exited with exit code 1"
    world.client("srun", f"cat > {plan.folder}/node1.json <<'END'\n{answer}\nEND\necho '{words}' >&2; exit 1")
    stacks = take_stacks(plan, world.settings, world.env)
    assert (len(stacks.ranks), stacks.num_silent_nodes, stacks.because) == (1, 1, words)
    assert "1 of 2 nodes did not answer" in (plan.folder / "summary.txt").read_text()
    assert list((world.settings.runs_root / runs.CODE_FOLDER).glob("*/coach/node/startup/sitecustomize.py"))


def test_when_no_node_answers_slurms_words_are_shown_with_a_remedy(world: World) -> None:
    queue_says(world, "RUNNING")
    plan = planned(world, "17")
    world.client(
        "srun", "echo 'slurmstepd: error: execve(): /x/python: No such file or directory' >&2; exit 2"
    )
    with pytest.raises(UserError, match="no stacks: slurmstepd: error: execve") as refused:
        take_stacks(plan, world.settings, world.env)
    assert "--python" in (refused.value.hint or "")


def test_the_step_knows_nothing_of_an_allocation_that_coach_itself_runs_in(world: World) -> None:
    queue_says(world, "RUNNING")
    plan = planned(world, "17")
    world.client("srun", 'env > "$FAKE/srun.env"; exit 1')
    with pytest.raises(UserError, match="no stacks"):
        take_stacks(plan, world.settings, {**world.env, "SLURM_JOB_ID": "9", "SLURM_CONF": "/etc/s.conf"})
    given = (world.root / "srun.env").read_text()
    assert "SLURM_CONF=/etc/s.conf" in given
    assert "SLURM_JOB_ID" not in given


@pytest.mark.parametrize(
    "value",
    [{}, {"ranks": 7}, {"ranks": [7, {}, {"pid": "x"}]}, {"ranks": [{"pid": True}]}],
)
def test_a_node_s_file_with_other_content_is_no_rank(value: dict[str, Any]) -> None:
    assert parse_stacks(value) == ()


def test_a_rank_that_gives_only_its_process_has_no_other_known_value() -> None:
    (rank,) = parse_stacks(
        {"node": "n", "ranks": [{"pid": 7, "flight": 3, "threads": [{"frames": 3}], "missed": [1]}]}
    )
    assert (rank.rank, rank.frames, rank.collective, rank.cpu_pct, rank.num_sockets) == (
        None,
        (),
        None,
        None,
        None,
    )
