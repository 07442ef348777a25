"""The recipes that a user has: coach's own and those of the config, in the order of the ladder, with the page
to read before a launch.

Command line and screens find, order and compare recipes through this module.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches, unified_diff
from pathlib import Path

from coach.config import Settings
from coach.launch.parameters import show
from coach.launch.project_file import Refused, Training, find_project
from coach.launch.python_source import read_program
from coach.launch.recipe import (
    Recipe,
    data_dir,
    drill_names,
    find_recipes,
    get_recipe,
    is_shipped,
    lesson_of,
)
from coach.model.errors import UserError
from coach.runs import expand_home
from coach.sources.machine.new_file import save_new
from coach.sources.named_file import read_named
from coach.trusted import read_trusted

FIRST = "baseline"
_KEY_LINE = re.compile(r"^key\s*=.*\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Page:
    """One recipe, with the texts to read before it is launched."""

    recipe: Recipe
    key: str | None
    """The key that launches it: its own, or the config's."""
    previous: str | None
    """The previous step of the ladder; `diff` compares their trainers."""
    lesson: str
    diff: tuple[str, ...]
    """Unified diff from the previous step's trainer to this one's. Empty if both use the same file."""

    @property
    def launch_name(self) -> str:
        """The recipe's name in a launch: coach's own by name, another by path."""
        return launch_name_of(self.recipe)


def known_recipes(settings: Settings) -> tuple[tuple[Recipe, ...], tuple[UserError, ...]]:
    """The trainings of the current project, then all recipes in the order of the ladder; and an error for
    each that cannot be read."""
    recipes, problems = find_recipes(more=settings.recipe_paths)
    trainings, more = project_recipes()
    return (*trainings, *ladder(recipes)), (*more, *problems)


def project_recipes() -> tuple[tuple[Recipe, ...], tuple[UserError, ...]]:
    """The trainings of the project's file, as recipes, and an error for each that cannot be read. A file that
    must not be used is passed over: only a launch from it reports that."""
    recipes: list[Recipe] = []
    problems: list[UserError] = []
    for training in _trainings(problems):
        try:
            recipes.append(training.recipe())
        except UserError as problem:
            problems.append(problem)
    return tuple(recipes), tuple(each for each in problems if not isinstance(each, Refused))


def _trainings(problems: list[UserError]) -> tuple[Training, ...]:
    try:
        project = find_project(Path.cwd())
        return project.trainings() if project is not None else ()
    except UserError as problem:
        problems.append(problem)
    except OSError:
        pass  # the working directory is gone
    return ()


def ladder(recipes: Sequence[Recipe]) -> tuple[Recipe, ...]:
    """From the first step along `next`; then recipes that no step leads to, by device and name; the user's
    own last."""
    shipped = {recipe.name: recipe for recipe in recipes if is_shipped(recipe)}
    ordered: dict[str, Recipe] = {}
    for start in _starts(shipped):
        step: Recipe | None = start
        while step is not None and step.name not in ordered:
            ordered[step.name] = step
            step = shipped.get(step.next) if step.next else None
    return (*ordered.values(), *(recipe for recipe in recipes if not is_shipped(recipe)))


def _starts(shipped: Mapping[str, Recipe]) -> Iterator[Recipe]:
    """The recipes at which a chain along `next` begins, in order: the first step; those that no other leads
    to; then all, because a chain may be a loop."""
    if FIRST in shipped:
        yield shipped[FIRST]
    known = shipped.values()
    rest = sorted(known, key=lambda recipe: (not recipe.is_single_device, recipe.name))
    led_to = {recipe.next for recipe in known}
    yield from (recipe for recipe in rest if recipe.name not in led_to)
    yield from sorted((recipe for recipe in known if recipe.key), key=lambda recipe: recipe.key or "")
    yield from rest


def find_recipe(name: str, settings: Settings) -> Recipe:
    """Find a recipe by name, file or folder; the name may also be one of the config's recipes. Raises
    UserError with the nearest names; or with the error of the project's file, which may hold that name."""
    problems: list[UserError] = []
    trainings = _trainings(problems)
    for training in trainings:
        if training.name == name:
            return training.recipe()
    try:
        recipe = get_recipe(name)
    except UserError:
        own = [recipe for recipe in find_recipes(more=settings.recipe_paths)[0] if not is_shipped(recipe)]
        for recipe in own:
            if recipe.name == name:
                return recipe
        if problems:
            raise problems[0] from None
        near = get_close_matches(name, [training.name for training in trainings], 1)
        if near:
            raise UserError(f"unknown recipe or training {name!r}", f"did you mean {near[0]}?") from None
        raise
    if recipe.drill is not None:
        raise UserError(f"{name} is a drill: its lesson appears after the answer", f"coach drill {name}")
    return recipe


