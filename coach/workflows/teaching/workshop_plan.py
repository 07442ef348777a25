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
from coach.config.keys import LAUNCH_FIELDS, check_of, checked
from coach.launch.recipe import is_shipped, resolve_parameters
from coach.launch.spelling import parse_time
from coach.launch.table_reader import TableReader
from coach.model.errors import UserError
from coach.model.launching.launch import LaunchRequest
from coach.model.teaching.rehearsal import Item, WorkshopPlan
from coach.model.toml_text import parse_toml
from coach.sources.named_file import read_named
from coach.workflows.launching.recipes import find_recipe

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
"""

MAX_STEPS = 5
_MOST = 1_000_000
_KEYS = ("schema", "learners", "minutes", "max_steps", "launch", "recipes")
_PREFIX = "launch."
_NAME = re.compile(r"[\w-]+", re.ASCII)
_LAUNCH_KEYS = (
    *(key.removeprefix(_PREFIX) for key, field in LAUNCH_FIELDS.items() if field != "backend"),
    "sbatch",
)
_ITEM_KEYS = ("recipe", "minutes", "set", *_LAUNCH_KEYS)
_RENAMED = {"time": "time_limit_s"}


def read_workshop_plan(path: Path, backend: str, settings: Settings) -> WorkshopPlan:
    """Read the plan. Raises UserError with file, line and key of the first mistake."""
    text = read_named(path, "`coach workshop example` prints a plan to begin with")
    try:
        table = parse_toml(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not TOML: {error}") from None
    reader = TableReader(path, text)
    reader.check_keys("", table, _KEYS)
    if table.get("schema", 1) != 1:
        raise reader.error("schema", f"schema = {table['schema']!r}: expected 1")
    common = reader.get(table, "launch", dict, "a table", {})
    reader.check_keys("launch", common, _LAUNCH_KEYS)
    said = _launch(reader, "launch", common)
    recipes = reader.get(table, "recipes", dict, "a table for each recipe: [recipes.NAME]")
    if not recipes:
        raise reader.error("recipes", "no recipe: expected a table for each one: [recipes.NAME]")
    max_steps = int(_positive(reader, table, "max_steps", int, MAX_STEPS))
    return WorkshopPlan(
        int(_positive(reader, table, "learners", int)),
        _positive(reader, table, "minutes", (int, float)),
        max_steps,
        tuple(_item(reader, name, recipes, LaunchRequest("", backend, **said), settings) for name in recipes),
    )


def _item(
    reader: TableReader, name: str, recipes: Mapping[str, Any], common: LaunchRequest, settings: Settings
) -> Item:
    where = f"recipes.{name}"
    if not _NAME.fullmatch(name):
        raise reader.error(
            "recipes", f"{where}: expected a name", f'a path goes into its key recipe = "{name}"'
        )
    table = reader.get(recipes, where, dict, "a table")
    reader.check_keys(where, table, _ITEM_KEYS)
    wanted = reader.get(table, f"{where}.recipe", str, "a recipe's name, or a path", name)
    values = reader.get(table, f"{where}.set", dict, "a table of parameters", {})
    try:
        recipe = find_recipe(str(reader.path.parent / wanted) if wanted.startswith(".") else wanted, settings)
        swept = recipe.sweep.names if recipe.sweep is not None else ()
        resolve_parameters(recipe, {key: value for key, value in values.items() if key not in swept})
    except UserError as error:
        raise UserError(f"{reader.at(where)}: {where}: {error.message}", error.hint) from None
    own = _launch(reader, where, {key: value for key, value in table.items() if key in _LAUNCH_KEYS})
    own["sbatch"] = {**common.sbatch, **own.get("sbatch", {})}
    called = recipe.name if is_shipped(recipe) else str(recipe.path)
    minutes = _positive(reader, table, f"{where}.minutes", (int, float)) if "minutes" in table else None
    return Item(name, replace(common, recipe=called, set=values, **own), minutes)


def _launch(reader: TableReader, where: str, table: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a request from a table of launch options, each checked as the config checks it."""
    said: dict[str, Any] = {}
    for key, value in table.items():
        if key == "sbatch":
            named = reader.get(table, f"{where}.sbatch", dict, "a table of options of sbatch")
            said["sbatch"] = {
                option: _checked(reader, f"{where}.sbatch.{option}", f"launch.sbatch.{option}", each)
                for option, each in named.items()
            }
            continue
        field = LAUNCH_FIELDS[_PREFIX + key]
        kept = _checked(reader, f"{where}.{key}", _PREFIX + key, value)
        said[_RENAMED.get(field, field)] = parse_time(kept, key) if field == "time" else kept
    return said


def _checked(reader: TableReader, dotted: str, key: str, value: Any) -> Any:
    check = check_of(key)
    assert check is not None, key
    return checked(dotted, check, value, reader.at(dotted))


def _positive(
    reader: TableReader,
    table: Mapping[str, Any],
    dotted: str,
    kind: type | tuple[type, ...],
    default: Any = ...,
) -> float:
    wanted = f"a whole number, from 1 to {_MOST}" if kind is int else f"a number above 0, at most {_MOST}"
    value: float = reader.get(table, dotted, kind, wanted, default)
    if not 0 < value <= _MOST:
        raise reader.error(dotted, f"{dotted} = {value!r}: expected {wanted}")
    return value
