"""A small cluster, a machine and two recipes to plan launches with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from coach.launch.plan import Facts, make_plan
from coach.launch.recipe import Recipe, read_recipe
from coach.launch.resources import Site
from coach.launch.script import Paths
from coach.model.launching.environment import Environment
from coach.model.launching.launch import LaunchRequest, Plan
from coach.model.slurm.cluster import GpuCount, Node, Partition

RUN_ID = "20261121-142233-ddp-4f2a"

PARAMETERS = """
[parameters.lr]
type = "float"
default = 0.05
above = 0
usual = [1e-4, 1.0]
help = "learning rate"

[parameters.batch_size]
type = "int"
default = 64
min = 1
usual = [8, 4096]

[parameters.num_workers]
type = "int"
default = 2
min = 0
max = 64

[parameters.optimizer]
type = "str"
default = "sgd"
choices = ["sgd", "adamw"]

[parameters.log_metrics]
type = "bool"
default = true
"""

RECIPE = """schema = 1
name = "{name}"
title = "{name}: a title"
summary = "What it is for."
trainer = "{name}.py"
devices = "{devices}"
key = "2"
time = "00:30:00"
"""


def write_recipe(data: Path, name: str = "ddp", devices: str = "multiple", text: str | None = None) -> Path:
    """A recipe and its trainer below `data`; `text` replaces the whole TOML."""
    for folder in ("trainers", "recipes"):
        (data / folder).mkdir(parents=True, exist_ok=True)
    (data / "trainers" / f"{name}.py").touch()
    path = data / "recipes" / f"{name}.toml"
    path.write_text(RECIPE.format(name=name, devices=devices) + PARAMETERS if text is None else text)
    return path


def recipe(data: Path, name: str = "ddp") -> Recipe:
    return read_recipe(write_recipe(data, name, "single" if name == "baseline" else "multiple"), data)


def node(name: str, partitions: tuple[str, ...], num_cpus: int = 16, gpus: int = 0) -> Node:
    counts = (GpuCount("a100", gpus, 0),) if gpus else ()
    return Node(name, "idle", None, partitions, num_cpus, 0, 64000, 0, counts)


def partition(name: str, num_nodes: int = 3, gpus: int = 0, limit_s: int | None = 3600) -> Partition:
    counts = (GpuCount("a100", gpus * num_nodes, 0),) if gpus else ()
    is_default = name == "cpu"
    return Partition(name, is_default, "up", limit_s, None, num_nodes, num_nodes, None, None, counts, gpus)


CLUSTER = Site(
    "slurm",
    (partition("cpu"), partition("gpu", num_nodes=2, gpus=4)),
    (node("node1", ("cpu", "gpu"), gpus=4), node("node2", ("cpu", "gpu"), gpus=4), node("node3", ("cpu",))),
)
MACHINE = Site("local", (), (node("here", ("local",), num_cpus=2),))

PATHS = Paths(
    "/runs/" + RUN_ID, "/runs/.code/0123456789abcdef", "/env/bin/python", "/home/a user/.cache/coach"
)


def plan(
    data: Path,
    name: str = "ddp",
    site: Site = CLUSTER,
    paths: Paths = PATHS,
    trained_in: Environment | None = None,
    **request: Any,
) -> Plan:
    """The plan of a request; on the cluster in its default partition, which has no GPUs, unless it names
    one."""
    if site is CLUSTER:
        request.setdefault("partition", "cpu")
    facts = Facts(
        *(paths, "anna", 1795271000.0, "0.1.0", {"commit": "c0ffee", "is_dirty": False}),
        environment=trained_in or Environment(),
    )
    return make_plan(LaunchRequest(name, **request), recipe(data, name), site, facts, RUN_ID)
