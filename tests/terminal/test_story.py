"""The story of a learner at a terminal: launch, watch, be told, fix, compare. Real keys, a real screen, a
real Slurm."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from coach.launch.recipe import find_recipes, get_recipe
from tests.cluster.slurm import SlurmCluster
from tests.installed import InstalledCoach
from tests.terminal.tmux import Terminal
from tests.waiting import wait_until

pytestmark = [pytest.mark.terminal, pytest.mark.xdist_group("stories")]

OpenTerminal = Callable[..., Terminal]

PLAN = "submits exactly this script"
LAUNCH = "› launch "
OWN_NUM001 = re.compile(r"\A(?![\s\S]*other job)[\s\S]*NUM001")
"""In the breadcrumb of the plan. The line about Enter goes as well while the plan is made again."""


def settle(terminal: Terminal) -> None:
    """Wait until the screen has stood still for longer than a question refuses keys after it was painted."""
    seen: list[str] = []

    def is_still() -> bool:
        seen.append(re.sub(r"\d+ s", "", terminal.screen()))
        return len(seen) > 7 and len(set(seen[-7:])) == 1

    wait_until(is_still, 10, "the screen stands still", every_s=0.15)


RESOURCES = (
    *("nodes", "GPUs per node", "ranks per node", "CPUs per task", "time limit", "memory per node"),
    "partition",
)
"""The first fields of the plan, from top to bottom; `partition` is there on Slurm only. The recipe's
parameters follow."""


def edit_plan(terminal: Terminal, recipe: str, is_slurm: bool, values: dict[str, str]) -> None:
    """Type values into fields of the plan and wait until the plan was made again with them."""
    fields = [name for name in RESOURCES if is_slurm or name != "partition"]
    fields += get_recipe(recipe).parameters
    terminal.wait_for(re.compile(r"nodes +1"))
    at = 0
    for name, value in values.items():
        for _ in range(fields.index(name) - at):
            terminal.send("Down")
        at = fields.index(name)
        terminal.send_text(value)  # a field that gets the focus is selected whole: typing replaces it
        terminal.wait_for(re.compile(rf"{name} +{re.escape(value)}\b"))
    terminal.wait_for(PLAN)
    settle(terminal)


def submit_plan(terminal: Terminal, key: str, *, is_slurm: bool, **values: str) -> None:
    """Press a recipe's key, change the plan, submit it."""
    (recipe,) = (recipe.name for recipe in find_recipes()[0] if recipe.key == key)
    terminal.send(key)
    terminal.wait_for(PLAN)
    settle(terminal)
    edit_plan(terminal, recipe, is_slurm, values)
    wait_until(lambda: is_accepted(terminal), 30, f"the plan of {recipe} is submitted")


def is_accepted(terminal: Terminal) -> bool:
    """Press Enter; whether the plan took it. On a busy machine the last edit may still be on its way, and a
    plan in the making takes no Enter."""
    terminal.send("Enter")
    try:
        terminal.wait_gone(LAUNCH, 2)
    except AssertionError:
        return False
    return True


def two_nodes_were_used(run: Mapping[str, Any]) -> bool:
    """Whether the script asked for two nodes and one rank started on each."""
    run_dir = Path(run["run_dir"])
    starts = [(run_dir / "metrics" / f"rank-{rank}.jsonl").read_text().splitlines()[0] for rank in (0, 1)]
    return (
        "#SBATCH --nodes=2\n" in (run_dir / "job.sh").read_text()
        and [json.loads(start)["node"] for start in starts] == ["node1", "node2"]
        and {json.loads(start)["world_size"] for start in starts} == {2}
    )


def listed_runs(coach: InstalledCoach) -> list[Mapping[str, Any]]:
    """The user's runs, the newest first."""
    runs: list[Mapping[str, Any]] = json.loads(coach("runs", "--format", "json").stdout)["runs"]
    return sorted(runs, key=lambda run: str(run["run_id"]), reverse=True)


@pytest.mark.parametrize(
    ("columns", "rows", "which"),
    [
        pytest.param(120, 36, "user_coach", marks=pytest.mark.long),
        pytest.param(80, 24, "bare_coach", id="80-24-without-torch"),
    ],
)
def test_ddp_on_two_nodes_is_healthy_then_nan_is_found_fixed_and_compared(
    slurm: SlurmCluster,
    train_python: Path,
    open_terminal: OpenTerminal,
    request: pytest.FixtureRequest,
    columns: int,
    rows: int,
    which: str,
) -> None:
    coach: InstalledCoach = request.getfixturevalue(which)
    config = coach.user.home / ".config" / "coach"
    config.mkdir(parents=True)
    # Both "nodes" of the test cluster share two real cores.
    (config / "config.toml").write_text(f'[launch]\ncpus_per_task = 1\npython = "{train_python}"\n')
    for path in (config.parent, config):
        path.chmod(0o755)
    terminal = open_terminal(coach.argv(), columns=columns, rows=rows, env=coach.env(), as_user=coach.user)
    terminal.wait_for("node3")

    submit_plan(terminal, "2", is_slurm=True, nodes="2", max_steps="30", num_workers="0")
    terminal.wait_for("RUNNING", timeout_s=30)
    curves = {terminal.wait_for(re.compile(rf"step {step}"), timeout_s=60) for step in (r"\d", r"[1-9]\d")}
    assert len(curves) == 2  # they move
    terminal.wait_for("COMPLETED", timeout_s=60)
    (healthy,) = listed_runs(coach)
    assert two_nodes_were_used(healthy)
    check = coach("check", healthy["run_id"], "--format", "json")
    assert (check.returncode, json.loads(check.stdout)["findings"]) == (0, []), check.stdout

    # A model so small that it waits for its data would rightly be called input-bound.
    submit_plan(terminal, "2", is_slurm=True, nodes="2", lr="1e20", max_steps="1200", num_workers="0")
    terminal.wait_for("RUNNING", timeout_s=30)
    # The top line shows it first for a job that was judged before its run was known: `other job ✖ NUM001`.
    terminal.wait_for(OWN_NUM001, "NaN", "step 2", timeout_s=60)
    terminal.send("F")
    terminal.wait_for("relaunches as a child run")
    settle(terminal)
    terminal.send("y")
    terminal.wait_for("child of", timeout_s=30)
    terminal.wait_for(re.compile(r"step [1-9]\d"), "✓ healthy", timeout_s=90)
    assert two_nodes_were_used(listed_runs(coach)[0])
    terminal.send("c")
    terminal.wait_for("NaN from step 2", "better", timeout_s=20)
    terminal.send("C-q")
    assert terminal.wait_exit() == 0


