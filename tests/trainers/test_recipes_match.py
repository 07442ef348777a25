"""A recipe and its trainer agree: `coach recipes` shows the behaviour of the trainer started by hand.

The tests compare the trainer's own parser with coach's reading of the trainer's text. They do not need torch,
because only the trainer's `parse_arguments` runs.
"""

from __future__ import annotations

import argparse
import ast
import runpy
import tomllib
from pathlib import Path
from typing import Any

import pytest

from coach.launch.recipe import Recipe, read_recipe
from coach.launch.trainer_arguments import PASSED_BY_COACH, TrainerArguments
from tests.installed import REPOSITORY

TRAINERS = REPOSITORY / "trainers"
RECIPES = sorted((REPOSITORY / "recipes").glob("*.toml"))
DRILLS = sorted((REPOSITORY / "recipes" / "drills").glob("*.toml"))
ARGUMENTS = runpy.run_path(str(TRAINERS / "common" / "arguments.py"))
TYPES = {int: "int", float: "float", None: "str", ARGUMENTS["boolean"]: "bool"}
MAX_LINES = 40
MAX_WIDTH = 110
PROSE = ("title", "summary", "teaches", "expect", "duration", "mend", "help")


class Asked(ARGUMENTS["TrainerParser"]):  # type: ignore[misc] # a class that was loaded from a file
    """The parser of common/arguments.py, which returns itself instead of the parsed values."""

    def parse_args(self, *_: Any) -> Asked:  # type: ignore[override]
        return self


def options_of(trainer: Path) -> dict[str, argparse.Action]:
    """Option → its declaration in the trainer's own parser."""
    tree = ast.parse(trainer.read_text(encoding="utf-8"))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    own = [function for function in functions if function.name == "parse_arguments"]
    space: dict[str, Any] = {
        "argparse": argparse,
        "TrainerParser": Asked,
        "__doc__": ast.get_docstring(tree),
    }
    exec(compile(ast.Module(own, []), str(trainer), "exec"), space)
    actions: list[argparse.Action] = space["parse_arguments"]()._actions
    return {action.dest: action for action in actions if action.dest != "help"}


@pytest.fixture(params=RECIPES, ids=[path.stem for path in RECIPES])
def recipe(request: pytest.FixtureRequest) -> Recipe:
    return read_recipe(request.param)


def test_a_recipe_is_found_by_its_name(recipe: Recipe) -> None:
    assert recipe.name == recipe.path.stem


def test_a_recipe_and_its_trainer_have_the_same_parameters(recipe: Recipe) -> None:
    options = options_of(TRAINERS / recipe.trainer)
    assert set(options) >= PASSED_BY_COACH
    assert set(recipe.parameters) == set(options) - PASSED_BY_COACH
    assert {"max_steps", "seed"} <= set(recipe.parameters)


def test_a_recipe_and_its_trainer_agree_on_types_choices_defaults_and_help(recipe: Recipe) -> None:
    options = options_of(TRAINERS / recipe.trainer)
    table = tomllib.loads(recipe.path.read_text(encoding="utf-8"))
    own = table.get("parameters", {})
    for name, parameter in recipe.parameters.items():
        option = options[name]
        assert TYPES[option.type] == parameter.type, name  # type: ignore[index]
        assert tuple(option.choices or ()) == parameter.choices, name
        # Another recipe of the same trainer: a sweep, with runs as short as a table needs, or one with
        # restarts, and checkpoints for them.
        is_another = table["parameters_of"] != recipe.trainer
        assert option.help == parameter.help or is_another or "help" in own[name], name
        assert option.default == parameter.default or is_another, name


@pytest.mark.parametrize("path", [*RECIPES, *DRILLS], ids=lambda path: path.stem)
def test_a_recipe_repeats_nothing_of_its_trainer(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MAX_LINES
    prose = [line for line in text.splitlines() if line.startswith(PROSE) or " = " not in line]
    assert [line for line in prose if len(line) > MAX_WIDTH] == []
    table = tomllib.loads(text)
    of = table["parameters_of"]
    said = TrainerArguments(TRAINERS).of(TRAINERS / (of if of.endswith(".py") else f"{of}.py"))
    for name, own in table.get("parameters", {}).items():
        repeated = [key for key in own if key in said[name] and own[key] == said[name][key]]
        assert not repeated, f"parameters.{name}: {of} says the same of {', '.join(repeated)}"


def test_the_defaults_of_a_recipe_are_in_their_usual_range(recipe: Recipe) -> None:
    for name, parameter in recipe.parameters.items():
        if parameter.usual is not None and not isinstance(parameter.default, str):
            assert parameter.usual[0] <= parameter.default <= parameter.usual[1], name


def test_the_choices_that_trainers_share_are_those_of_the_code() -> None:
    def keys_of_the_first_table(name: str) -> list[Any]:
        tree = ast.parse((TRAINERS / "common" / name).read_text(encoding="utf-8"))
        table = next(node for node in ast.walk(tree) if isinstance(node, ast.Dict))
        return [ast.literal_eval(key) for key in table.keys if key is not None]

    shared = ARGUMENTS["SHARED"]
    assert list(shared["model"]["choices"]) == keys_of_the_first_table("models.py")
    assert list(shared["lr_scaling"]["choices"]) == keys_of_the_first_table("optimization.py")


def test_every_shared_option_and_change_is_taken_by_two_trainers_or_more() -> None:
    """An option of one trainer alone is declared in that trainer."""
    texts = [path.read_text(encoding="utf-8") for path in TRAINERS.glob("*.py")]
    for name in {*ARGUMENTS["SHARED"], *ARGUMENTS["CHANGES"]} - {*ARGUMENTS["USUAL"]}:
        assert sum(f'"{name}"' in text for text in texts) > 1, name


def test_every_trainer_has_a_recipe() -> None:
    """Of its own name, except where that would hide a module of Python's: profile."""
    found = {path.name for path in TRAINERS.glob("*.py")} - {"__init__.py"}
    trainers = {name for name in found if not name.startswith("drill_")}
    launched = {(recipe.trainer, recipe.name) for recipe in map(read_recipe, RECIPES)}
    expected = {(trainer, trainer.removesuffix(".py")) for trainer in trainers - {"profiled.py"}}
    assert launched >= expected | {("profiled.py", "profile")}


def test_a_trainer_that_takes_data_builds_its_model_for_their_classes() -> None:
    for path in TRAINERS.glob("*.py"):
        text = path.read_text(encoding="utf-8")
        if "parser.add_usual(" in text and "build_model(args" in text:
            assert "build_model(args.model, args.width, dataset)" in text, path.name