def launch_name(name: str, settings: Settings) -> str:
    """The name in a launch request of the recipe or drill that a user named. Raises UserError."""
    try:
        return launch_name_of(find_recipe(name, settings))
    except UserError:
        if name in drill_names():
            return name
        raise


def launch_name_of(recipe: Recipe) -> str:
    """The recipe's name in a launch: coach's own by name, another by path, a project's training by its file
    and name."""
    if recipe.own is not None and recipe.own.name is not None:
        return next((each.reference for each in _trainings([]) if each.own == recipe.own), recipe.name)
    return recipe.name if is_shipped(recipe) else str(recipe.path)


def page_of(recipe: Recipe, recipes: Sequence[Recipe], settings: Settings) -> Page:
    """The page of a recipe: its lesson, and what its trainer changes."""
    previous = previous_step(recipe, recipes)
    return Page(
        recipe,
        key_of(recipe, recipes, settings),
        previous.name if previous else None,
        lesson_of(recipe),
        trainer_diff(previous, recipe) if previous else (),
    )


def pages(settings: Settings) -> tuple[tuple[Page, ...], tuple[UserError, ...]]:
    """All recipes as pages, in the order of the ladder."""
    recipes, problems = known_recipes(settings)
    return tuple(page_of(recipe, recipes, settings) for recipe in recipes), problems


def facts(page: Page) -> list[tuple[str, str]]:
    """The facts that a recipe states beside its lesson; a fact that is not stated is left out."""
    recipe, swept = page.recipe, page.recipe.sweep
    rows = [
        ("teaches", recipe.teaches),
        ("expect", recipe.expect),
        ("sweeps over", f"{swept.names[0]} = {','.join(map(show, swept.values))}" if swept else ""),
        ("duration", recipe.duration),
        ("GPU-hours", "" if recipe.gpu_hours is None else f"{recipe.gpu_hours:g} (calculated)"),
        ("needs", ", ".join(recipe.requires)),
        ("rules to watch", ", ".join(recipe.watch)),
        ("shows on purpose", ", ".join(recipe.expects)),
        ("next step", recipe.next or ""),
        ("recipe", "" if is_shipped(recipe) else str(recipe.path)),
    ]
    return [(word, text) for word, text in rows if text]


def key_of(recipe: Recipe, recipes: Iterable[Recipe], settings: Settings) -> str | None:
    """The key that launches the recipe from any screen. `recipes` are all recipes: a project's training may
    take a key from another."""
    if recipe.own is not None:
        return recipe.key
    taken = {each.key for each in recipes if each.own is not None}
    if (
        is_shipped(recipe)
        and recipe.key
        and recipe.key not in taken
        and recipe.key not in settings.recipe_keys
    ):
        return recipe.key
    names = (recipe.name,) if is_shipped(recipe) else (str(recipe.path), str(recipe.path.parent), recipe.name)
    said = (
        (key, str(expand_home(name)) if "/" in name else name) for key, name in settings.recipe_keys.items()
    )
    return next((key for key, name in said if name in names), None)


def recipe_keys(settings: Settings) -> tuple[tuple[str | None, str, str], ...]:
    """All recipes as (key, name in a launch, title): first by key, then those without a key in the order of
    the ladder.

    A missing recipe that the config names keeps its key: pressing the key shows what is wrong.
    """
    recipes, _ = known_recipes(settings)
    keys = {
        recipe.key: (recipe.name, recipe.title)
        for recipe in recipes
        if is_shipped(recipe) and recipe.key and recipe.key not in settings.recipe_keys
    }
    for key, name in settings.recipe_keys.items():
        try:
            recipe = find_recipe(name, settings)
        except UserError as problem:
            keys[key] = (name, problem.message)
        else:
            keys[key] = (launch_name_of(recipe), recipe.title)
    keys |= _own_keys(recipes)
    names = {name for name, _ in keys.values()}
    launches = ((launch_name_of(recipe), recipe.title) for recipe in recipes)
    rest = ((None, name, title) for name, title in launches if name not in names)
    return (*((key, *keys[key]) for key in sorted(keys)), *rest)


def _own_keys(recipes: Iterable[Recipe]) -> dict[str, tuple[str, str]]:
    """Key → name and title of each training of the project that has one."""
    return {
        recipe.key: (launch_name_of(recipe), f"{recipe.title} (yours)")
        for recipe in recipes
        if recipe.own is not None and recipe.key
    }


