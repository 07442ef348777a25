"""A sweep is planned, submitted and shown as one group of runs. Slurm's clients are scripts here, which
answer like the real ones."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest

from coach.analysis.comparing.speedup import Measured
from coach.analysis.comparing.steady_state import Estimate
from coach.analysis.comparing.sweep_table import OUT_OF_MEMORY, Member, best_first, table
from coach.config import Limits, Switch
from coach.launch.recipe import recipe_of
from coach.launch.resources import Site
from coach.model.errors import UserError
from coach.model.judging.finding import Finding, Severity, Subject
from coach.model.launching.launch import LaunchRequest, Plan
from coach.sources.runs.run_files import read_run
from coach.workflows.launching.defaults import with_defaults
from coach.workflows.launching.group_members import with_lists_swept
from coach.workflows.launching.sweep import plan_all, read_group, submit
from tests.launch.examples import CLUSTER, MACHINE
from tests.workflows.test_launching import World

COUNTING = """
n=$(($(cat "$FAKE/count" 2> /dev/null || echo 16) + 1)); echo $n > "$FAKE/count"
echo "$@" >> "$FAKE/sbatch.all"
[ $n -le ${LAST_JOB:-99} ] || { echo 'sbatch: error: Invalid qos specification' >&2; exit 1; }
echo $n
"""


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.client("sbatch", COUNTING)
    world.client("scancel", 'echo "$@" >> "$FAKE/scancel.all"')
    return world


def plan(world: World, recipe: str = "scale", site: Site = CLUSTER, **request: object) -> Plan:
    asked = LaunchRequest(recipe, python=sys.executable, **request)  # type: ignore[arg-type] # any field
    return plan_all(
        with_defaults(asked, world.settings), world.settings, world.env, world.io, site, 1795271000.0
    )


def ranks(planned: Plan) -> list[tuple[int, int]]:
    return [(each.resources.num_nodes, each.resources.nproc_per_node) for each in (planned, *planned.others)]


def test_a_sweep_is_one_plan_with_a_run_for_each_value(world: World) -> None:
    planned = plan(world, "sweep_workers", site=MACHINE)
    assert [each.parameters["num_workers"] for each in (planned, *planned.others)] == [0, 1, 2, 4]
    assert len({each.run_id for each in (planned, *planned.others)}) == 4
    assert "4 runs, one after the other: num_workers = 0; 1; 2; 4" in planned.notes[0]
    assert planned.run_json["sweep"] == {
        "group_id": planned.run_id,
        "parameter": "num_workers",
        "value": 0,
        "index": 0,
        "size": 4,
    }
    assert planned.run_json["expects"] == ["GPU005"]


def test_no_launch_plans_a_drill_that_the_site_switched_off(world: World) -> None:
    assert plan(world, "idle_hands", site=MACHINE).recipe == "idle_hands"
    origins = {"site.switches.drills": "site.toml"}
    world.settings = replace(
        world.settings, switched_off=frozenset({Switch.DRILLS}), origins=MappingProxyType(origins)
    )
    with pytest.raises(UserError, match="idle_hands: switched off by the site"):
        plan(world, "idle_hands", site=MACHINE)


def test_a_recipe_s_sweep_takes_its_values_by_the_parameter_s_name_or_its_plural(world: World) -> None:
    for said in ({"batch_sizes": "8, 16"}, {"batch_size": "8,16"}):
        planned = plan(world, "sweep_batch", set=said)
        assert [each.parameters["batch_size"] for each in (planned, *planned.others)] == [8, 16]
    assert plan(world, "sweep_batch", set={"batch_size": "8", "lr": "0.1"}).parameters["lr"] == 0.1


def test_a_list_typed_into_a_form_is_swept_as_on_the_command_line(world: World) -> None:
    typed = LaunchRequest("ddp", set={"lr": "0.1,0.3", "batch_size": "16..64*2", "max_steps": "5"})
    form = with_lists_swept(typed, recipe_of(typed))
    assert form.sweep == {"lr": "0.1,0.3", "batch_size": "16..64*2"}
    assert form.set == {"max_steps": "5"}
    planned = plan(world, "ddp", set=form.set, sweep=form.sweep)
    command = plan(world, "ddp", set={"max_steps": "5"}, sweep={"lr": "0.1,0.3", "batch_size": "16..64*2"})
    assert planned.notes[0] == command.notes[0]
    assert planned.notes[0].startswith("6 runs, at most 4 at once: ")
    with pytest.raises(UserError, match="at most 32 runs"):
        plan(world, "ddp", sweep={"batch_size": "1..40"})


def test_a_form_keeps_single_values_and_the_list_of_a_recipe_s_own_sweep() -> None:
    for name, values in (("ddp", {"lr": "0.1"}), ("sweep_batch", {"batch_size": "8,16"})):
        typed = LaunchRequest(name, set=values)
        assert with_lists_swept(typed, recipe_of(typed)) is typed


def test_all_ranks_of_a_group_on_cpus_have_equal_threads(world: World) -> None:
    planned = plan(world, site=MACHINE, set={"world_sizes": "1,2"})
    runs = (planned, *planned.others)
    threads = [re.findall(r"^export OMP_NUM_THREADS=(\d+)$", each.script, re.MULTILINE)[-1] for each in runs]
    assert len(set(threads)) == 1
    assert int(threads[0]) == max(1, planned.others[0].resources.cpus_per_task // 2)
    assert (
        f"OMP_NUM_THREADS={threads[0]} in all runs: ranks with equal threads can be compared" in planned.notes
    )
    asked = plan(world, site=MACHINE, set={"world_sizes": "1,2"}, env={"OMP_NUM_THREADS": "3"})
    assert not any("in all runs" in note for note in asked.notes)
    gpus = plan(world, set={"world_sizes": "1,2"}, partition="gpu")
    assert not any("in all runs" in note for note in gpus.notes)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"world_sizes": "1,two"}, "expected a whole number"),
        ({"world_sizes": "0"}, "must be at least 1"),
        ({"world_sizes": "1", "world_size": "2"}, "both are the values of the sweep"),
        ({"world_sizes": ",".join(map(str, range(1, 40)))}, "at most 32 runs"),
        ({"world_sizes": "7,1000"}, "1000 ranks: "),
        ({"word_sizes": "1"}, "has no parameter 'word_sizes'"),
    ],
)
def test_impossible_values_of_a_sweep_are_refused_by_the_plan(
    world: World, said: dict[str, str], words: str
) -> None:
    with pytest.raises(UserError, match=words):
        plan(world, set=said)


def test_ranks_are_placed_on_the_fewest_nodes_that_hold_them(world: World) -> None:
    gpus = plan(world, set={"world_sizes": "1,2,4,8"}, partition="gpu")
    assert ranks(gpus) == [(1, 1), (1, 2), (1, 4), (2, 4)]
    assert [each.resources.gpus_per_node for each in (gpus, *gpus.others)] == [1, 2, 4, 4]
    assert ranks(plan(world, set={"world_sizes": "16,32"}, partition="cpu")) == [(1, 16), (2, 16)]


def test_a_requested_number_of_nodes_is_kept_or_refused(world: World) -> None:
    assert ranks(plan(world, set={"world_sizes": "2,4"}, partition="cpu", num_nodes=2)) == [(2, 1), (2, 2)]
    with pytest.raises(UserError, match="1 ranks: not possible with the requested nodes"):
        plan(world, set={"world_sizes": "1"}, partition="cpu", num_nodes=2)


def test_runs_of_different_sizes_are_submitted_together_and_each_waits_for_the_one_before(
    world: World,
) -> None:
    planned = plan(world, set={"world_sizes": "1,2,4"})
    done = submit(planned, world.settings, world.env, world.io)
    assert [each.job_id for each in done] == ["17", "18", "19"]
    options = [row.split()[:-1] for row in (world.root / "sbatch.all").read_text().splitlines()]
    assert options == [
        ["--parsable"],
        ["--parsable", "--dependency=afterany:17"],
        ["--parsable", "--dependency=afterany:18"],
    ]
    run = read_run(world.io, Path(done[2].run_dir))
    assert run.sweep is not None
    assert (run.sweep.group_id, run.sweep.value, run.sweep.size) == (done[0].run_id, 4, 3)


def test_runs_with_the_same_resources_are_one_job_array(world: World) -> None:
    planned = plan(world, sweep={"lr": "0.1,0.2", "seed": "1,2"}, at_once=3, recipe="baseline")
    done = submit(planned, world.settings, world.env, world.io)
    assert [each.job_id for each in done] == ["17_0", "17_1", "17_2", "17_3"]
    (called,) = (world.root / "sbatch.all").read_text().splitlines()
    script = Path(called.split()[-1])
    assert script == Path(done[0].run_dir) / "array.sh"
    lines = script.read_text().splitlines()
    assert "#SBATCH --array=0-3%3" in lines
    assert [line for line in lines if "--output" in line] == ["#SBATCH --output=/dev/null"]
    assert f"  3) RUN={done[3].run_id} ;;" in lines
    runs = [read_run(world.io, Path(each.run_dir)) for each in done]
    assert [(run.job_id, run.parameters["lr"], run.parameters["seed"]) for run in runs] == [
        *(("17_0", 0.1, 1), ("17_1", 0.1, 2), ("17_2", 0.2, 1), ("17_3", 0.2, 2))
    ]
    assert {run.sweep.parameter for run in runs if run.sweep} == {"lr, seed"}
    assert all("sweep" not in run.launch for run in runs)  # a relaunch has one run


def test_an_array_that_is_refused_leaves_no_run(world: World) -> None:
    world.env["LAST_JOB"] = "16"
    with pytest.raises(UserError, match="Invalid qos"):
        submit(plan(world, recipe="baseline", sweep={"lr": "0.1,0.2"}), world.settings, world.env, world.io)
    assert [path for path in world.settings.runs_root.iterdir() if path.name[0] != "."] == []


@pytest.mark.parametrize(
    ("request_", "site", "words"),
    [
        ({"at_once": 2}, CLUSTER, "--at-once 2: there is no sweep"),
        ({"num_random": 2}, CLUSTER, "--random 2: there is no sweep"),
        ({"sweep": {"lr": "1,2"}, "set": {"lr": "1"}}, CLUSTER, "both set its value"),
        ({"sweep": {"lr": "1,2"}, "at_once": 0}, CLUSTER, "must be 1 to 64"),
        ({"sweep": {"lr": "1,2"}, "at_once": 2}, MACHINE, "this machine runs them one after the other"),
    ],
)
def test_an_impossible_sweep_is_refused_with_the_reason(
    world: World, request_: dict[str, object], site: Site, words: str
) -> None:
    with pytest.raises(UserError, match=words):
        plan(world, "baseline", site, **request_)


def test_runs_are_ranked_by_any_metric_and_those_without_it_come_last() -> None:
    points = table(
        "lr",
        [
            replace(member(1, None), metrics={"loss": 0.5, "eval_accuracy": 0.7}),
            replace(member(2, None), metrics={}),
            replace(member(4, None, state="FAILED"), metrics={"loss": 0.1}),
            replace(member(3, None), metrics={"loss": 0.2, "eval_accuracy": 0.6}),
        ],
    )
    assert [point.value for point in best_first(points, "loss")] == [3, 1, 4, 2]
    assert [point.value for point in best_first(points, "eval_accuracy")] == [1, 3, 2, 4]
    with pytest.raises(UserError, match="--best lr: no run of the group has this metric"):
        best_first(points, "lr")


def test_a_group_is_cancelled_if_one_of_its_runs_is_refused(world: World) -> None:
    world.env["LAST_JOB"] = "18"
    with pytest.raises(
        UserError, match=r"run 3 of 3 was refused, those before it were cancelled.*Invalid qos"
    ):
        submit(plan(world, set={"world_sizes": "1,2,4"}), world.settings, world.env, world.io)
    assert (world.root / "scancel.all").read_text().split() == ["18", "17"]
    left = [read_run(world.io, path) for path in world.settings.runs_root.iterdir() if path.name[0] != "."]
    assert {run.state for run in left} == {"CANCELLED"}


def test_the_site_s_limit_counts_the_runs_of_a_group_that_run_at_once(world: World) -> None:
    world.settings = replace(world.settings, limits=Limits(max_running=2))
    assert len(plan(world, set={"world_sizes": "1,2,4"}).others) == 2  # they run one after the other
    with pytest.raises(UserError, match="3 runs of this group would go at once: the site allows") as error:
        plan(world, "baseline", sweep={"lr": "0.1,0.2,0.3"})
    assert error.value.hint == "--at-once 2"
    submit(plan(world, set={"world_sizes": "1,2,4"}), world.settings, world.env, world.io)
    plan(world)  # the runs of the submitted group wait for each other, and count as one
    world.settings = replace(world.settings, limits=Limits(max_running=1))
    with pytest.raises(UserError, match="1 of your runs are pending or running"):
        plan(world)


def test_a_fix_of_a_group_s_run_plans_one_run_and_not_the_group(world: World) -> None:
    assert plan(world, "sweep_batch", parent_run_id="x", set={"batch_size": 8}).others == ()


def test_the_table_is_found_by_the_group_and_by_each_of_its_runs(world: World) -> None:
    done = submit(plan(world, set={"world_sizes": "1,2"}), world.settings, world.env, world.io)
    for text in (done[0].run_id, done[1].run_id):
        group = read_group(text, world.settings, world.io, "slurm")
        assert (group.recipe, group.parameter) == ("scale", "world_size")
        assert [(point.value, point.throughput, point.result) for point in group.points] == [
            (1, None, "PENDING"),
            (2, None, "PENDING"),
        ]
    with pytest.raises(UserError, match="not a group of runs"):
        read_group("20261121-142233-ddp-4f2a", world.settings, world.io, "slurm")


def member(
    value: int, rate: float | None, ranks: int = 1, state: str = "COMPLETED", cause: str = ""
) -> Member:
    throughput = Estimate(rate, 1.0, 20) if rate is not None else None
    finding = None
    if cause:
        finding = Finding("MEM001", "oom", cause, Severity.INFO, 1.0, True, None, Subject(), "", (), (), None)
    return Member(f"run-{value}", value, state, Measured(ranks, throughput, None, None, None), finding)


def test_efficiency_is_relative_to_the_run_with_the_fewest_ranks() -> None:
    points = table("world_size", [member(2, 180.0, 2), member(1, 100.0, 1), member(4, 300.0, 4)])
    assert [point.efficiency for point in points] == pytest.approx([0.9, 1.0, 0.75])
    assert [point.ratio for point in points] == pytest.approx([1.0, 100 / 180, 300 / 180])


def test_running_out_of_memory_is_a_result_and_another_failure_is_not() -> None:
    points = table(
        "batch_size",
        [
            member(64, 500.0),
            member(4096, None, state="FAILED", cause="cuda_oom"),
            member(128, 1000.0),
            member(256, None, state="FAILED"),
        ],
    )
    assert [point.result for point in points] == ["measured", OUT_OF_MEMORY, "measured", "FAILED"]
    assert [point.is_result for point in points] == [True, True, True, False]
    assert [point.efficiency for point in points] == [0.5, None, 1.0, None]


def test_a_run_that_goes_on_after_an_error_of_memory_has_no_result_yet() -> None:
    (point,) = table("batch_size", [member(64, None, state="RUNNING", cause="cuda_oom")])
    assert (point.result, point.is_result) == ("RUNNING", False)


def test_a_run_without_measurements_has_no_ratio_and_no_efficiency() -> None:
    (point,) = table("world_size", [member(1, None, state="PENDING")])
    assert (point.ratio, point.efficiency, point.result) == (None, None, "PENDING")


def test_a_fixed_global_batch_is_divided_by_the_ranks_of_each_run(world: World) -> None:
    planned = plan(world, "scale_strong", set={"world_sizes": "1,2,4", "batch_size": "96"})
    assert [each.parameters["batch_size"] for each in (planned, *planned.others)] == [96, 48, 24]
    with pytest.raises(UserError, match="batch_size = 96: 5 ranks cannot share it evenly"):
        plan(world, "scale_strong", set={"world_sizes": "1,5", "batch_size": "96"})
