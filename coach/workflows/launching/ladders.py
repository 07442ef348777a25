"""The ladders that a user has: coach's own, and those in the folder `ladders` beside the config's recipes.

A ladder's file is data, read strictly: an error names the file, the line and the key, and says what would be
right. The group that it launches is planned and submitted like a sweep (see sweep.py).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from coach.config import Settings
from coach.launch import parameters
from coach.launch.limits import check_limits
from coach.launch.recipe import LADDERS, RANKS, WORLD_SIZE, Recipe, data_dir, recipe_of, resolve_parameters
from coach.launch.sweep_values import MAX_RUNS
from coach.model.errors import UserError
from coach.model.launching.ladder import RUNG as RUNG
from coach.model.launching.ladder import Ladder as Ladder
from coach.model.launching.ladder import Rung
from coach.model.launching.launch import LaunchRequest, Resources, Scalar
from coach.model.toml_schema import (
    FIRST_VERSION,
    FLAG,
    NUMBER,
    STRING,
    TABLE,
    Key,
    Schema,
    TomlFile,
    fulfilling,
    list_of,
    typed,
    whole,
)
from coach.runs import expand_home
from coach.sources.named_file import read_named
from coach.workflows.launching.recipes import find_recipe, launch_name_of

_NAME = re.compile(r"[\w-]{1,32}", re.ASCII)
_FIGURE = fulfilling(
    list_of(NUMBER),
    lambda ends: len(ends) == 2 and 0 < ends[0] <= ends[1] <= sys.float_info.max,
    "the least and the most of the document's figure: [1.5, 2]",
)
_RANKS = whole(1)
REPEATS = "repeats"
"""Name in `set` that gives the number of runs of every rung."""
Place = Callable[[LaunchRequest, int | None], tuple[LaunchRequest, Resources]]
"""Places a run's ranks on the nodes of this site: the request, and its resources. Raises UserError."""
RUNG_KEYS: Schema = {
    "recipe": Key(typed("a recipe's name, or a path", str), "What the rung launches.", is_needed=True),
    "set": Key(typed("a table of parameters", dict), "Values of its parameters.", default={}),
    "ranks": Key(_RANKS, "Ranks in all; left out: as many as the recipe starts."),
    "min_ranks": Key(
        _RANKS, "Where there are too few devices for `ranks`, run on fewer, but at least on these."
    ),
    "repeats": Key(whole(1, 10), "How many times it runs; more make the ± smaller.", default=1),
    "shows": Key(STRING, "What it shows, in one sentence."),
    "samples_per_s": Key(_FIGURE, "The document's samples/s of all ranks: the least and the most."),
    "ratio": Key(_FIGURE, "The document's speed-up over the first rung: the least and the most."),
    "source": Key(STRING, "Where the document says so."),
    "wrong_because": Key(STRING, "Why the figure itself cannot be right."),
}
LADDER_KEYS: Schema = {
    "schema": Key(FIRST_VERSION, "The version of this format.", is_needed=True),
    "title": Key(STRING, "One line for lists.", is_needed=True),
    "on_gpus": Key(FLAG, "True if the document's figures are for GPUs.", default=False),
    "set": Key(TABLE, "Parameters for every rung that has them.", default={}),
    "rungs": Key(
        fulfilling(TABLE, bool, "a table for each rung, in their order: [rungs.NAME]"),
        "The rungs; the first is the one that the others are compared with.",
        is_needed=True,
    ),
}


def find_ladders(settings: Settings) -> tuple[tuple[Ladder, ...], tuple[UserError, ...]]:
    """All ladders by name, the user's own last, and an error for each that cannot be read."""
    ladders, problems = [], []
    for path in _paths(settings).values():
        try:
            ladders.append(read_ladder(path, settings))
        except UserError as problem:
            problems.append(problem)
    return tuple(ladders), tuple(problems)


def get_ladder(name: str, settings: Settings) -> Ladder:
    """The ladder with this name, or in this file. Raises UserError with the nearest names."""
    known = _paths(settings)
    if name in known:
        return read_ladder(known[name], settings)
    if "/" in name or name.endswith(".toml"):
        return read_ladder(expand_home(name).absolute(), settings)
    near = get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]}?" if near else f"ladders: {', '.join(known)}"
    raise UserError(f"unknown ladder {name!r}", hint)


def ladder_with(recipe: str, settings: Settings) -> Ladder:
    """The first ladder with a rung of this recipe (its name in a launch). Raises UserError without one."""
    for ladder in find_ladders(settings)[0]:
        if any(rung.recipe == recipe for rung in ladder.rungs):
            return ladder
    raise UserError(f"no ladder has {recipe} as a rung", "`coach ladder` lists them, and their mistakes")


def request_of_ladder(ladder: Ladder, request: LaunchRequest) -> LaunchRequest:
    """The request with the ladder's group in place of its recipe."""
    return replace(request, recipe=ladder.rungs[0].recipe, ladder=ladder)


