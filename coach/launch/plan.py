"""Turns a request into a plan: everything checked, each default filled in, the script rendered. Pure.

The plan that is shown is the plan that is submitted, so it holds the whole script, and nothing is decided
after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from coach.launch import batch_file
from coach.launch.long_job import check_long
from coach.launch.meanings import parameter_meanings, resource_meanings
from coach.launch.own_program import OwnCommand, own_command, text_of
from coach.launch.partition_choice import resolve_somewhere
from coach.launch.plan_checks import check_environment, check_run_dir, check_texts
from coach.launch.recipe import Recipe, resolve_parameters
from coach.launch.record import is_drill, run_record
from coach.launch.resources import Site
from coach.launch.script import Paths, is_torchrun, render
from coach.model.launching.environment import Environment
from coach.model.launching.launch import LaunchRequest, OwnKind, Plan, Resources


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts that the workflow found before planning: where files lie and which user launches."""

    paths: Paths
    user: str
    created_time_s: float
    coach_version: str
    git: Mapping[str, Any] | None
    notes: tuple[str, ...] = ()
    environment: Environment = field(default_factory=Environment)
    locked: Mapping[str, str] = field(default_factory=dict)
    """Field of the request → the site's reason why users may not set it."""
    most: Mapping[str, int] = field(default_factory=dict)
    """Field of the request → the site's own upper limit."""
    has_comment: bool = False
    """True if the job may write its finding into its own comment."""


def make_plan(request: LaunchRequest, recipe: Recipe, site: Site, facts: Facts, run_id: str) -> Plan:
    """Check everything and render the script. Raises UserError for the first problem."""
    if request.max_restarts is None:
        request = replace(request, max_restarts=recipe.max_restarts)
    check_texts(request)
    check_environment(facts.environment)
    source = text_of(recipe) if request.until_done is not None else None
    request = replace(request, resume_with=check_long(request, recipe.own, site.backend, source))
    check_run_dir(facts.paths.run_dir)
    parameters, unusual = resolve_parameters(recipe, request.set)
    is_batch = recipe.own is not None and recipe.own.kind is OwnKind.BATCH
    resolved = resolve_somewhere(request, recipe, parameters, site)
    if is_drill(request, recipe):  # unusual values are the drill's puzzle: no warning gives them away
        unusual, resolved = (), replace(resolved, notes=(), warnings=())
    command = own_command(recipe.own, parameters) if recipe.own is not None else OwnCommand(())
    plan = Plan(
        request=request,
        run_id=run_id,
        run_dir=facts.paths.run_dir,
        backend=site.backend,
        recipe=recipe.name,
        title=recipe.title,
        parameters=parameters,
        resources=resolved.resources,
        script="",
        notes=facts.notes + resolved.notes + command.notes + _gpm_notes(request, resolved.resources),
        warnings=unusual + resolved.warnings + command.warnings,
        choices=resolved.choices,
        locked=facts.locked,
        meanings={
            **resource_meanings(resolved, facts.most),
            **parameter_meanings(recipe.parameters.values()),
        },
        environment=facts.environment,
        command=command.words,
        mem_need_mib=resolved.mem_need_mib,
    )
    record = run_record(
        plan,
        recipe,
        user=facts.user,
        created_time_s=facts.created_time_s,
        python=facts.paths.python,
        coach_version=facts.coach_version,
        git=facts.git,
        has_comment=facts.has_comment,
    )
    if is_batch:
        script = batch_file.render(plan, facts.paths, record, facts.coach_version)
    else:
        script = render(plan, recipe.trainer, facts.paths, record, facts.coach_version)
    if request.max_restarts and not is_torchrun(plan):
        unused = f"--max-restarts {request.max_restarts} has no effect: torchrun does not start this program"
        plan = replace(plan, warnings=(*plan.warnings, unused))
    own = str(recipe.own_trainers) if recipe.own_trainers else None
    return replace(plan, script=script, run_json=record, code_dir=facts.paths.code_dir, own_trainers=own)


def _gpm_notes(request: LaunchRequest, resources: Resources) -> tuple[str, ...]:
    if not request.has_gpm:
        return ()
    if resources.gpus_per_node == 0:
        return ("no GPU: GPM has nothing to measure",)
    return (
        "GPM: SM, tensor and DRAM activity are measured too, from counters that profilers of kernels use",
    )
