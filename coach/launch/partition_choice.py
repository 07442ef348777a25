"""Chooses the partition of a launch that names none, if the default partition has no GPUs.

On many clusters it has none, although GPUs are free in another partition.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from coach.analysis.queueing.free_gpus import free_by_partition
from coach.launch import batch_file
from coach.launch.recipe import recipe_of_run
from coach.launch.recipe_file import Recipe
from coach.launch.resources import Resolved, Site, resolve_resources, signal_of
from coach.model.errors import UserError
from coach.model.launching.launch import LaunchRequest, OwnKind, Resources
from coach.model.slurm.cluster import Partition

_FEATURE = re.compile(r"[\w.:-]+")


def resolve_somewhere(
    request: LaunchRequest, recipe: Recipe, parameters: Mapping[str, Any], site: Site
) -> Resolved:
    """The resources in the partition of the request, else in the best one with GPUs, else in the default one.
    A batch file names its resources itself."""
    if recipe.own is not None and recipe.own.kind is OwnKind.BATCH:
        return _of_batch_file(request, recipe, site)

    def resolve(trial: LaunchRequest) -> Sequence[tuple[LaunchRequest, Resolved]]:
        return ((trial, resolve_resources(trial, recipe, parameters, site)),)

    found = gpu_partition(request, recipe, site, resolve)
    if found is None:
        resolved, note = resolve_resources(request, recipe, parameters, site), ""
    else:
        chosen, ((_, resolved),) = found
        note = words_of_choice(chosen, site)
    if not _may_move(replace(request, gpus_per_node=1), recipe, site):
        return resolved
    limits = _with_gpus_elsewhere(resolved.limits, request, site)
    if request.gpus_per_node == 0 and limits.get("gpus_per_node"):
        note = f"partition {resolved.resources.partition}, the default one, because no GPUs are asked for"
    return replace(resolved, notes=(*filter(None, [note]), *resolved.notes), limits=limits)


def _with_gpus_elsewhere(limits: Mapping[str, int], request: LaunchRequest, site: Site) -> dict[str, int]:
    """The limits of a launch that goes to another partition for its GPUs: as many per node as any of those
    has."""
    counts = [each.num_gpus_per_node for each in _others(request, site)]
    most = {} if None in counts else {"gpus_per_node": max(filter(None, counts), default=0)}
    return {name: limit for name, limit in limits.items() if name != "gpus_per_node"} | most


def gpu_partition(
    request: LaunchRequest,
    recipe: Recipe,
    site: Site,
    resolve: Callable[[LaunchRequest], Sequence[tuple[LaunchRequest, Resolved]]],
) -> tuple[Partition, Sequence[tuple[LaunchRequest, Resolved]]] | None:
    """The partition with the most free GPUs in which every run of a request gets all that it asks for, and
    GPUs, with what `resolve` returned for it. None: the request names a partition, wants no GPUs, or must
    stay in the default partition.

    `resolve` returns the request and the resources of each run, and raises UserError if the partition lacks
    something. If the request names a number of GPUs, and no partition meets it, the error of the first
    partition is raised.
    """
    if not _may_move(request, recipe, site):
        return None
    free = free_by_partition(site.nodes, site.partitions)
    wanted = None if "gpu_type" in request.defaulted else request.gpu_type

    def rank(partition: Partition) -> tuple[bool, int, str]:
        types = free.get((partition.cluster, partition.name), ())
        num_free = sum(
            (each.largest_free or 0) if each.free is None else each.free  # unknown on a node: at least these
            for each in types
            if wanted in (None, each.type)
        )
        return partition.is_exclusive, -num_free, partition.name

    problem: UserError | None = None
    for partition in sorted(_others(request, site), key=rank):
        try:
            runs = resolve(replace(request, partition=partition.name))
        except UserError as error:
            problem = problem or error
            continue
        if all(
            _gets_all(asked, recipe_of_run(recipe, asked), resolved.resources) for asked, resolved in runs
        ):
            return partition, runs
    if problem is not None and request.gpus_per_node:
        raise problem
    return None


def words_of_choice(chosen: Partition, site: Site) -> str:
    """The note on a chosen partition, with the option that keeps the default one."""
    default = site.default_partition
    name = default.name if default is not None else ""
    return (
        f"partition {chosen.name}, because the default partition {name} has no GPUs: --partition {name} "
        "trains on CPUs"
    )


def _may_move(request: LaunchRequest, recipe: Recipe, site: Site) -> bool:
    """True if the launch wants GPUs and names no place, and the default partition has no GPUs."""
    default = site.default_partition
    if site.backend != "slurm" or default is None or default.num_gpus_per_node != 0:
        return False
    if request.partition is not None or request.gpus_per_node == 0 or "nodelist" in request.sbatch:
        return False
    own = recipe.own.kind if recipe.own is not None else None
    return own is not OwnKind.BATCH and (own is not OwnKind.COMMAND or request.gpus_per_node is not None)


def _others(request: LaunchRequest, site: Site) -> list[Partition]:
    """The open partitions other than the default one, which is to be left."""
    others = (each for each in site.partitions if each is not site.default_partition)
    return [each for each in others if _is_open(each, request, site)]


def _is_open(partition: Partition, request: LaunchRequest, site: Site) -> bool:
    """True if the partition takes jobs, and the request is known to meet every condition that coach reads of
    it."""
    account, groups = request.account, partition.allow_groups
    return (
        (partition.state, partition.is_hidden, partition.is_root_only) == ("up", False, False)
        and (not partition.needs_reservation or bool(request.reservation))
        and partition.allow_submit_nodes is None
        and _is_among(account, partition.allow_accounts)
        and (not partition.deny_accounts or bool(account and account not in partition.deny_accounts))
        and _is_among(request.qos, partition.allow_qos)
        and (groups is None or not (site.own_groups or frozenset()).isdisjoint(groups))
        and _has_feature(partition, request.constraint, site)
    )


def _is_among(said: str | None, allowed: Sequence[str] | None) -> bool:
    return allowed is None or said in allowed


def _has_feature(partition: Partition, constraint: str | None, site: Site) -> bool:
    """True if a node with GPUs has one of the features that the constraint names. Slurm judges the rest of
    the expression."""
    if not constraint:
        return True
    named = set(_FEATURE.findall(constraint))
    return any(
        node.gpus and partition.name in node.partitions and not named.isdisjoint(node.features)
        for node in site.nodes
    )


def _gets_all(request: LaunchRequest, recipe: Recipe, resources: Resources) -> bool:
    """True if a run gets GPUs, and its memory, time and ranks are not cut."""
    ranks = recipe.ranks if request.nproc_per_node is None and not recipe.is_one_process else None
    time_s = request.time_limit_s or recipe.time_limit_s
    return (
        resources.gpus_per_node > 0
        and request.mem in (None, resources.mem)
        and resources.time_limit_s == time_s
        and (ranks is None or resources.num_nodes * resources.nproc_per_node >= ranks)
    )


def _of_batch_file(request: LaunchRequest, recipe: Recipe, site: Site) -> Resolved:
    """The resources that a batch file asks for. Slurm alone checks them: the file's author knows the site
    better than coach."""
    if site.backend != "slurm":
        raise UserError(
            f"{recipe.trainer}: a batch file needs Slurm",
            f"`coach launch -- bash {recipe.trainer}` runs it here",
        )
    resources = batch_file.resources_of(batch_file.read(recipe.path), request)
    if request.until_done is not None:
        resources = replace(resources, signal=signal_of(request, recipe.own, resources.time_limit_s))
    note = f"{recipe.trainer}, with its own #SBATCH lines and what you say beside them"
    return Resolved(resources, (note,), (), {"partition": tuple(p.name for p in site.partitions)}, {})