@pytest.mark.parametrize("is_trained", [pytest.param(True, marks=pytest.mark.long), False])
def test_five_keys_launch_five_techniques(
    user_coach: InstalledCoach, slurm: SlurmCluster, open_terminal: OpenTerminal, is_trained: bool
) -> None:
    """Each is submitted to Slurm and waits there; the long test trains them all."""
    if not is_trained:
        drain = ["scontrol", "update", "nodename=node[1-3]", "state=drain", "reason=kept"]
        assert slurm.run(drain, as_root=True).returncode == 0
    terminal = open_terminal(
        user_coach.argv(),
        columns=80,
        rows=24,
        env=user_coach.env({"COACH_LAUNCH_CPUS_PER_TASK": "1"}),
        as_user=user_coach.user,
    )
    terminal.wait_for("node3")
    for key in "12345":
        submit_plan(terminal, key, is_slurm=True, max_steps="2", num_workers="0", width="8")
        terminal.wait_for(re.compile("PENDING|RUNNING|COMPLETED"), timeout_s=30)

    def states() -> dict[str, str]:
        return {str(run["recipe"]): str(run["state"]) for run in listed_runs(user_coach)}

    techniques = ("baseline", "ddp", "amp", "fsdp", "deepspeed_zero")
    wanted = dict.fromkeys(techniques, "COMPLETED" if is_trained else "PENDING")
    wait_until(lambda: states() == wanted, 150, "five runs have come so far", every_s=2)
    terminal.send("C-q")
    assert terminal.wait_exit() == 0


def test_keys_in_one_packet_submit_and_cancel_nothing(
    user_coach: InstalledCoach, slurm: SlurmCluster, open_terminal: OpenTerminal
) -> None:
    terminal = open_terminal(user_coach.argv(), env=user_coach.env(), as_user=user_coach.user)
    terminal.wait_for("node3")
    terminal.send_packet("1\r\r")
    terminal.wait_for(PLAN)
    settle(terminal)
    assert slurm.run(["squeue", "-h"]).stdout == ""
    terminal.send("Escape")
    job_id = slurm.submit("sleep 300", "--job-name=precious")
    terminal.wait_for("precious", timeout_s=30)
    terminal.send(*["Up"] * 5)
    terminal.send_packet("x\r\r\r")
    settle(terminal)
    assert slurm.job_state(job_id) in ("RUNNING", "PENDING")
    terminal.wait_for(f"scancel {job_id}")
    terminal.send("Enter")
    settle(terminal)
    assert slurm.job_state(job_id) in ("RUNNING", "PENDING")
    terminal.send("y")
    slurm.wait_state(job_id, "CANCELLED")


def test_a_dead_controller_is_shown_with_the_age_of_the_data_and_comes_back_by_itself(
    user_coach: InstalledCoach, slurm: SlurmCluster, open_terminal: OpenTerminal
) -> None:
    job_id = slurm.submit("sleep 300", "--job-name=survivor")
    slurm.wait_saved(job_id)
    terminal = open_terminal(
        user_coach.argv(), columns=80, rows=24, env=user_coach.env(), as_user=user_coach.user
    )
    terminal.wait_for("survivor")
    slurm.kill_controller()
    terminal.wait_for(re.compile("connect failure|is DOWN|no answer"), "survivor", "node1", timeout_s=60)
    slurm.start_controller()
    terminal.wait_gone(re.compile("connect failure|is DOWN|no answer"), 90)
    assert "survivor" in terminal.screen()


def test_on_one_machine_the_baseline_is_launched_by_one_key_and_its_nan_is_fixed(
    local_coach: InstalledCoach, open_terminal: OpenTerminal
) -> None:
    terminal = open_terminal(
        local_coach.argv(), columns=80, rows=24, env=local_coach.env(), as_user=local_coach.user
    )
    terminal.wait_for("local")
    submit_plan(terminal, "1", is_slurm=False, lr="1e20", max_steps="3000", num_workers="0", width="16")
    terminal.wait_for(OWN_NUM001, "NaN", timeout_s=60)
    terminal.send("F")
    terminal.wait_for("relaunches as a child run")
    settle(terminal)
    terminal.send("y")
    terminal.wait_for("child of", timeout_s=30)
    terminal.wait_for(re.compile(r"step [1-9]\d"), timeout_s=60)
    terminal.send("c")
    terminal.wait_for("NaN from step 2", timeout_s=20)
    terminal.send("C-q")
    assert terminal.wait_exit() == 0