def runs_of_ladder(
    ladder: Ladder, request: LaunchRequest, place: Place, settings: Settings
) -> list[tuple[str, LaunchRequest]]:
    """A rung's name and the request of each of its runs, as often as it repeats. A rung that this site cannot
    start is left out, and the ladder in each request says why. In the request's `set`, `world_size` is the
    most ranks of a rung, and `rung` names the rungs to launch. Raises UserError if no rung can be started."""
    said = dict(request.set)
    most, repeats = (
        int(parameters.convert(RANKS, said.pop(name), f"--set {name}")) if name in said else None
        for name in (WORLD_SIZE, REPEATS)
    )
    named = _named_rungs(ladder, said.pop(RUNG, None))
    rungs: list[Rung] = []
    found: list[tuple[str, LaunchRequest]] = []
    for rung in ladder.rungs:
        if rung.name not in named:
            if not rungs:  # the others are compared with the first one
                rungs.append(replace(rung, why_not="--set rung leaves it out"))
            continue
        try:
            run, why_fewer = _of_rung(rung, replace(request, set=said), most, place, settings)
        except UserError as error:
            why_fewer = error.message
        else:
            found += [(rung.name, run)] * (repeats or rung.repeats)
        rungs.append(replace(rung, why_not=why_fewer))
    if not found:
        raise UserError(f"{ladder.name}: {rungs[-1].why_not}")
    if len(found) > MAX_RUNS:
        raise UserError(f"{ladder.name}: {len(found)} runs: at most {MAX_RUNS} runs in one group")
    _refuse_unknown(said, [run for _, run in found])
    judged = replace(ladder, rungs=tuple(rungs))
    return [(name, replace(run, ladder=judged)) for name, run in found]


def _named_rungs(ladder: Ladder, said: Scalar | None) -> list[str]:
    """The names in the value of `rung`; all without one. Raises UserError for a name of no rung."""
    names = [rung.name for rung in ladder.rungs]
    named = names if said is None else str(said).split(",")
    for name in named:
        if name not in names:
            raise UserError(f"{ladder.name}: no such rung: {name}", f"its rungs: {', '.join(names)}")
    return named


def _refuse_unknown(said: Mapping[str, Scalar], runs: Sequence[LaunchRequest]) -> None:
    """Raise UserError for a parameter that none of the runs has."""
    for name in said:
        if not any(name in run.set for run in runs):
            hint = f"also {WORLD_SIZE} (the most ranks), {REPEATS}, and {RUNG} (names of rungs)"
            raise UserError(f"--set {name}: no rung of the ladder has this parameter", hint)


def _of_rung(
    rung: Rung, request: LaunchRequest, most: int | None, place: Place, settings: Settings
) -> tuple[LaunchRequest, str | None]:
    """The request of one rung, and why it has fewer ranks than its file says; None if it has all. Raises
    UserError if it cannot be started."""
    recipe = recipe_of(replace(request, recipe=rung.recipe))
    own = {name: value for name, value in request.set.items() if name in recipe.parameters}
    run = replace(request, recipe=rung.recipe, set={**rung.set, **own})
    ranks, why_fewer = rung.ranks, None
    while True:
        try:
            if ranks is not None and most is not None and ranks > most:
                raise UserError(f"at most {most} ranks were asked for")
            placed, resources = place(run, ranks)
            check_limits(resources, 0, settings.limits, settings.origins)
            return placed, why_fewer
        except UserError as error:
            words = error.message.rpartition(": ")[2]
            units = "GPUs" if "GPU" in words else "ranks"
            why_fewer = why_fewer or (f"asks {ranks} {units}, {words}" if ranks else error.message)
            if ranks is None or ranks // 2 < (rung.min_ranks or ranks):
                raise UserError(why_fewer, error.hint) from None
            ranks //= 2


def read_ladder(path: Path, settings: Settings) -> Ladder:
    """Read one file. Raises UserError with file, line and key of each mistake."""
    file = TomlFile(path, read_named(path, "`coach ladder` lists the ladders"))
    values = file.values("", file.table, LADDER_KEYS)
    rungs = tuple(
        _rung(file, name, table, values["set"], settings) for name, table in values["rungs"].items()
    )
    for name in values["set"]:
        if not any(name in rung.set for rung in rungs):
            raise file.error(f"set.{name}", f"set.{name}: no rung has this parameter")
    return Ladder(path.stem, values["title"], rungs, values["on_gpus"])


def _paths(settings: Settings) -> dict[str, Path]:
    """Name → file. A user's ladder with the name of one of coach's takes its place."""
    folders = [data_dir() / "recipes"]
    for place in settings.recipe_paths:
        folders += [place, place.parent]
    found = (path for folder in folders for path in sorted((folder / LADDERS).glob("*.toml")))
    return {path.stem: path for path in found}


def _rung(file: TomlFile, name: str, table: Any, common: Mapping[str, Any], settings: Settings) -> Rung:
    where = f"rungs.{name}"
    if not _NAME.fullmatch(name):
        raise file.error(where, f"{where}: expected a name of letters, digits, _ and -")
    values = file.values(where, file.check(where, TABLE, table), RUNG_KEYS)
    recipe = _recipe(file, where, values["recipe"], settings)
    chosen = {key: value for key, value in common.items() if key in recipe.parameters} | values["set"]
    try:
        resolve_parameters(recipe, chosen)
    except UserError as error:
        place = f"{where}.set" if values["set"] else "set"
        raise file.error(place, f"{place}: {error.message}", error.hint) from None
    if values["min_ranks"] is not None and values["min_ranks"] > (values["ranks"] or 0):
        raise file.error(f"{where}.min_ranks", f"{where}.min_ranks: expected at most its ranks")
    if values["ratio"] and values["samples_per_s"]:
        raise file.error(f"{where}.ratio", f"{where}: both ratio and samples_per_s: expected one")
    return Rung(**{**values, "name": name, "recipe": launch_name_of(recipe), "set": chosen})


def _recipe(file: TomlFile, where: str, name: str, settings: Settings) -> Recipe:
    """The recipe of a rung; a path may begin at the ladder's folder."""
    try:
        recipe = find_recipe(str(file.path.parent / name) if name.startswith(".") else name, settings)
    except UserError as error:
        raise file.error(f"{where}.recipe", f"{where}.recipe: {error.message}", error.hint) from None
    if recipe.sweep is not None:
        raise file.error(
            f"{where}.recipe", f"{where}.recipe = {name!r}: it is a sweep", "expected a recipe of one run"
        )
    return recipe
