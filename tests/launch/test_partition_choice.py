"""A launch that names no partition goes to GPUs that it may use, if the default partition has none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coach.config import Settings
from coach.launch.own_program import own_recipe, own_request, read_own_program
from coach.launch.partition_choice import resolve_somewhere
from coach.launch.recipe import get_recipe
from coach.launch.resources import Site
from coach.model.errors import UserError
from coach.model.launching.launch import LaunchRequest, Plan
from coach.model.slurm.cluster import GpuCount, Node, Partition
from coach.workflows.launching.group_members import placed_together
from tests.launch.examples import node, partition, plan
from tests.launch.relaunches import asked_again


def gpu_node(name: str, kind: str, gpus: int = 4, free: int = 4, **more: Any) -> Node:
    made = node(name, ("cpu", kind))
    return replace(made, gpus=(GpuCount(kind, gpus, gpus - free),), **more)


def site(*partitions: Partition, nodes: tuple[Node, ...]) -> Site:
    return Site("slurm", (partition("cpu"), *partitions), nodes)


A100, V100 = partition("a100", 2, 4), partition("v100", 2, 4)
NODES = (gpu_node("n1", "a100"), gpu_node("n2", "a100", free=3), gpu_node("n3", "v100"))


def where(made: Plan) -> tuple[str | None, int]:
    return made.resources.partition, made.resources.gpus_per_node


def test_a_node_with_an_unknown_number_of_free_gpus_does_not_hide_those_of_the_others(tmp_path: Path) -> None:
    unknown = replace(NODES[1], gpus=(GpuCount("a100", 4, None),))
    nodes = (NODES[0], unknown, gpu_node("n3", "v100", free=3))
    made = plan(tmp_path, site=site(V100, A100, nodes=nodes))
    assert where(made) == ("a100", 2)


@pytest.mark.parametrize(
    ("said", "closed", "expected"),
    [
        ({}, {}, ("a100", 2)),
        ({"gpus_per_node": 4}, {}, ("a100", 4)),
        ({"num_nodes": 2, "gpus_per_node": 4}, {}, ("a100", 4)),
        ({"gpu_type": "v100"}, {}, ("v100", 2)),
        ({"gpus_per_node": 0}, {}, ("cpu", 0)),
        ({"partition": "cpu"}, {}, ("cpu", 0)),
        ({"nproc_per_node": 8}, {}, ("cpu", 0)),
        ({"num_nodes": 3}, {}, ("cpu", 0)),
        ({"mem": "63500M"}, {}, ("cpu", 0)),
        ({"cpus_per_task": 14}, {}, ("a100", 2)),
        ({"sbatch": {"nodelist": "n9"}}, {}, ("cpu", 0)),
        ({"constraint": "avx512"}, {}, ("cpu", 0)),
        ({"constraint": "nvlink&ib"}, {}, ("v100", 2)),
        ({"time_limit_s": 3600}, {"time_limit_s": 60}, ("v100", 2)),
        ({}, {"time_limit_s": 60}, ("v100", 2)),
        ({}, {"state": "drain"}, ("v100", 2)),
        ({}, {"is_hidden": True}, ("v100", 2)),
        ({}, {"is_root_only": True}, ("v100", 2)),
        ({}, {"needs_reservation": True}, ("v100", 2)),
        ({"reservation": "course"}, {"needs_reservation": True}, ("a100", 2)),
        ({}, {"allow_submit_nodes": ("login9",)}, ("v100", 2)),
        ({}, {"allow_groups": ("staff",)}, ("v100", 2)),
        ({}, {"allow_accounts": ("lab",)}, ("v100", 2)),
        ({"account": "lab"}, {"allow_accounts": ("lab",)}, ("a100", 2)),
        ({"account": "lab"}, {"deny_accounts": ("lab",)}, ("v100", 2)),
        ({}, {"allow_qos": ("long",)}, ("v100", 2)),
        ({}, {"is_exclusive": True}, ("v100", 2)),
    ],
)
def test_it_goes_to_the_most_free_gpus_that_are_open_and_have_all_that_it_asks_for(
    tmp_path: Path, said: dict[str, Any], closed: dict[str, Any], expected: tuple[str, int]
) -> None:
    little = tuple(replace(each, memory_mib=63000) for each in NODES)
    nodes = (*little[:2], replace(little[2], features=("nvlink",)), node("n4", ("cpu",)))
    made = plan(tmp_path, site=site(replace(A100, **closed), V100, nodes=nodes), **said)
    assert where(made) == expected
    told = f"partition {expected[0]}, because the default partition cpu has no GPUs: --partition cpu"
    assert any(note.startswith(told) for note in made.notes) == (expected[0] != "cpu")


@pytest.mark.parametrize("said", [{}, {"gpus_per_node": 0}, {"gpus_per_node": 2}])
def test_the_most_gpus_of_a_launch_are_those_of_every_partition_that_it_may_go_to(
    tmp_path: Path, said: dict[str, Any]
) -> None:
    big = replace(V100, num_gpus_per_node=8)
    made = plan(tmp_path, site=site(A100, big, nodes=NODES), **said)
    assert made.meanings["gpus_per_node"] == "GPUs on each node; at most 8; 0 trains on CPUs."
    named = plan(tmp_path, site=site(A100, big, nodes=NODES), partition="cpu")
    assert "at most 0" in named.meanings["gpus_per_node"]


def test_a_launch_that_stays_in_the_default_partition_for_want_of_gpus_says_so(tmp_path: Path) -> None:
    made = plan(tmp_path, site=site(A100, nodes=NODES), gpus_per_node=0)
    assert "partition cpu, the default one, because no GPUs are asked for" in made.notes
    alone = plan(tmp_path, site=site(nodes=(node("n1", ("cpu",)),)), gpus_per_node=0)
    assert not any("the default one" in note for note in alone.notes)


def test_gpus_of_a_node_that_is_down_are_not_free(tmp_path: Path) -> None:
    dead = (gpu_node("n1", "a100", 8, 8, state="down+drain"), gpu_node("n2", "a100", 8, 8, state="down"))
    made = plan(tmp_path, site=site(partition("a100", 2, 8), V100, nodes=(*dead, gpu_node("n3", "v100"))))
    assert where(made) == ("v100", 2)


def test_free_gpus_of_another_type_do_not_count(tmp_path: Path) -> None:
    mixed = replace(partition("mix", 2, 8), gpus=(GpuCount("v100", 7, 0), GpuCount("a100", 1, 1)))
    nodes = (
        replace(node("n1", ("mix",)), gpus=(GpuCount("v100", 7, 0), GpuCount("a100", 1, 1))),
        gpu_node("n2", "a100"),
    )
    made = plan(tmp_path, site=site(mixed, partition("a100", 1, 4), nodes=nodes), gpu_type="a100")
    assert where(made) == ("a100", 2)


def test_more_gpus_than_any_partition_has_are_refused_by_one_that_has_some(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--gpus 5: partition a100 has 4 GPUs per node"):
        plan(tmp_path, site=site(A100, V100, nodes=NODES), gpus_per_node=5)


def test_the_cpus_of_gpu_nodes_are_not_chosen_for_gpus_if_the_partition_of_the_gpus_is_closed(
    tmp_path: Path,
) -> None:
    closed = replace(A100, state="drain")
    with pytest.raises(UserError, match="--gpus 2: partition cpu is for the CPUs of its nodes") as refused:
        plan(tmp_path, site=site(closed, nodes=NODES[:2]), gpus_per_node=2)
    assert "--partition cpu asks for the GPUs of its nodes" in (refused.value.hint or "")
    named = plan(tmp_path, site=site(closed, nodes=NODES[:2]), gpus_per_node=2, partition="cpu")
    assert where(named) == ("cpu", 2)
    assert not any("has no GPUs" in note for note in named.notes)


def test_a_relaunch_stays_in_the_partition_that_was_chosen(tmp_path: Path) -> None:
    made = plan(tmp_path, site=site(A100, nodes=NODES[:2]))
    assert made.request.partition is None
    assert asked_again(made.run_json["launch"], "ddp").partition == "a100"


def test_an_own_command_stays_where_it_is_unless_it_asks_for_gpus(tmp_path: Path) -> None:
    own = read_own_program(None, ("true",), tmp_path)
    for gpus, expected in ((None, ("cpu", 0)), (1, ("a100", 1))):
        request = own_request(own, LaunchRequest("", gpus_per_node=gpus))
        found = resolve_somewhere(request, own_recipe(own), {}, site(A100, nodes=NODES[:2])).resources
        assert (found.partition, found.gpus_per_node) == expected


def test_a_sweep_over_ranks_stays_in_one_partition_that_has_room_for_all_of_it(tmp_path: Path) -> None:
    nodes = (*NODES[:2], gpu_node("n3", "v100", 8, 8))
    where_to = site(A100, partition("v100", 1, 8), nodes=nodes)
    asked = LaunchRequest("ddp", sweep={"world_size": "1,2,4,8"})
    recipe, settings = get_recipe("ddp"), Settings(tmp_path, tmp_path, tmp_path)
    placed, (note,) = placed_together(asked, recipe, where_to, settings)
    assert note.startswith("partition v100, because")
    assert placed.partition == "v100"
    no_room = replace(where_to, partitions=(*where_to.partitions[:1], A100), nodes=nodes[:1])
    assert placed_together(asked, recipe, no_room, settings) == (replace(asked, partition="cpu"), ())


def listed(said: str, tmp_path: Path, **more: Any) -> Plan:
    nodes = (*NODES, node("n4", ("bare",)))
    return plan(tmp_path, site=site(A100, V100, partition("bare"), nodes=nodes), partition=said, **more)


def test_of_a_list_of_partitions_each_is_judged_and_the_fitting_ones_are_passed_on(tmp_path: Path) -> None:
    made = listed("a100,v100", tmp_path)
    assert where(made) == ("a100,v100", 2)
    assert "#SBATCH --partition=a100,v100" in made.script
    assert "partitions a100, v100: Slurm takes the one that can start the job first" in made.notes
    made = listed("bare,v100,v100", tmp_path, gpus_per_node=2)
    assert where(made) == ("v100", 2)
    assert made.warnings[-1].startswith("partition bare is left out: --gpus 2: ")


def test_a_list_of_partitions_with_an_unknown_name_or_without_a_fitting_one_is_refused(
    tmp_path: Path,
) -> None:
    with pytest.raises(UserError, match="--partition a10: there is no such partition"):
        listed("a100,a10", tmp_path)
    with pytest.raises(UserError, match="--gpus 9"):
        listed("a100,v100", tmp_path, gpus_per_node=9)