def previous_step(recipe: Recipe, recipes: Sequence[Recipe]) -> Recipe | None:
    """The recipe whose trainer is compared with this one's: the step before it or the first step, whichever
    differs less; for a user's own recipe, coach's recipe of the same trainer.

    Every trainer is the first one plus one idea, so two neighbours on the ladder may differ in two ideas.
    """
    shipped = [other for other in recipes if is_shipped(other)]
    if not is_shipped(recipe):
        return next((other for other in shipped if other.trainer == recipe.trainer), None)
    namesake = next(
        (other for other in shipped if recipe.trainer == other.trainer == f"{other.name}.py"), None
    )
    if namesake not in (None, recipe):
        return namesake  # another recipe of the same trainer: only parameters differ
    others = [other for other in shipped if other.trainer != recipe.trainer]
    near = [other for other in others if recipe.name == other.next or other.name == FIRST]
    return min(near, key=lambda other: len(trainer_diff(other, recipe)), default=None)


def trainer_diff(before: Recipe, after: Recipe) -> tuple[str, ...]:
    """A unified diff of two recipes' trainers."""
    trainers = data_dir() / "trainers"
    texts = []
    for path in (before.trainer_path(trainers), after.trainer_path(trainers)):
        try:
            texts.append((path, read_program(path).splitlines()))
        except UserError as error:
            return (error.message,)
    (old_path, old), (new_path, new) = texts
    return tuple(unified_diff(old, new, _shown(old_path), _shown(new_path), n=2, lineterm=""))


def _shown(path: Path) -> str:
    return f"trainers/{path.name}" if path.parent == data_dir() / "trainers" else str(path)


def eject(recipe: Recipe, folder: Path) -> tuple[Path, ...]:
    """Copy a recipe so that it runs without coach: trainer, its imports, TOML, lesson, README. Returns the
    files written.

    Raises UserError if the folder is not empty: nobody's work is overwritten.
    """
    trainers = recipe.own_trainers or data_dir() / "trainers"
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UserError(f"{folder}: is there already, and not empty", "name a new folder")
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{error.filename or folder}: {error.strerror or error}") from None
    try:
        _fill(recipe, trainers, folder)
    except BaseException as error:
        # It was empty: half a copy would block the next try.
        shutil.rmtree(folder.resolve(), ignore_errors=True)
        if isinstance(error, OSError):
            raise UserError(f"{error.filename or folder}: {error.strerror or error}") from None
        raise
    names = (recipe.trainer, "common", f"{recipe.name}.toml", f"{recipe.name}.md", "README.md")
    return tuple(folder / name for name in names if (folder / name).exists())


def _fill(recipe: Recipe, trainers: Path, folder: Path) -> None:
    """Write the files of a copy. Raises OSError or UserError."""
    _copy(trainers / recipe.trainer, folder)
    _copy_folder(trainers / "common", folder / "common")
    text = read_named(recipe.path)
    save_new(folder / f"{recipe.name}.toml", _KEY_LINE.sub("", text, count=1))
    lesson = lesson_of(recipe)
    if lesson:
        save_new(folder / f"{recipe.name}.md", lesson)
    save_new(folder / "README.md", _readme(recipe, folder))


def _copy_folder(source: Path, target: Path) -> None:
    target.mkdir()
    for path in source.iterdir():
        if path.is_dir() and path.name != "__pycache__":
            _copy_folder(path, target / path.name)
        elif path.is_file():
            _copy(path, target)


def _copy(file: Path, folder: Path) -> None:
    save_new(folder / file.name, read_trusted(file, owner=None, follows_links=True))


def by_hand(recipe: Recipe, trainer: str) -> str:
    """The command that starts its trainer without coach."""
    short = "--epochs 1" if "epochs" in recipe.parameters else "--max_steps 5"  # a bench has rounds
    if recipe.is_one_process:
        return f"python {trainer} {short}"
    return f"torchrun --standalone --nproc-per-node=2 {trainer} {short}"


def _readme(recipe: Recipe, folder: Path) -> str:
    listed = json.dumps(str(folder), ensure_ascii=False)
    return f"""# {recipe.title}

A copy of coach's recipe `{recipe.name}`, to be changed. By hand, where torch and torchvision are installed (coach is not needed):

    {by_hand(recipe, recipe.trainer)}

With coach: a plan to look at, a run that is watched, diagnosed and compared like any other:

    coach launch {shlex.quote(str(folder))}

- `{recipe.trainer}` is the training, from top to bottom. `common/` is what it imports.
- `{recipe.name}.toml` says what is launched. Where its `parameters_of` names the trainer, an option that you add to
  `parse_arguments` can be set at once; else it needs a table `[parameters.NAME]` there.
- With a launch travel the scripts and JSON files of this folder, and its packages (folders with an `__init__.py`).
- `recipes = [{listed}]` in coach's config.toml shows it on the Recipes screen.
"""
