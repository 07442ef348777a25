"""The ladders that a user has: coach's own, and those in the folder `ladders` beside the config's recipes.

A ladder's file is data, read strictly: an error names the file, the line and the key, and says what would be
right. The group that it launches is planned and submitted like a sweep (see sweep.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from coach.config import Settings
from coach.launch.recipe import LADDERS, Recipe, data_dir, resolve_parameters
from coach.model.errors import UserError
from coach.model.launching.ladder import Ladder, Rung
from coach.model.launching.launch import LaunchRequest
from coach.model.toml_schema import (
    FIRST_VERSION,
    FLAG,
    STRING,
    TABLE,
    Key,
    Schema,
    TomlFile,
    WrongValueError,
    fulfilling,
    typed,
    whole,
)
from coach.model.toml_schema import Kind as TomlKind
from coach.runs import expand_home
from coach.sources.named_file import read_named
from coach.workflows.launching.recipes import find_recipe, launch_name_of

_NAME = re.compile(r"[\w-]{1,32}", re.ASCII)
_MOST_RANKS = 4096
_MOST_REPEATS = 10


def _range(value: Any) -> tuple[float, float]:
    is_list = isinstance(value, list) and len(value) == 2
    if (
        not is_list
        or not all(isinstance(each, int | float) for each in value)
        or not 0 < value[0] <= value[1]
    ):
        raise WrongValueError("expected the least and the most of the document's figure: [1.5, 2]")
    return float(value[0]), float(value[1])


_FIGURE = TomlKind("the least and the most of the document's figure: [1.5, 2]", _range)
_RANKS = whole(1, _MOST_RANKS)
RUNG_KEYS: Schema = {
    "recipe": Key(typed("a recipe's name, or a path", str), "What the rung launches.", is_needed=True),
    "set": Key(typed("a table of parameters", dict), "Values of its parameters.", default={}),
    "ranks": Key(_RANKS, "Ranks in all; left out: as many as the recipe starts."),
    "min_ranks": Key(
        _RANKS, "Where there are too few devices for `ranks`, run on fewer, but at least on these."
    ),
    "repeats": Key(whole(1, _MOST_REPEATS), "How many times it runs; more make the ± smaller.", default=1),
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
    """The first ladder with a rung of this recipe (its name in a launch), else the first one."""
    ladders, problems = find_ladders(settings)
    if not ladders:
        raise problems[0] if problems else UserError("there is no ladder")
    return next((each for each in ladders if recipe in (rung.recipe for rung in each.rungs)), ladders[0])


def request_of_ladder(ladder: Ladder, request: LaunchRequest) -> LaunchRequest:
    """The request with the ladder's group in place of its recipe."""
    return replace(request, recipe=ladder.rungs[0].recipe, ladder=ladder)


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
        raise file.error(f"{where}.set", f"{where}.set: {error.message}", error.hint) from None
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
