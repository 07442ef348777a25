"""A launch asks for the host memory that its recipe needs, unless the site's default or the user gives it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coach.launch.plan import Facts, make_plan
from coach.launch.recipe import find_drills, find_recipes, get_recipe
from coach.launch.resources import Resolved, Site, resolve_resources
from coach.model.errors import UserError
from coach.model.launching.launch import LaunchRequest
from coach.model.slurm.memory import mem_mib
from tests.launch.examples import (
    CLUSTER,
    MACHINE,
    PATHS,
    RECIPE,
    RUN_ID,
    node,
    partition,
    write_recipe,
)

MEMORY = "memory = { node = 300, rank = 900, worker = 500 }\n"
WORKERS = '[parameters.num_workers]\ntype = "int"\ndefault = 2\n'
EVALUATED = '[parameters.eval_every_epoch]\ntype = "bool"\ndefault = true\n'


def resolved(
    data: Path, site: Site = CLUSTER, parameters: dict[str, Any] | None = None, **said: Any
) -> Resolved:
    text = RECIPE.format(name="ddp", devices="multiple") + MEMORY + WORKERS + EVALUATED
    recipe = get_recipe(str(write_recipe(data, text=text)), data)
    request = LaunchRequest("ddp", **{"partition": "cpu", **said})
    return resolve_resources(request, recipe, {"num_workers": 2, **(parameters or {})}, site)


def on(memory_mib: int | None = 64000, **more: Any) -> Site:
    """A cluster of one partition without GPUs."""
    nodes = (replace(node("node1", ("cpu",)), memory_mib=memory_mib),)
    return Site("slurm", (replace(partition("cpu", num_nodes=1), **more),), nodes)


@pytest.mark.parametrize(
    ("parameters", "said", "mem"),
    [
        ({}, {}, "6G"),  # 1.3 × (300 + 2 × 900 + 4 × 500) = 5330
        ({"num_workers": 0}, {}, "2752M"),
        ({"num_workers": 16}, {}, "23G"),
        ({}, {"nproc_per_node": 1}, "2880M"),
        ({}, {"num_nodes": 2}, "2880M"),  # one rank on each node
        ({"eval_every_epoch": True}, {}, "8G"),  # an evaluation has workers of its own
        ({"num_workers": 0}, {"partition": "gpu"}, "10G"),  # CUDA's own memory in two ranks
    ],
)
def test_the_memory_of_a_node_grows_with_its_ranks_and_their_workers(
    tmp_path: Path, parameters: dict[str, Any], said: dict[str, Any], mem: str
) -> None:
    found = resolved(tmp_path, parameters=parameters, **said)
    assert found.resources.mem == mem
    assert any(note.startswith(f"--mem {mem}: 300 MiB + ") for note in found.notes)


@pytest.mark.parametrize(
    ("said", "mem"),
    [({"mem": "500M"}, "500M"), ({"mem": "0"}, "0"), ({"sbatch": {"mem-per-cpu": "2G"}}, None)],
)
def test_what_the_user_asks_for_stays(tmp_path: Path, said: dict[str, Any], mem: str | None) -> None:
    found = resolved(tmp_path, **said)
    assert found.resources.mem == mem
    assert not any("--mem" in note for note in found.notes)


@pytest.mark.parametrize(
    ("site", "mem"),
    [
        (on(default_mem_per_node_mib=300), "6G"),
        (on(default_mem_per_node_mib=8000), None),
        (on(default_mem_per_cpu_mib=300), "6G"),
        (on(default_mem_per_cpu_mib=1100), None),  # times six CPUs
        (on(memory_mib=None), "6G"),
        (on(memory_mib=1), None),  # the site does not say how much memory its nodes have
    ],
)
def test_a_default_that_is_enough_is_left_alone(tmp_path: Path, site: Site, mem: str | None) -> None:
    found = resolved(tmp_path, site)
    assert (found.resources.mem, found.warnings) == (mem, ())


@pytest.mark.parametrize("site", [on(memory_mib=4000), on(max_mem_per_node_mib=4000)])
def test_too_small_a_node_is_a_warning_before_the_launch(tmp_path: Path, site: Site) -> None:
    found = resolved(tmp_path, site)
    assert found.resources.mem == "4000M"
    assert "partition cpu has 4000 MiB per node, the recipe needs 6144 MiB" in found.warnings[0]


def test_this_machine_has_no_limit_that_coach_would_set(tmp_path: Path) -> None:
    assert resolved(tmp_path, MACHINE, partition=None).resources.mem is None
    small = Site("local", (), (replace(MACHINE.nodes[0], memory_mib=2000),))
    (warning,) = resolved(tmp_path, small, partition=None).warnings
    assert warning.startswith("this machine has 2000 MiB per node")


def test_partitions_of_a_list_stay_together_whatever_their_defaults(tmp_path: Path) -> None:
    names = (partition("cpu"), replace(partition("big"), default_mem_per_node_mib=9000))
    nodes = tuple(node(f"node{number}", ("cpu", "big")) for number in (1, 2, 3))
    found = resolved(tmp_path, Site("slurm", names, nodes), partition="big,cpu")
    assert (found.resources.partition, found.resources.mem, found.warnings) == ("big,cpu", "6G", ())


@pytest.mark.parametrize(("said", "asked"), [({}, None), ({"mem": "500M"}, "500M")])
def test_the_script_asks_and_run_json_keeps_what_was_asked_and_what_is_needed(
    said: dict[str, str], asked: str | None
) -> None:
    recipe, request = get_recipe("baseline"), LaunchRequest("baseline", partition="cpu", **said)
    facts = Facts(PATHS, "anna", 1795271000.0, "0.1.0", None)
    made = make_plan(request, recipe, CLUSTER, facts, RUN_ID)
    mem = made.run_json["resources"]["mem"]
    assert f"#SBATCH --mem={mem}" in made.script
    assert made.run_json["launch"].get("mem") == asked  # a relaunch with other parameters computes it again
    need_mib = made.run_json["mem_need_mib"]
    assert mem_mib(mem) == (need_mib if asked is None else 500)
    assert 1.3 * recipe.memory["rank"] < need_mib


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('memory = { node = 1, rank = "2G", worker = 1 }', "memory.rank = '2G': expected MiB from 0"),
        ("memory = { node = 1, rank = -1, worker = 1 }", "memory.rank = -1: expected MiB from 0"),
        ("memory = { node = 1, worker = 1 }", "the key memory.rank is missing"),
        ("memory = { node = 1, rank = 1, workers = 1 }", "unknown key memory.workers"),
    ],
)
def test_a_wrong_statement_names_its_line(tmp_path: Path, text: str, problem: str) -> None:
    path = write_recipe(tmp_path, text=RECIPE.format(name="ddp", devices="multiple") + text)
    with pytest.raises(UserError, match=r"ddp\.toml:9: ") as refused:
        get_recipe(str(path), tmp_path)
    assert problem.replace("'", '"') in refused.value.message.replace("'", '"')


def test_every_recipe_and_drill_states_its_need() -> None:
    for recipe in (*find_recipes()[0], *find_drills()[0]):
        assert recipe.memory.get("rank"), recipe.name
