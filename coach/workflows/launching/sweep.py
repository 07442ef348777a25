"""One launch, or a group of them: a sweep becomes a run for each combination of values, the array of a batch
file a run for each task, submitted whole.

On Slurm a group is one job array; `at_once` says how many of its runs are alive at the same time. A recipe's
own sweep measures speed: its runs follow each other, for runs that share a machine would measure each other.
So do those that do not ask Slurm for the same, and all runs of the local backend. Front ends plan and submit
here, so that a group is launched by the same keys and commands as a single run; everything about one run
stays where it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from coach import runs
from coach.analysis.comparing.sweep_table import Group, Member, group_of, member_of, table
from coach.config import Settings
from coach.launch import parameters
from coach.launch.array_script import can_be_array
from coach.launch.batch_file import array_of, read
from coach.launch.recipe import Recipe, Sweep, recipe_of, resolve_parameters
from coach.launch.recipe_file import RANKS, WORLD_SIZE
from coach.launch.resources import Site, resolve_resources
from coach.launch.submit import NoAnswer
from coach.launch.sweep_values import MAX_RUNS, combinations, words_of
from coach.model.errors import UserError
from coach.model.launching.launch import (
    ARRAY_TASK,
    LaunchRequest,
    OwnKind,
    Plan,
    Scalar,
    Submitted,
    SweepPoint,
)
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

AT_ONCE = 4
"""Runs of a sweep that are alive at the same time, unless the launch says how many."""
MAX_TASKS = 64
"""Each task of a batch file's array gets a run directory; more are for plain sbatch."""


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
    members = [] if request.parent_run_id is not None else _members(request, recipe, site, settings)
    if not members:  # a fix mends one run of a group
        return plan_for(request, settings, env, io, site, now_s, run_id)
    ids = [run_id or runs.new_run_id(recipe.name, now_s)]
    while len(ids) < len(members):
        ids = list(dict.fromkeys((*ids, runs.new_run_id(recipe.name, now_s))))
    plans = []
    for index, (member, name) in enumerate(zip(members, ids, strict=True)):
        point = SweepPoint(ids[0], member.parameter, member.value, index, len(members))
        asked = replace(member.request, sweep_point=point)
        plans.append(plan_for(asked, settings, env, io, site, now_s, name))
    at_once = _at_once(request, recipe, plans)
    _check_room(len(plans), settings, io, now_s)
    first, *others = plans
    said = "; ".join(parameters.show(member.value) for member in members)
    together = "one after the other" if at_once == 1 else _together(at_once)
    note = f"{len(plans)} runs, {together}: {members[0].parameter} = {said}; this is the first"
    request = replace(request, at_once=at_once)
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
    if plan.backend == "slurm" and can_be_array((plan, *plan.others)):
        return one.submit_array((plan, *plan.others), plan.request.at_once, settings, env, io)
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


@dataclass(frozen=True, slots=True)
class _Member:
    """One run of a group to be: what differs, and the whole request."""

    parameter: str
    value: Scalar
    request: LaunchRequest


def _members(request: LaunchRequest, recipe: Recipe, site: Site, settings: Settings) -> list[_Member]:
    """The runs of a group; none where the request is for one run."""
    if request.own is not None and request.own.kind is OwnKind.BATCH and request.own.array_task is None:
        tasks = _array_tasks(request, recipe)
        if tasks:
            return tasks
    if request.sweep:
        return _of_sweep(request, recipe, site, settings)
    for name, said in (("--random", request.num_random), ("--at-once", request.at_once)):
        if said is not None and (recipe.sweep is None or name == "--random"):
            raise UserError(f"{name} {said}: there is no sweep", "--sweep lr=1e-4,1e-3 makes one")
    if recipe.sweep is None:
        return []
    values, rest = _values(recipe, recipe.sweep, request.set)
    name = recipe.sweep.parameter
    return [
        _Member(name, value, _at(request, recipe, {**rest, name: value}, site, settings)) for value in values
    ]


def _array_tasks(request: LaunchRequest, recipe: Recipe) -> list[_Member]:
    ids = array_of(read(recipe.path))
    if ids is None:
        return []
    if request.sweep:
        raise UserError(
            f"{recipe.trainer}: it has an array of its own, which --sweep would need", "leave one out"
        )
    if len(ids.tasks) > MAX_TASKS or ids.is_cut:
        raise UserError(
            f"{recipe.trainer}: an array of {len(ids.tasks)} tasks: coach keeps a run of each, at most"
            f" {MAX_TASKS}",
            "--as-is submits it; coach shows and judges its tasks",
        )
    return [
        _Member(ARRAY_TASK, task, replace(request, own=replace(request.own, array_task=task)))
        for task in ids.tasks
        if request.own is not None
    ]


def _of_sweep(request: LaunchRequest, recipe: Recipe, site: Site, settings: Settings) -> list[_Member]:
    twice = next((name for name in request.sweep if name in request.set), None)
    if twice is not None:
        raise UserError(f"--set {twice} and --sweep {twice}: both say its value", "say one")
    known = {**recipe.parameters, **({WORLD_SIZE: RANKS} if recipe.devices == "multiple" else {})}
    return [
        _Member(
            ", ".join(values),
            next(iter(values.values())) if len(values) == 1 else words_of(values),
            _at(request, recipe, {**request.set, **values}, site, settings),
        )
        for values in combinations(known, request.sweep, request.num_random)
    ]


def _at_once(request: LaunchRequest, recipe: Recipe, plans: Sequence[Plan]) -> int | None:
    """How many runs of a group are alive at the same time; None: as its batch file says."""
    said = request.at_once
    if said is not None and not 1 <= said <= MAX_TASKS:
        raise UserError(f"--at-once {said}: must be 1 to {MAX_TASKS}")
    if plans[0].backend == "slurm" and can_be_array(plans):
        own = request.own
        if own is not None and own.kind is OwnKind.BATCH and not request.sweep:
            ids = array_of(read(recipe.path))
            return said or (ids.limit if ids is not None else None)
        return said or (AT_ONCE if request.sweep else 1)
    if said is not None and said > 1:
        because = (
            "this machine" if plans[0].backend == "local" else "runs that ask Slurm for different things"
        )
        raise UserError(f"--at-once {said}: {because} train one after the other", "leave it out")
    return 1


def _together(at_once: int | None) -> str:
    return "as many at once as Slurm starts" if at_once is None else f"at most {at_once} at once"


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
    request: LaunchRequest, recipe: Recipe, said: Mapping[str, Any], site: Site, settings: Settings
) -> LaunchRequest:
    """The request of one run of a group. A number of ranks becomes nodes and ranks on each."""
    rest = {name: value for name, value in said.items() if name != WORLD_SIZE}
    if WORLD_SIZE not in said:
        return replace(request, set=rest)
    locked = locked_fields(settings)
    fixed = {
        name: value
        for name in ("num_nodes", "nproc_per_node")
        if (value := getattr(request, name)) is not None and (name in locked or name not in request.defaulted)
    }
    return _with_ranks(replace(request, set=rest), recipe, int(said[WORLD_SIZE]), site, fixed)


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
