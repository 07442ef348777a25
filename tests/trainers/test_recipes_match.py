"""A recipe and its trainer say the same: what `coach recipes` shows is what a trainer started by hand would do. Read, not run."""

from __future__ import annotations

import ast
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
    calls = [node for node in ast.walk(ast.parse(trainer.read_text())) if isinstance(node, ast.Call)]
    return {
        ast.literal_eval(call.args[0]).removeprefix("--"): {
            word.arg: word.value.id if isinstance(word.value, ast.Name) else ast.literal_eval(word.value)
            for word in call.keywords
            if word.arg is not None
        }
        for call in calls
        if isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument"
    }


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
        assert option["default"] == parameter.default, name


def test_what_a_recipe_does_by_default_is_usual(recipe: Recipe) -> None:
    for name, parameter in recipe.parameters.items():
        if parameter.usual is not None and not isinstance(parameter.default, str):
            assert parameter.usual[0] <= parameter.default <= parameter.usual[1], name


def test_every_trainer_has_a_recipe_of_its_own_name() -> None:
    trainers = {path.stem for path in (REPOSITORY / "trainers").glob("*.py")} - {"__init__"}
    assert trainers
    assert trainers <= {path.stem for path in RECIPES}
