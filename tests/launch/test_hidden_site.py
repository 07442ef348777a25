"""A launch at a site that hides its nodes or partitions: the request goes to Slurm unchanged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from coach.launch.resources import Site
from coach.model.errors import UserError
from tests.launch.examples import CLUSTER, partition, plan

HIDDEN = Site("slurm", (), (), frozenset({"nodes", "partitions"}))


def test_gpus_are_not_chosen_by_default_if_the_site_hides_its_nodes(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nodes are hidden by the site") as refused:
        plan(tmp_path, site=HIDDEN)
    assert refused.value.hint is not None
    assert "--gpus 0 trains on CPUs" in refused.value.hint


def test_a_request_on_a_hidden_site_goes_to_slurm_unchanged(tmp_path: Path) -> None:
    made = plan(
        tmp_path,
        "ddp",
        HIDDEN,
        gpus_per_node=4,
        num_nodes=3,
        partition="secret",
        gpu_type="h100",
        mem="9000G",
    )
    asked = made.resources
    assert (asked.num_nodes, asked.gpus_per_node, asked.nproc_per_node) == (3, 4, 4)
    assert (asked.partition, asked.gpu_type, asked.mem) == ("secret", "h100", "9000G")
    assert "#SBATCH --partition=secret\n" in made.script
    default = plan(tmp_path, site=HIDDEN, gpus_per_node=0)
    assert default.resources.partition is None
    assert "--partition" not in default.script


def test_nodes_that_are_seen_tell_of_a_partition_that_is_not(tmp_path: Path) -> None:
    site = Site("slurm", (), CLUSTER.nodes, frozenset({"partitions"}))
    assert plan(tmp_path, site=site, partition="gpu").resources.gpus_per_node == 2
    with pytest.raises(UserError, match="partition gpu has 2"):
        plan(tmp_path, site=site, partition="gpu", num_nodes=3)
    with pytest.raises(UserError, match="partition gpu has"):
        plan(tmp_path, site=site, partition="gpu", gpus_per_node=99)


def test_partitions_that_are_seen_limit_time_where_nodes_are_not(tmp_path: Path) -> None:
    gpu = replace(partition("gpu", 1, limit_s=600), num_gpus_per_node=None, num_nodes_idle=None)
    site = Site("slurm", (gpu,), (), frozenset({"nodes"}))
    with pytest.raises(UserError, match="allows at most"):
        plan(tmp_path, site=site, partition="gpu", gpus_per_node=1, time_limit_s=1200)
    assert plan(tmp_path, site=site, partition="gpu", gpus_per_node=1).resources.gpus_per_node == 1


def test_a_partition_for_other_groups_is_warned_of(tmp_path: Path) -> None:
    staff = replace(partition("cpu"), allow_groups=("staff", "root"))
    site = Site("slurm", (staff,), CLUSTER.nodes, own_groups=frozenset({"students"}))
    (warning,) = plan(tmp_path, site=site).warnings
    assert warning.startswith("partition cpu is for the groups staff, root: you are in none of them")
    assert not plan(tmp_path, site=replace(site, own_groups=frozenset({"staff"}))).warnings
    assert not plan(tmp_path, site=replace(site, own_groups=None)).warnings
