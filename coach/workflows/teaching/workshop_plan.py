"""The plan of a workshop, one TOML: read strictly, before anything is submitted.

Its [launch] table has the keys of config.toml's, so an organizer tests the same lines that will stand in the
learners' config.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from coach.config import Settings
from coach.config.keys import KEYS, LAUNCH_FIELDS, OPTION
from coach.launch.recipe import resolve_parameters
from coach.launch.spelling import parse_time
from coach.model.errors import UserError
from coach.model.launching.launch import LaunchRequest
from coach.model.teaching.rehearsal import Item, WorkshopPlan
from coach.model.toml_schema import (
    FIRST_VERSION,
    NUMBER,
    TABLE,
    Key,
    Kind,
    Schema,
    TomlFile,
    fulfilling,
    typed,
    whole,
)
from coach.sources.named_file import read_named
from coach.workflows.launching.ladders import get_ladder, request_of_ladder
from coach.workflows.launching.recipes import find_recipe, launch_name_of

EXAMPLE = """\
# The plan of a workshop day. From a learner's account: coach workshop check PLAN.toml
schema = 1
learners = 40
minutes = 180        # in which all learners do all recipes below
# max_steps = 5      # of each run of the rehearsal

# As in config.toml, here for all recipes of the day.
[launch]
# partition = "gpu"
# account = "teaching"
# reservation = "workshop"
# environment = "modules=pytorch/2.7"
# sbatch = { comment = "workshop" }

# A table for each recipe of the day, in its order. It may say all that [launch] may, and wins over it.
[recipes.baseline]
minutes = 3          # a learner's whole run; left out: worked out from the recipe, else its time limit

[recipes.ddp]
gpus = 2
time = "10:00"
set = { epochs = 2 }

[recipes.fast]

# Any name will do, where `recipe` says which one it is: a name, or a path.
# [recipes.evening]
# recipe = "ddp"
# nodes = 2

# A ladder is one step too: all its runs, one after the other.
# [recipes.figures]
# ladder = "demos"
"""

MAX_STEPS = 5
_MOST = 1_000_000
_PREFIX = "launch."
_NAME = re.compile(r"[\w-]+", re.ASCII)
_RENAMED = {"time": "time_limit_s"}
_COUNT = whole(1, _MOST)
_MINUTES = fulfilling(NUMBER, lambda minutes: 0 < minutes <= _MOST, f"a number above 0, at most {_MOST}")


def _sbatch_options(value: Any) -> dict[str, str]:
    return {name: OPTION(each) for name, each in TABLE(value).items()}


_LAUNCH: Schema = {
    **{
        key.removeprefix(_PREFIX): Key(KEYS[key].kind, KEYS[key].says)
        for key, field in LAUNCH_FIELDS.items()
        if field != "backend"
    },
    "sbatch": Key(Kind("a table of options of sbatch", _sbatch_options), "More options of sbatch."),
}
_ITEM: Schema = {
    "recipe": Key(typed("a recipe's name, or a path", str), "The recipe; without it the table's name."),
    "ladder": Key(typed("a ladder's name, or a path", str), "In place of `recipe`: the ladder."),
    "minutes": Key(_MINUTES, "A learner's whole run."),
    "set": Key(typed("a table of parameters", dict), "Values of parameters.", default={}),
    **_LAUNCH,
}
_PLAN: Schema = {
    "schema": Key(FIRST_VERSION, "The version of this format."),
    "learners": Key(_COUNT, "The number of learners.", is_needed=True),
    "minutes": Key(_MINUTES, "The time in which all learners do all recipes.", is_needed=True),
    "max_steps": Key(_COUNT, "Steps of each run of the rehearsal.", default=MAX_STEPS),
    "launch": Key(TABLE, "Options of launches, for all recipes.", default={}),
    "recipes": Key(
        fulfilling(TABLE, bool, "a table for each recipe: [recipes.NAME]"),
        "The recipes of the day, in its order.",
        is_needed=True,
    ),
}


def read_workshop_plan(path: Path, backend: str, settings: Settings) -> WorkshopPlan:
    """Read the plan. Raises UserError with file, line and key of each mistake."""
    file = TomlFile(path, read_named(path, "`coach workshop example` prints a plan to begin with"))
    values = file.values("", file.table, _PLAN)
    launch = _request_fields(file.values("launch", values["launch"], _LAUNCH))
    common = LaunchRequest("", backend, **launch)
    items = tuple(_item(file, name, table, common, settings) for name, table in values["recipes"].items())
    return WorkshopPlan(values["learners"], values["minutes"], values["max_steps"], items)


def _item(file: TomlFile, name: str, table: Any, common: LaunchRequest, settings: Settings) -> Item:
    where = f"recipes.{name}"
    if not _NAME.fullmatch(name):
        raise file.error(
            "recipes", f"{where}: expected a name", f'a path goes into its key recipe = "{name}"'
        )
    values = file.values(where, file.check(where, TABLE, table), _ITEM)
    ladder, parameters = values["ladder"], values["set"]
    if ladder and values["recipe"]:
        raise file.error(f"{where}.ladder", f"{where}: both recipe and ladder: expected one")
    own = _request_fields({key: values[key] for key in _LAUNCH})
    own["sbatch"] = {**common.sbatch, **own.get("sbatch", {})}
    request = replace(common, set=parameters, **own)
    wanted = ladder or values["recipe"] or name
    place = str(file.path.parent / wanted) if wanted.startswith(".") else wanted
    try:
        if ladder:
            request = request_of_ladder(get_ladder(place, settings), request)
        else:
            recipe = find_recipe(place, settings)
            swept = recipe.sweep.names if recipe.sweep is not None else ()
            resolve_parameters(recipe, {key: value for key, value in parameters.items() if key not in swept})
            request = replace(request, recipe=launch_name_of(recipe))
    except UserError as error:
        raise file.error(where, f"{where}: {error.message}", error.hint) from None
    return Item(name, request, values["minutes"])


def _request_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """Field of a request → the value of its key, for keys that stand in the file."""
    found = {}
    for key, value in values.items():
        if value is not None:
            field = LAUNCH_FIELDS.get(_PREFIX + key, key)
            found[_RENAMED.get(field, field)] = parse_time(value, key) if field == "time" else value
    return found
