"""One launch, or a group of them: a recipe with a sweep becomes a run for each value, submitted whole, one
after the other.

One after the other, because runs that share a machine would measure each other. Front ends plan and submit
here, so that a group is launched by the same keys and commands as a single run; everything about one run
stays where it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from coach import runs
from coach.analysis.comparing.sweep_table import Group, Member, group_of, member_of, table
from coach.config import Settings
from coach.launch import parameters
from coach.launch.recipe import Recipe, Sweep, recipe_of, resolve_parameters
from coach.launch.recipe_file import RANKS, WORLD_SIZE
from coach.launch.resources import Site, resolve_resources
from coach.launch.submit import NoAnswer
from coach.model.errors import UserError
from coach.model.launching.launch import LaunchRequest, Plan, Scalar, Submitted, SweepPoint
from coach.model.slurm.job_action import Verb
from coach.model.training.run import Run
from coach.rules.engine import Engine
from coach.rules.registry import signatures
from coach.sources.io import Io
from coach.sources.runs.run_files import parse_run
from coach.workflows.backend import resolve_backend
from coach.workflows.jobs.job_actions import perform, plan_action
from coach.workflows.judging.lazy_engine import rules_of
from coach.workflows.judging.one_reading import read_once
from coach.workflows.judging.targets import Target, TargetKind, list_runs
from coach.workflows.launching import start as one
from coach.workflows.launching.defaults import locked_fields
from coach.workflows.launching.prepare import (
    interrupted_launches,
    look_at_site,
    num_alive_runs,
    plan_for,
    with_defaults,
)

MAX_RUNS = 32
"""More in one group is a slip of the keyboard, or a matter for a job array."""


def prepare(request: LaunchRequest, settings: Settings, env: Mapping[str, str], io: Io, now_s: float) -> Plan:
    """Every check that a launch makes, and the scripts. Raises UserError for what cannot be launched."""
    request = with_defaults(request, settings)
    recipe_of(request)  # a misspelt name is told before the controller is asked
    site = look_at_site(resolve_backend(request.backend, env, settings), io)
    lost = interrupted_launches(request, site.backend, settings, io)
    plan = plan_all(request, settings, env, io, site, now_s)
    return replace(plan, warnings=(*lost, *plan.warnings))


def plan_all(
    request: LaunchRequest,
    settings: Settings,
    env: Mapping[str, str],
    io: Io,
    site: Site,
    now_s: float,
    run_id: str | None = None,
) -> Plan:
    """The plan of a launch; of a sweep the plan of its first run, with those of the others."""
    recipe = recipe_of(request)
    if recipe.sweep is None or request.parent_run_id is not None:  # a fix mends one run of a group
        return plan_for(request, settings, env, io, site, now_s, run_id)
    values, rest = _values(recipe, recipe.sweep, request.set)
    group_id = runs.new_run_id(recipe.name, now_s)
    ids = [run_id or group_id]
    while len(ids) < len(values):
        ids = list(dict.fromkeys((*ids, runs.new_run_id(recipe.name, now_s))))
    plans = []
    for index, (value, name) in enumerate(zip(values, ids, strict=True)):
        point = SweepPoint(ids[0], recipe.sweep.parameter, value, index, len(values))
        asked = replace(_at(request, recipe, rest, value, site, settings), sweep_point=point)
        plans.append(plan_for(asked, settings, env, io, site, now_s, name))
    _check_room(len(plans), settings, io, now_s)
    first, *others = plans
    said = ", ".join(parameters.show(value) for value in values)
    note = f"{len(plans)} runs, one after the other: {recipe.sweep.parameter} = {said}; this is the first"
    return replace(
        first,
        request=replace(request, sweep_point=first.request.sweep_point),
        notes=(note, *first.notes),
        warnings=tuple(dict.fromkeys(line for plan in plans for line in plan.warnings)),
        others=tuple(others),
    )


class NoGroup(UserError):
    """It is no group, nor a run of one."""


def submit(plan: Plan, settings: Settings, env: Mapping[str, str], io: Io) -> tuple[Submitted, ...]:
    """Launch all runs of a plan, or none. Raises UserError when one of them is refused."""
    done: list[Submitted] = []
    before: Run | None = None
    for each in (plan, *plan.others):
        try:
            done.append(one.submit(each, settings, env, io, before))
        except NoAnswer as error:
            if not done:
                raise
            names = ", ".join(item.run_id for item in done)
            raise UserError(f"submitted so far: {names}; then: {error.message}", error.hint) from None
        except UserError as error:
            if not done:
                raise
            _take_back(done, settings, env, io)
            raise UserError(
                f"run {len(done) + 1} of {1 + len(plan.others)} was refused, those before it were cancelled:"
                f" {error.message}",
                error.hint,
            ) from None
        before = parse_run({**each.run_json, "job_id": done[-1].job_id}, each.run_dir)
    return tuple(done)


def read_group(text: str, settings: Settings, io: Io, backend: str, user: str) -> Group:
    """A group's table. `text` is the group's id or that of one of its runs. Raises UserError when it is
    neither."""
    known = list_runs(io, settings.runs_root)
    named = next((run for run in known if text in (run.run_id, run.job_id, run.run_dir)), None)
    group_id = named.sweep.group_id if named is not None and named.sweep is not None else text
    members = group_of(group_id, known)
    if not members:
        raise NoGroup(f"{text}: not a group of runs")
    engine = Engine(rules_of(settings))
    read = [_read(run, settings, io, backend, user, engine) for run in members]
    sweep = members[0].sweep
    parameter = sweep.parameter if sweep is not None else ""
    return Group(group_id, members[0].recipe, parameter, table(parameter, read))


def _read(run: Run, settings: Settings, io: Io, backend: str, user: str, engine: Engine) -> Member:
    target = Target(run.run_id, TargetKind.RUN, settings.runs_root / run.run_id)
    snapshot, history = read_once(target, settings, io, backend, user, signatures(engine.rules))
    return member_of(run, snapshot, history, engine.diagnose(snapshot, history).findings)


def _values(
    recipe: Recipe, sweep: Sweep, said: Mapping[str, Any]
) -> tuple[tuple[Scalar, ...], Mapping[str, Any]]:
    """The values to go over, and the other parameters that were said."""
    named = [name for name in sweep.names if name in said]
    rest = {name: value for name, value in said.items() if name not in sweep.names}
    if not named:
        return sweep.values, rest
    if len(named) > 1:
        raise UserError(f"--set {named[0]} and --set {named[1]}: both are the values of the sweep", "say one")
    name, text = named[0], said[named[0]]
    texts = text.split(",") if isinstance(text, str) else [text]
    kind = recipe.parameters.get(sweep.parameter, RANKS)
    values = tuple(
        dict.fromkeys(
            parameters.convert(kind, word.strip() if isinstance(word, str) else word, f"--set {name}")
            for word in texts
        )
    )
    if len(values) > MAX_RUNS:
        raise UserError(f"--set {name}: {len(values)} values: at most {MAX_RUNS} runs in one group")
    return values, rest


def _at(
    request: LaunchRequest,
    recipe: Recipe,
    rest: Mapping[str, Any],
    value: Scalar,
    site: Site,
    settings: Settings,
) -> LaunchRequest:
    """The request of one value."""
    if recipe.sweep is not None and recipe.sweep.parameter != WORLD_SIZE:
        return replace(request, set={**rest, recipe.sweep.parameter: value})
    locked = locked_fields(settings)
    fixed = {
        name: said
        for name in ("num_nodes", "nproc_per_node")
        if (said := getattr(request, name)) is not None and (name in locked or name not in request.defaulted)
    }
    return _with_ranks(replace(request, set=rest), recipe, int(value), site, fixed)


def _with_ranks(
    request: LaunchRequest, recipe: Recipe, num_ranks: int, site: Site, fixed: Mapping[str, int]
) -> LaunchRequest:
    """As many ranks on as few nodes as they fit on. `fixed` is what was said of nodes and ranks per node."""
    values, _ = resolve_parameters(recipe, request.set)
    problem: UserError | None = None
    for num_nodes in (n for n in range(1, num_ranks + 1) if num_ranks % n == 0):
        if fixed.get("num_nodes", num_nodes) != num_nodes:
            continue
        if fixed.get("nproc_per_node", num_ranks // num_nodes) != num_ranks // num_nodes:
            continue
        trial = replace(
            request,
            num_nodes=num_nodes,
            nproc_per_node=num_ranks // num_nodes,
            gpus_per_node=0 if request.gpus_per_node == 0 else None,
        )
        try:
            resolve_resources(trial, recipe, values, site)
        except UserError as error:
            problem = problem or error
        else:
            return trial
    raise UserError(
        (
            f"{num_ranks} ranks: "
            f"{problem.message if problem else 'not with so many nodes, or ranks on each, as were said'}"
        ),
        problem.hint if problem else "leave out --nodes and --nproc-per-node",
    )


def _check_room(num_runs: int, settings: Settings, io: Io, now_s: float) -> None:
    most = settings.limits.max_running
    alive = num_alive_runs(settings, io, now_s)
    if most is not None and alive + num_runs > most:
        place = settings.origins.get("limits.max_running")
        raise UserError(
            f"{num_runs} runs beside {alive} that are pending or running: the site allows at most {most} at "
            "once"
            f"{f' ({place})' if place else ''}",
            "sweep over fewer values",
        )


def _take_back(done: Sequence[Submitted], settings: Settings, env: Mapping[str, str], io: Io) -> None:
    """Cancel the runs of a group that cannot be whole, the last first: else each would start as the one
    before it ends."""
    for submitted in reversed(done):
        try:
            action = plan_action(Verb.CANCEL, (submitted.run_id,), settings, env, io)
            perform(action, env, io.now())
        except UserError:
            continue
