"""`coach recipes`: what can be launched, and the parameters of one recipe."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from coach.cli.text import print_json, print_line, print_table, printable
from coach.config import Settings
from coach.launch.parameters import Parameter, show
from coach.launch.recipe import Recipe, find_recipes, get_recipe
from coach.launch.spelling import format_time


def configure(parser: argparse.ArgumentParser) -> None:
    """A name shows one recipe with its parameters."""
    parser.add_argument("recipe", nargs="?", help="show the parameters of this one")
    parser.add_argument("--format", choices=("text", "json"), default="text")


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Exit status 2 when a recipe cannot be read; the others are listed all the same."""
    if args.recipe is not None:
        recipe = get_recipe(args.recipe)
        if args.format == "json":
            print_json("recipes", [_as_json(recipe)])
        else:
            _print_one(recipe)
        return 0
    recipes, problems = find_recipes()
    if args.format == "json":
        print_json("recipes", [_as_json(recipe) for recipe in recipes])
    else:
        print_table(
            ("RECIPE", "KEY", "DEVICES", "TIME", "TITLE"),
            [
                (recipe.name, recipe.key, recipe.devices, format_time(recipe.time_limit_s), recipe.title)
                for recipe in recipes
            ],
        )
    for problem in problems:
        print(f"coach: {printable(problem.message)}", file=sys.stderr)
        if problem.hint:
            print(f"  {printable(problem.hint)}", file=sys.stderr)
    return 2 if problems else 0


def _print_one(recipe: Recipe) -> None:
    print_line(printable(f"{recipe.name}: {recipe.title}"))
    print_line(printable(recipe.summary))
    print_line(
        printable(
            f"trainer {recipe.trainer}, {recipe.devices} device{'s' if recipe.devices == 'multiple' else ''},"
            f" time limit {format_time(recipe.time_limit_s)}{f', key {recipe.key}' if recipe.key else ''}"
            f"{f', torch {recipe.torch}' if recipe.torch else ''}"
        )
    )
    print_line("")
    print_table(
        ("PARAMETER", "DEFAULT", "LIMITS", "USUAL", "WHAT IT IS"),
        [
            (
                parameter.name,
                show(parameter.default),
                parameter.limits() or parameter.type,
                _usual(parameter),
                parameter.help,
            )
            for parameter in recipe.parameters.values()
        ],
    )


def _usual(parameter: Parameter) -> str:
    return f"{parameter.usual[0]:g} to {parameter.usual[1]:g}" if parameter.usual else ""


def _as_json(recipe: Recipe) -> dict[str, Any]:
    return {
        "name": recipe.name,
        "title": recipe.title,
        "summary": recipe.summary,
        "trainer": recipe.trainer,
        "devices": recipe.devices,
        "key": recipe.key,
        "time_limit_s": recipe.time_limit_s,
        "torch": recipe.torch,
        "path": str(recipe.path),
        "parameters": [_parameter_as_json(parameter) for parameter in recipe.parameters.values()],
    }


def _parameter_as_json(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "type": parameter.type,
        "default": parameter.default,
        "above": parameter.above,
        "min": parameter.min,
        "max": parameter.max,
        "choices": list(parameter.choices),
        "usual": list(parameter.usual) if parameter.usual else None,
        "help": parameter.help,
    }
