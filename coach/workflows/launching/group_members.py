"""Expand the request for a group into one request per run, with the values that differ between the runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from coach.config import Settings
from coach.launch import parameters
from coach.launch.array_script import can_be_array
from coach.launch.batch_file import array_of, read
from coach.launch.partition_choice import gpu_partition, words_of_choice
from coach.launch.recipe import (
    RANKS,
    WORLD_SIZE,
    Recipe,
    Sweep,
    recipe_of,
    recipe_of_run,
    resolve_parameters,
)
from coach.launch.resources import Resolved, Site, resolve_resources
from coach.launch.sweep_values import MAX_RUNS, combinations, names_several, words_of
from coach.model.errors import UserError
from coach.model.launching.launch import ARRAY_TASK, LaunchRequest, OwnKind, Plan, Resources, Scalar
from coach.workflows.launching.defaults import locked_fields
from coach.workflows.launching.ladders import RUNG, Ladder, runs_of_ladder

AT_ONCE = 4
"""Runs of a sweep that may be alive at the same time, unless the launch sets another number."""
_THREADS = "OMP_NUM_THREADS"
MAX_TASKS = 64
"""Largest array of a batch file: each task gets a run directory. Larger arrays are for plain sbatch."""


@dataclass(frozen=True, slots=True)
class Member:
    """One run of a planned group: the values that differ, and its whole request."""

    parameter: str
    value: Scalar
    request: LaunchRequest


def placed_together(
    request: LaunchRequest, recipe: Recipe, site: Site, settings: Settings
) -> tuple[LaunchRequest, tuple[str, ...]]:
    """The request with one partition for all runs of a group, so that they can be compared, and a note. The
    request as it is if it is for one run, or names a partition."""
    is_group = recipe.sweep is not None or request.sweep or request.ladder is not None
    if not is_group or request.parent_run_id is not None:
        return request, ()

    def resolve(trial: LaunchRequest) -> list[tuple[LaunchRequest, Resolved]]:
        runs = [member.request for member in members_of(trial, recipe, site, settings)]
        return [(run, _resolved(run, recipe_of_run(recipe, run), site)) for run in runs]

    found = gpu_partition(request, recipe, site, resolve)
    if found is not None:
        chosen, _ = found
        return replace(request, partition=chosen.name), (words_of_choice(chosen, site),)
    default = site.default_partition
    return replace(request, partition=request.partition or (default.name if default else None)), ()


def with_equal_threads(
    members: list[Member], recipe: Recipe, site: Site
) -> tuple[list[Member], tuple[str, ...]]:
    """The runs of a group on CPUs, each with the fewest threads per rank that one of them would have, and a
    note. Otherwise a rank with 2 threads would be compared with 2 ranks of 1 thread each."""
    if recipe.own is not None or any(_THREADS in member.request.env for member in members):
        return members, ()
    resolved = []
    for member in members:
        own = recipe_of_run(recipe, member.request)
        values = resolve_parameters(own, member.request.set)[0]
        resolved.append((resolve_resources(member.request, own, values, site).resources, values))
    threads = {resources.num_threads(values) for resources, values in resolved}
    if len(threads) < 2 or any(resources.gpus_per_node for resources, _ in resolved):
        return members, ()
    few = str(min(threads))
    equal = [
        replace(member, request=replace(member.request, env={**member.request.env, _THREADS: few}))
        for member in members
    ]
    return equal, (f"{_THREADS}={few} in all runs: ranks with equal threads can be compared",)


def with_lists_swept(request: LaunchRequest, recipe: Recipe) -> LaunchRequest:
    """The request of a form, where a parameter's field with several values (`3,5`, `16..128*2`) means what
    `--sweep` means on the command line. The values of a recipe's own sweep stay as they are."""
    own = recipe.sweep.names if recipe.sweep is not None else ()
    swept = {
        name: str(text)
        for name, text in request.set.items()
        if name in recipe.parameters and name not in own and names_several(recipe.parameters[name], text)
    }
    if not swept or request.parent_run_id is not None or request.ladder is not None:
        return request
    kept = {name: text for name, text in request.set.items() if name not in swept}
    return replace(request, set=kept, sweep={**request.sweep, **swept})


def members_of(request: LaunchRequest, recipe: Recipe, site: Site, settings: Settings) -> list[Member]:
    """The runs of a group; empty if the request is for one run."""
    if request.brake is not None and not 2 <= request.brake <= MAX_TASKS:
        raise UserError(f"--brake {request.brake}: must be 2 to {MAX_TASKS}")
    if request.own is not None and request.own.kind is OwnKind.BATCH and request.own.array_task is None:
        tasks = _array_tasks(request, recipe)
        if tasks:
            return tasks
    if request.ladder is not None:
        return _of_ladder(request.ladder, request, site, settings)
    if request.sweep:
        return _of_sweep(request, recipe, site, settings)
    of_sweeps = {
        "--random": request.num_random,
        "--at-once": request.at_once,
        "--brake": request.brake,
    }
    for name, said in of_sweeps.items():
        if said is not None and (recipe.sweep is None or name == "--random"):
            raise UserError(f"{name} {said}: there is no sweep", "--sweep lr=1e-4,1e-3 makes one")
    if recipe.sweep is None:
        return []
    values, rest = _values(recipe, recipe.sweep, request.set)
    name = recipe.sweep.parameter
    return [
        Member(name, value, _at(request, recipe, {**rest, name: value}, site, settings)) for value in values
    ]


