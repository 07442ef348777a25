"""Add a drill's planted fault to the launch request: its values and options, and those of the fault-free
twin.

Kept apart from drill.py, which needs plans: every launch passes here before it has a plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from coach.launch.recipe import recipe_of
from coach.model.launching.launch import LaunchRequest
from coach.model.teaching.drill import Drill, Need

_TABLES = ("env", "sbatch")


def with_drill(request: LaunchRequest) -> LaunchRequest:
    """Set the values of a drill that the request leaves open: a drill is launched like any recipe, and comes
    with its fault.

    A launch with a parent keeps the values of its parent. Raises UserError for an unknown recipe.
    """
    drill = recipe_of(request).drill
    if drill is None or request.parent_run_id is not None:
        return request
    return _with(request, drill, drill.set, drill.options)


def twin_request(drill: Drill, backend: str = "auto") -> LaunchRequest:
    """The launch of the fault-free twin."""
    return _with(LaunchRequest(drill.twin.recipe, backend), drill, drill.twin.set, drill.twin.options)


def _with(
    request: LaunchRequest, drill: Drill, values: Mapping[str, Any], options: Mapping[str, Any]
) -> LaunchRequest:
    """The request with these values and options, except where it sets its own."""
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
