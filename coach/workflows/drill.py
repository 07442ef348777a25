"""Drills: which there are, what each needs that is not here, and how one is launched.

The command line and the screen list, launch and judge through here, so that neither gives an answer away that the other keeps.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from coach.launch.recipe import get_recipe
from coach.launch.resources import Site
from coach.model.drill import Drill, Need
from coach.model.errors import UserError
from coach.model.launch import LaunchRequest

_TABLES = ("env", "sbatch")


def with_drill(request: LaunchRequest) -> LaunchRequest:
    """What a drill plants, where nobody has said otherwise: a drill is launched like any recipe, and comes with its fault.

    A launch that has a parent brings along what that one was launched with. Raises UserError for an unknown recipe.
    """
    drill = get_recipe(request.recipe).drill
    if drill is None or request.parent_run_id is not None:
        return request
    return _with(request, drill, drill.set, drill.options)


def twin_request(drill: Drill, backend: str = "auto") -> LaunchRequest:
    """The launch of the fault-free twin."""
    return _with(LaunchRequest(drill.twin.recipe, backend), drill, drill.twin.set, drill.twin.options)


def _with(
    request: LaunchRequest, drill: Drill, values: Mapping[str, Any], options: Mapping[str, Any]
) -> LaunchRequest:
    """The request with these values and options, as far as it does not say others."""
    unsaid: dict[str, Any] = {} if Need.GPU in drill.needs else {"gpus_per_node": 0}
    unsaid |= {"has_local_nodes": True} if Need.TWO_NODES in drill.needs else {}
    unsaid |= {name: value for name, value in options.items() if name not in _TABLES}
    filled: dict[str, Any] = {
        name: value
        for name, value in unsaid.items()
        if getattr(request, name) is None or name in request.defaulted
    }
    tables: dict[str, Any] = {name: {**options.get(name, {}), **getattr(request, name)} for name in _TABLES}
    return replace(
        request,
        set={**values, **request.set},
        defaulted=request.defaulted - filled.keys(),
        **filled,
        **tables,
    )


def why_skipped(drill: Drill, site: Site) -> str | None:
    """Why a drill cannot show its symptom on this site; None where it can."""
    reasons = {
        Need.GPU: None if any(node.gpus for node in site.nodes) else "needs a GPU: there is none here",
        Need.SLURM: None if site.backend == "slurm" else "needs Slurm: this is the local backend",
        Need.ROOT: None if os.geteuid() == 0 else "needs root",
        Need.TWO_NODES: None
        if site.backend == "local" or any(partition.num_nodes > 1 for partition in site.partitions)
        else "needs two nodes: no partition has them",
    }
    return next((why for need in drill.needs if (why := reasons[need]) is not None), None)


def get_drill(name: str) -> Drill:
    """A drill by its name. Raises UserError with the nearest names."""
    drill = get_recipe(name).drill
    if drill is None:
        raise UserError(f"{name} is no drill", "`coach drill` lists them")
    return drill