def _array_tasks(request: LaunchRequest, recipe: Recipe) -> list[Member]:
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
            "--as-is submits it; coach shows and checks its tasks",
        )
    return [
        Member(ARRAY_TASK, task, replace(request, own=replace(request.own, array_task=task)))
        for task in ids.tasks
        if request.own is not None
    ]


def _of_sweep(request: LaunchRequest, recipe: Recipe, site: Site, settings: Settings) -> list[Member]:
    twice = next((name for name in request.sweep if name in request.set), None)
    if twice is not None:
        raise UserError(f"--set {twice} and --sweep {twice}: both set its value", "say one")
    known = {**recipe.parameters, **({WORLD_SIZE: RANKS} if recipe.devices == "multiple" else {})}
    return [
        Member(
            ", ".join(values),
            next(iter(values.values())) if len(values) == 1 else words_of(values),
            _at(request, recipe, {**request.set, **values}, site, settings),
        )
        for values in combinations(known, request.sweep, request.num_random)
    ]


def _of_ladder(ladder: Ladder, request: LaunchRequest, site: Site, settings: Settings) -> list[Member]:
    """The runs of a ladder's rungs on this site."""

    def place(run: LaunchRequest, ranks: int | None) -> tuple[LaunchRequest, Resources]:
        recipe = recipe_of(run)
        placed = run if ranks is None else _with_ranks(run, recipe, ranks, site, {})
        return placed, _resolved(placed, recipe, site).resources

    return [Member(RUNG, name, run) for name, run in runs_of_ladder(ladder, request, place, settings)]


def _resolved(run: LaunchRequest, recipe: Recipe, site: Site) -> Resolved:
    return resolve_resources(run, recipe, resolve_parameters(recipe, run.set)[0], site)


def at_once_of(request: LaunchRequest, recipe: Recipe, plans: Sequence[Plan]) -> int | None:
    """Number of runs of a group that are alive at the same time; None: its batch file decides."""
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
            "this machine runs them one after the other"
            if plans[0].backend == "local"
            else "the runs ask Slurm for different resources, so coach starts one after the other"
        )
        raise UserError(f"--at-once {said}: {because}", "leave it out")
    return 1


def words_of_pace(at_once: int | None) -> str:
    """The number of runs of a group that are alive at the same time, in words."""
    if at_once == 1:
        return "one after the other"
    return "as many at once as Slurm starts" if at_once is None else f"at most {at_once} at once"


def _values(
    recipe: Recipe, sweep: Sweep, said: Mapping[str, Any]
) -> tuple[tuple[Scalar, ...], Mapping[str, Any]]:
    """The values to sweep over, and the other parameters of the request."""
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
    """The request of one run of a group. A number of ranks becomes nodes and ranks per node."""
    rest = {name: value for name, value in said.items() if name != WORLD_SIZE}
    if WORLD_SIZE not in said:
        return replace(request, set=rest)
    locked = locked_fields(settings)
    fixed = {
        name: value
        for name in ("num_nodes", "nproc_per_node")
        if (value := getattr(request, name)) is not None and (name in locked or name not in request.defaulted)
    }
    num_ranks = int(said[WORLD_SIZE])
    return _with_ranks(
        replace(request, set=_divided(recipe, rest, num_ranks)), recipe, num_ranks, site, fixed
    )


def _divided(recipe: Recipe, said: Mapping[str, Any], num_ranks: int) -> Mapping[str, Any]:
    """The parameters of one rank: its share of the values that the ranks of this sweep divide among them."""
    name = recipe.sweep.divides if recipe.sweep is not None else None
    if name is None:
        return said
    whole = parameters.convert(recipe.parameters[name], said.get(name, recipe.parameters[name].default), name)
    if not isinstance(whole, int) or whole % num_ranks:
        raise UserError(
            f"{name} = {whole}: {num_ranks} ranks cannot share it evenly", f"a multiple of {num_ranks}"
        )
    return {**said, name: whole // num_ranks}


def _with_ranks(
    request: LaunchRequest, recipe: Recipe, num_ranks: int, site: Site, fixed: Mapping[str, int]
) -> LaunchRequest:
    """Place the ranks on the fewest nodes that hold them. `fixed`: the nodes and ranks per node that the
    request sets."""
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
            f"{problem.message if problem else 'not possible with the requested nodes, or ranks per node'}"
        ),
        problem.hint if problem else "leave out --nodes and --nproc-per-node",
    )
