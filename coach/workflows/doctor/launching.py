"""Check that the main job works: plan the recipe of key 1, and let Slurm test it, without submitting
anything.

The plan is made by the functions that a launch uses, so the doctor and the Enter key cannot disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.util import find_spec

from coach.config import Settings
from coach.launch.environment_check import EnvironmentCheck, check_environment
from coach.launch.interpreter import describe
from coach.launch.recipe import find_recipes
from coach.launch.refusal import fields_in_question, is_unanswered, option_of, sentence, slurms_words
from coach.launch.resources import Site
from coach.launch.spelling import format_time
from coach.model.errors import UserError, hidden_by_site
from coach.model.judging.doctor_report import LAUNCH, OK, UNKNOWN, WARNING, WRONG, Check
from coach.model.launching.environment import EnvironmentKind
from coach.model.launching.launch import LaunchRequest, Plan
from coach.sources.io import CommandResult, Io
from coach.workflows.launching.dry_run import ask_slurm
from coach.workflows.launching.prepare import look_at_site, plan_for, with_defaults

AREA = LAUNCH
MAIN_KEY = "1"


def look_at_launch(
    backend: str, settings: Settings, env: Mapping[str, str], io: Io, on_site: Callable[[Site], list[Check]]
) -> list[Check]:
    """The target's GPUs by `on_site`, then the plan, then sbatch's test."""
    try:
        site = look_at_site(backend, io)
    except UserError as error:
        because = f"the cluster cannot be queried: {error.message}"
        return [Check(AREA, "plan", WRONG, None, because, error.hint)]
    checks = on_site(site)
    recipes, _ = find_recipes()
    recipe = next((recipe for recipe in recipes if recipe.key == MAIN_KEY), None)
    if recipe is None:
        todo = "install coach again: the package is not complete"
        return [
            *checks,
            Check(AREA, "plan", WRONG, None, f"no recipe has the key {MAIN_KEY}", todo),
        ]
    what = f"plan of {recipe.name}"
    try:
        request = with_defaults(LaunchRequest(recipe.name), settings)
        is_unsaid = "nodes" in site.hidden and request.gpus_per_node is None
        if is_unsaid:
            request = replace(request, gpus_per_node=0)
        plan = plan_for(request, settings, env, io, site, io.now())
    except UserError as error:
        return [*checks, Check(AREA, what, WRONG, "refused", error.message, error.hint)]
    checks.append(_gpus_unsaid(judge_plan(what, plan)) if is_unsaid else judge_plan(what, plan))
    checks.append(_look_at_environment(plan, env, io))
    if backend == "slurm":
        checks.append(_test(plan, io))
    return checks


def judge_plan(what: str, plan: Plan) -> Check:
    """The launch that would be made, with anything unusual about it."""
    resources = plan.resources
    if resources.gpus_per_node:
        kind = f" {resources.gpu_type}" if resources.gpu_type else ""
        devices = f"{resources.gpus_per_node}{kind} GPU{'s' if resources.gpus_per_node > 1 else ''} per node"
    else:
        devices = "CPUs"
    nodes = f"{resources.num_nodes} node{'s' if resources.num_nodes > 1 else ''}"
    value = f"{nodes}, {devices}"
    if resources.partition:
        value += f", partition {resources.partition}"
    if resources.time_limit_s is not None:
        value += f", {format_time(resources.time_limit_s)}"
    if plan.warnings:
        return Check(AREA, what, WARNING, value, "; ".join(plan.warnings))
    return Check(AREA, what, OK, value)


def _gpus_unsaid(check: Check) -> Check:
    """Note that the plan is for CPUs because the site hides its GPUs."""
    because = f"{hidden_by_site('nodes')}: a launch must request its number of GPUs"
    todo = "set gpus = N in [launch] of config.toml, or --gpus N at each launch"
    return replace(check, state=WARNING, because=because, todo=todo)


def judge_environment(plan: Plan, check: EnvironmentCheck, has_own_torch: bool) -> Check:
    """The source of torch, as far as it can be known here."""
    python = str(plan.run_json["environment"]["python"])
    what = describe(plan.environment, python).removeprefix("environment ")
    if check.torch is not None:
        return Check(AREA, "environment", OK, f"{what}, torch {check.torch}")
    if plan.environment.kind is not EnvironmentKind.NONE:
        todo = 'add its torch to its description, for example torch = "2.6.0"; the job checks it at its start'
        return Check(AREA, "environment", UNKNOWN, what, check.unknown, todo)
    if has_own_torch or "/" in python:
        return Check(AREA, "environment", OK, what, check.unknown)
    because = (
        "torch is not installed beside coach, and no environment is set: the job takes python3 of its PATH"
    )
    todo = (
        'set launch.environment in config.toml, for example "venv=/path" or "modules=NAME/VERSION"; or --env'
    )
    return Check(AREA, "environment", UNKNOWN, what, because, todo)


def _look_at_environment(plan: Plan, env: Mapping[str, str], io: Io) -> Check:
    python = str(plan.run_json["environment"]["python"])
    check = check_environment(plan.environment, python, env, io)
    return judge_environment(plan, check, has_own_torch=find_spec("torch") is not None)


def judge_test(result: CommandResult, plan: Plan) -> Check:
    """Slurm's answer for the exact script that Enter would submit."""
    what = "sbatch --test-only"
    if result.error is not None:
        todo = "try again; a launch waits longer for the answer"
        return Check(AREA, what, UNKNOWN, None, result.error, todo)
    lines = slurms_words(result.stderr)
    if result.returncode == 0:
        return Check(AREA, what, OK, "Slurm accepts it", "; ".join(lines) or None)
    if is_unanswered(lines):
        return Check(AREA, what, UNKNOWN, None, "; ".join(lines), "try again")
    options = " or ".join(option_of(field) for field in fields_in_question(lines, plan))
    todo = "Slurm's message names no option: follow the message, or ask the site"
    if options:
        todo = f"set {options} in the plan, or for good in [launch] of config.toml"
    words = " ".join(map(sentence, lines)).rstrip(";")
    return Check(AREA, what, WRONG, "refused", words or f"exit status {result.returncode}", todo)


def _test(plan: Plan, io: Io) -> Check:
    return judge_test(ask_slurm(plan, io), plan)
