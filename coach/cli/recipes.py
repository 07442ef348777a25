"""`coach recipes`: lists what can be launched, shows a recipe with its lesson and its trainer's changes, or
copies one to work on."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import asdict
from typing import Any

from coach.cli import report
from coach.cli.text import add_format, fields_of, print_json, print_line, print_table, say
from coach.config import Settings
from coach.launch.parameters import show
from coach.launch.recipe import Recipe, Sweep, is_shipped
from coach.launch.spelling import format_time
from coach.model.errors import UserError
from coach.runs import expand_home
from coach.workflows.launching.recipes import (
    Page,
    by_hand,
    eject,
    facts,
    find_recipe,
    key_of,
    known_recipes,
    page_of,
)

_EJECT = "eject"


def configure(parser: argparse.ArgumentParser) -> None:
    """A name shows one recipe; `eject NAME DIR` copies one."""
    parser.usage = (
        "coach recipes [--format {text,json}] [--diff] [RECIPE]\n       coach recipes eject RECIPE DIR"
    )
    parser.add_argument("recipe", nargs="?", help="show this recipe: its lesson, its parameters, its changes")
    parser.add_argument("more", nargs="*", help=argparse.SUPPRESS)
    parser.add_argument(
        "--diff", action="store_true", help="print only how its trainer differs from the step before"
    )
    add_format(parser)


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Exit status 2 if a recipe cannot be read; the others are still listed."""
    if args.recipe == _EJECT:
        return _eject(args.more, settings)
    if args.more:
        raise UserError(f"coach recipes {args.recipe}: unexpected {args.more[0]!r}", "one recipe at a time")
    recipes, problems = known_recipes(settings)
    if args.recipe is not None:
        page = page_of(find_recipe(args.recipe, settings), recipes, settings)
        if args.diff:
            _print_diff(page)
        elif args.format == "json":
            print_json("recipes", [_page_as_json(page)])
        else:
            _print_one(page)
        return 0
    if args.format == "json":
        print_json("recipes", [_fields(recipe, key_of(recipe, recipes, settings)) for recipe in recipes])
    else:
        print_table(
            ("RECIPE", "KEY", "DEVICES", "TIME", "TITLE"),
            [
                (
                    recipe.name,
                    key_of(recipe, recipes, settings) or "",
                    recipe.kind,
                    time_words(recipe),
                    recipe.title if is_shipped(recipe) else f"{recipe.title} ({recipe.path})",
                )
                for recipe in recipes
            ],
        )
    for problem in problems:
        report(problem)
    return 2 if problems else 0


def _eject(words: list[str], settings: Settings) -> int:
    if len(words) != 2:
        raise UserError(
            "coach recipes eject: expected a recipe and a new folder", "coach recipes eject ddp my-ddp"
        )
    recipe, folder = find_recipe(words[0], settings), expand_home(words[1]).absolute()
    for path in eject(recipe, folder):
        print_line(f"{path}{'/' if path.is_dir() else ''}")
    shown = shlex.quote(str(folder))
    say(f"by hand: cd {shown} && {by_hand(recipe, recipe.trainer)}")
    say(f"with coach: coach launch {shown}")
    return 0


def _print_one(page: Page) -> None:
    recipe = page.recipe
    print_line(f"{recipe.name}: {recipe.title}")
    print_line(recipe.summary)
    print_line(
        f"trainer {recipe.trainer}, {_devices(recipe)},"
        f" time limit {time_words(recipe)}{f', key {page.key}' if page.key else ''}"
        f"{f', torch {recipe.torch}' if recipe.torch else ''}"
    )
    for word, text in facts(page):
        print_line(f"{word}: {text}")
    print()
    print_table(
        ("PARAMETER", "DEFAULT", "UNIT", "LIMITS", "USUAL", "WHAT IT IS"),
        [
            (
                parameter.name,
                show(parameter.default),
                parameter.unit,
                parameter.limits() or parameter.type,
                parameter.usual_words,
                parameter.help,
            )
            for parameter in recipe.parameters.values()
        ],
    )
    if page.lesson:
        print()
        for row in page.lesson.splitlines():
            print_line(row)
    if page.diff:
        print()
        print_line(f"What the trainer changes: coach recipes {recipe.name} --diff (against {page.previous})")


def _print_diff(page: Page) -> None:
    if page.previous is None:
        raise UserError(f"recipe {page.recipe.name}: there is no step before it")
    if not page.diff:
        say(f"the trainer is that of {page.previous}")
    for row in page.diff:
        print_line(row)


def _page_as_json(page: Page) -> dict[str, Any]:
    return {
        **_fields(page.recipe, page.key),
        "previous": page.previous,
        "lesson": page.lesson,
        "diff": list(page.diff),
    }


_AS_WRITTEN = (
    *("name", "title", "summary", "trainer", "devices", "time_limit_s", "torch", "requires", "gpu_hours"),
    *("watch", "next", "expects", "uneven_by_design"),
)


def _fields(recipe: Recipe, key: str | None) -> dict[str, Any]:
    sweep = recipe.sweep
    return {
        **fields_of(recipe, *_AS_WRITTEN),
        **{name: getattr(recipe, name) or None for name in ("teaches", "expect", "duration")},
        "key": key,
        "remedies": {name: dict(changes) for name, changes in recipe.remedies.items()},
        "sweep": _sweep_as_json(sweep) if sweep else None,
        "is_own": not is_shipped(recipe),
        "path": str(recipe.path),
        "parameters": [
            {**asdict(parameter), "unit": parameter.unit or None} for parameter in recipe.parameters.values()
        ],
    }


def _sweep_as_json(sweep: Sweep) -> dict[str, Any]:
    fields = asdict(sweep)
    if not sweep.divides:
        del fields["divides"]
    return fields


def _devices(recipe: Recipe) -> str:
    if recipe.own is not None:
        return f"your {recipe.kind}"
    return f"{recipe.devices} device{'s' if recipe.devices == 'multiple' else ''}"


def time_words(recipe: Recipe) -> str:
    """The recipe's time limit; a dash if the site decides."""
    return format_time(recipe.time_limit_s) if recipe.time_limit_s is not None else "–"
