"""Finds recipes by name, by file and by folder: coach's own recipes, and those of a user.

recipe_file.py reads a single file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from coach import installed
from coach.launch import parameters
from coach.launch.own_program import own_recipe, undecided_places
from coach.launch.project_file import get_training, is_reference
from coach.launch.python_source import packages_of
from coach.launch.recipe_file import RANKS as RANKS
from coach.launch.recipe_file import WORLD_SIZE as WORLD_SIZE
from coach.launch.recipe_file import Recipe as Recipe
from coach.launch.recipe_file import Sweep as Sweep
from coach.launch.recipe_file import read_recipe_file
from coach.launch.trainer_arguments import TrainerArguments
from coach.model.errors import UserError
from coach.model.launching.launch import LaunchRequest, Scalar
from coach.runs import expand_home
from coach.sources.named_file import read_named

_NO_RECIPES = frozenset({"pyproject.toml"})
_DRILLS = "drills"
"""The folder beside the recipes with the recipes that have a planted fault."""
LADDERS = "ladders"
"""The folder beside the recipes with the ladders, which are no recipes."""


_PACKED = installed.package() / "data"
_DATA_DIR = _PACKED if _PACKED.is_dir() else installed.package().parent


def data_dir() -> Path:
    """The folder of trainers/ and recipes/: coach/data in an installed wheel, else the top of the
    repository."""
    return _DATA_DIR


def find_recipes(
    data: Path | None = None, more: Iterable[Path] = ()
) -> tuple[tuple[Recipe, ...], tuple[UserError, ...]]:
    """All recipes by name, and the errors of those that cannot be read. `more` are a user's files and
    folders."""
    problems: list[UserError] = []
    data = data or data_dir()
    paths = _paths(data)
    for place in more:
        try:
            paths += _user_paths(place)
        except UserError as problem:
            problems.append(problem)
    recipes, unreadable = _read_all(paths, data)
    return tuple(recipes), (*problems, *unreadable)


@cache
def shipped_recipes() -> tuple[Recipe, ...]:
    """coach's own recipes, read once: they are part of the program."""
    return find_recipes()[0]


def find_drills(data: Path | None = None) -> tuple[tuple[Recipe, ...], tuple[UserError, ...]]:
    """All drills by name, and the errors of those that cannot be read."""
    data = data or data_dir()
    drills, problems = _read_all(_drill_paths(data), data)
    return tuple(drills), tuple(problems)


def get_recipe(name_or_path: str, data: Path | None = None) -> Recipe:
    """The recipe or drill with this name, or the one in this file or folder. Raises UserError with the
    nearest names."""
    data = data or data_dir()
    by_name = {path.stem: path for path in _paths(data)}
    known = by_name | {path.stem: path for path in _drill_paths(data)}
    if name_or_path in known:
        return read_recipe(known[name_or_path], data)
    path = expand_home(name_or_path).absolute()
    if path.is_dir() and name_or_path:
        return read_recipe(_recipe_in(path), data)
    if is_reference(name_or_path):
        return get_training(name_or_path).recipe()
    if "/" in name_or_path or name_or_path.endswith(".toml"):
        return read_recipe(path, data)
    # A drill is a near name only where no recipe is: its lesson comes after its answer.
    near = get_close_matches(name_or_path, by_name, 3, 0.6)
    near = near or [f"`coach drill {drill}`" for drill in get_close_matches(name_or_path, known, 3, 0.6)]
    hint = f"did you mean {' or '.join(near)}?" if near else f"recipes: {', '.join(by_name) or 'none'}"
    raise UserError(f"unknown recipe {name_or_path!r}", hint)


def recipe_of(request: LaunchRequest) -> Recipe:
    """The recipe that a request launches: the one with its name, or its own program as a Recipe. Raises
    UserError."""
    return get_recipe(request.recipe) if request.own is None else own_recipe(request.own, request.set)


def recipe_of_run(recipe: Recipe, run: LaunchRequest) -> Recipe:
    """The recipe of one run of a group: that of the group, but for a ladder, where each rung has its own."""
    return recipe if run.ladder is None else recipe_of(run)


