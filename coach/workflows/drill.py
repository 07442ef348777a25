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
from coach.model.drill import Drill, Need, Twin
from coach.model.errors import UserError
from coach.model.launch import LaunchRequest


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
    twin: Twin = drill.twin
    return _with(LaunchRequest(twin.recipe, backend), drill, twin.set, twin.options)


def _with(
    request: LaunchRequest, drill: Drill, values: Mapping[str, Any], options: Mapping[str, Any]
) -> LaunchRequest:
    gpus = {} if Need.GPU in drill.needs else {"gpus_per_node": 0}
    asked: dict[str, Any] = {**gpus, **options}
    for name in ("env", "sbatch"):
        asked[name] = {**asked.get(name, {}), **getattr(request, name)}
    said = {name for name in asked if getattr(request, name) is not None and name not in request.defaulted}
    kept = {name: value for name, value in asked.items() if name in ("env", "sbatch") or name not in said}
    return replace(request, set={**values, **request.set}, defaulted=request.defaulted - kept.keys(), **kept)


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
