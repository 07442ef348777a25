"""A recipe and its trainer say the same: what `coach recipes` shows is what a trainer started by hand would do. Read, not run."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from coach.launch.recipe import Recipe, read_recipe
from tests.installed import REPOSITORY

RECIPES = sorted((REPOSITORY / "recipes").glob("*.toml"))
TYPES = {"int": "int", "float": "float", "boolean": "bool"}
PLACES = {"run_dir", "data_dir", "cache_dir", "gpus_per_node", "resume_from"}
"""Options that every launch passes on, whatever the recipe."""


def options_of(trainer: Path) -> dict[str, dict[str, Any]]:
    """Option → its keywords, as the trainer's argparse calls say them."""
    shared = _shared_choices()
    calls = [node for node in ast.walk(ast.parse(trainer.read_text())) if isinstance(node, ast.Call)]
    return {
        ast.literal_eval(call.args[0]).removeprefix("--"): {
            word.arg: _value(word.value, shared) for word in call.keywords if word.arg is not None
        }
        for call in calls
        if isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument"
    }


def _value(node: ast.expr, shared: Mapping[str, list[str]]) -> Any:
    """What a keyword says; what only the running trainer knows, as its source says it."""
    try:
        return ast.literal_eval(node)
    except ValueError:
        return shared.get(ast.unparse(node), ast.unparse(node))


def _shared_choices() -> dict[str, list[str]]:
    """The lists of trainers/common as trainers name them: a list by its name, the keys of a table as `list(NAME)`."""
    found: dict[str, list[str]] = {}
    for path in (REPOSITORY / "trainers" / "common").glob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
                continue
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            items = node.value.keys if isinstance(node.value, ast.Dict) else getattr(node.value, "elts", [])
            words = [item.value for item in items if isinstance(item, ast.Constant)]
            name = ast.unparse(target)
            found[f"list({name})" if isinstance(node.value, ast.Dict) else name] = words
    return found


@pytest.fixture(params=RECIPES, ids=[path.stem for path in RECIPES])
def recipe(request: pytest.FixtureRequest) -> Recipe:
    return read_recipe(request.param)


def test_a_recipe_is_found_by_its_name(recipe: Recipe) -> None:
    assert recipe.name == recipe.path.stem


def test_a_recipe_and_its_trainer_have_the_same_parameters(recipe: Recipe) -> None:
    options = options_of(REPOSITORY / "trainers" / recipe.trainer)
    assert set(options) >= PLACES
    assert set(recipe.parameters) == set(options) - PLACES
    assert {"max_steps", "seed"} <= set(recipe.parameters)


def test_a_recipe_and_its_trainer_agree_on_types_choices_and_defaults(recipe: Recipe) -> None:
    options = options_of(REPOSITORY / "trainers" / recipe.trainer)
    for name, parameter in recipe.parameters.items():
        option = options[name]
        assert TYPES.get(option.get("type", ""), "str") == parameter.type, name
        assert tuple(option.get("choices", ())) == parameter.choices, name
        # Another recipe of the same trainer: a sweep, with runs as short as a table needs, or one with restarts, and checkpoints for them.
        is_another = recipe.sweep is not None or recipe.max_restarts is not None
        assert option["default"] == parameter.default or is_another, name


def test_what_a_recipe_does_by_default_is_usual(recipe: Recipe) -> None:
    for name, parameter in recipe.parameters.items():
        if parameter.usual is not None and not isinstance(parameter.default, str):
            assert parameter.usual[0] <= parameter.default <= parameter.usual[1], name


def test_every_trainer_has_a_recipe() -> None:
    """Of its own name, except where that would hide a module of Python's: profile."""
    found = {path.name for path in (REPOSITORY / "trainers").glob("*.py")} - {"__init__.py"}
    trainers = {name for name in found if not name.startswith("drill_")}
    launched = {(recipe.trainer, recipe.name) for recipe in map(read_recipe, RECIPES)}
    expected = {(trainer, trainer.removesuffix(".py")) for trainer in trainers - {"profiled.py"}}
    assert launched >= expected | {("profiled.py", "profile")}