def resolve_parameters(
    recipe: Recipe, said: Mapping[str, Any]
) -> tuple[Mapping[str, Scalar], tuple[str, ...]]:
    """Every parameter's value, converted and within its limits, and one warning for each unusual one."""
    if recipe.own is None:
        return parameters.resolve(recipe.name, recipe.parameters, said)
    for name in said:
        if name not in recipe.parameters and (places := undecided_places(recipe.own, name, said)):
            raise UserError(
                f"--set {name}: {name} is not guessed: {' and '.join(places)} could be it",
                f"name one of them, as in --set {_key_in(places[0])}={parameters.show(said[name])}; "
                f"or write `parameters = {{ {name} = … }}` in coach.toml",
            )
    return parameters.resolve(None, recipe.parameters, said)


def _key_in(place: str) -> str:
    """`optim.lr` of `conf.yaml: optim.lr`."""
    return place.rpartition(": ")[2].lstrip("-")


def read_recipe(path: Path, data: Path | None = None, arguments: TrainerArguments | None = None) -> Recipe:
    """Read one recipe. Its trainer lies beside it, or in the trainers/ of `data`."""
    return read_recipe_file(path, (data or data_dir()) / "trainers", arguments)


def is_shipped(recipe: Recipe) -> bool:
    """True for one of coach's own recipes, which can be found again by name alone."""
    recipes = data_dir() / "recipes"
    return recipe.path.parent in (recipes, recipes / _DRILLS)


def packages_of_trainer(recipe: Recipe) -> tuple[str, ...]:
    """The packages that the recipe's trainer always imports, also through trainers/common."""
    if recipe.own_trainers:
        return packages_of(recipe.own_trainers / recipe.trainer, [recipe.own_trainers])
    return _packages_of_shipped(recipe.trainer)


@cache
def _packages_of_shipped(trainer: str) -> tuple[str, ...]:
    folder = data_dir() / "trainers"
    return packages_of(folder / trainer, [folder])


def lesson_of(recipe: Recipe) -> str:
    """The lesson beside the recipe; empty if it has none."""
    try:
        return read_named(recipe.path.with_suffix(".md"), errors="replace")
    except UserError:
        return ""


def _paths(data: Path) -> list[Path]:
    return sorted((data / "recipes").glob("*.toml"))


def drill_names() -> frozenset[str]:
    """Names of coach's own drills; only coach has drills."""
    return frozenset(path.stem for path in _drill_paths(data_dir()))


def _drill_paths(data: Path) -> list[Path]:
    return sorted((data / "recipes" / _DRILLS).glob("*.toml"))


def _read_all(paths: Iterable[Path], data: Path) -> tuple[list[Recipe], list[UserError]]:
    recipes: list[Recipe] = []
    problems: list[UserError] = []
    arguments = TrainerArguments(data / "trainers")
    for path in paths:
        try:
            recipes.append(read_recipe(path, data, arguments))
        except UserError as problem:
            problems.append(problem)
    return recipes, problems


def _user_paths(place: Path) -> list[Path]:
    """The recipe files at a place: a file, a folder with recipes, or a folder of such folders."""
    if not place.is_dir():
        return [place]
    try:
        here = _recipes_in(place)
        return here or [
            path
            for child in sorted(place.iterdir())
            if child.is_dir() and child.name != LADDERS
            for path in _recipes_in(child)
        ]
    except OSError as error:
        raise UserError(f"{place}: {error.strerror}") from None


def _recipes_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.toml") if path.name not in _NO_RECIPES)


def _recipe_in(folder: Path) -> Path:
    """The recipe of a folder: the only one, or of several the one named like the folder."""
    found = _recipes_in(folder)
    named = [path for path in found if path.stem == folder.name]
    if len(found) == 1 or named:
        return (named or found)[0]
    if not found:
        raise UserError(f"{folder}: no recipe in this folder", "`coach recipes eject NAME DIR` makes one")
    names = ", ".join(path.name for path in found)
    raise UserError(f"{folder}: several recipes: {names}", f"name one: {found[0]}")
