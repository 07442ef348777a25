"""List what a person can launch from the working directory: the project's trainings, commands that were
launched from here before, scripts and batch files below it, and recipes.

Only the screen of a new launch needs it; it is a workflow because it reads files and records.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from coach.config import Settings
from coach.launch.own_arguments import read_options, with_values
from coach.launch.own_program import own_request, read_own_program
from coach.launch.record import request_from
from coach.model.errors import UserError
from coach.model.launching.launch import LaunchRequest, OwnProgram, Scalar
from coach.model.training.run import Run
from coach.node.secret_words import mask_command
from coach.sources.io import Io
from coach.workflows.judging.targets import known_runs
from coach.workflows.launching.recipes import known_recipes, launch_name_of

SUFFIXES = (".py", ".sh", ".sbatch")
MAX_DEPTH = 3
"""Folders are searched as deep as `a/b/train.py`: a deeper file is seldom a program that is started."""
MAX_FILES = 500
"""Nobody reads more rows; the filter or a smaller folder finds the others."""
MAX_ENTRIES = 20_000
"""Largest number of directory entries read: a folder of data may hold millions, on a slow file server."""
MAX_RECENT = 20
_NOT_ENTERED = frozenset({"__pycache__", "node_modules", "site-packages", "venv", "virtualenv"})
_ENVIRONMENT_MARKS = ("pyvenv.cfg", "conda-meta")
_NO_PROGRAMS = frozenset({"__init__.py"})


class Origin(StrEnum):
    """Where a row comes from. The value is the word shown; rows are ordered as here."""

    YOURS = "yours"
    RECENT = "recent"
    FILE = "file"
    RECIPE = "recipe"


@dataclass(frozen=True, slots=True)
class Launchable:
    """One row of a new launch."""

    origin: Origin
    name: str
    """A training's or a recipe's name, a command, or a path below the working directory."""
    about: str
    request: LaunchRequest
    """The request as listed; for a file, `request_of` adds its program."""
    launched_time_s: float | None = None
    """When a command was launched last, in Unix seconds."""


@dataclass(frozen=True, slots=True)
class Launchables:
    """All rows in order, and notes on what could not be read or was left out."""

    directory: str
    rows: tuple[Launchable, ...]
    notes: tuple[str, ...]


def find_launchables(settings: Settings, io: Io) -> Launchables:
    """Read the project's file, the records of the runs, and the directories below the working directory.
    Raises UserError if the working directory is gone."""
    try:
        directory = Path.cwd()
    except OSError as error:
        raise UserError(f"the working directory: {error.strerror}", "cd to a directory that exists") from None
    recipes, problems = known_recipes(settings)
    of_recipes = [
        Launchable(
            Origin.RECIPE if recipe.own is None else Origin.YOURS,
            recipe.name,
            recipe.title,
            LaunchRequest(launch_name_of(recipe)),
        )
        for recipe in recipes
    ]
    files, notes = find_programs(directory)
    of_files = [Launchable(Origin.FILE, file, "", LaunchRequest(file)) for file in files]
    rows = (*of_recipes, *recent_commands(known_runs(settings, io), directory), *of_files)
    order = list(Origin)
    rows = tuple(sorted(rows, key=lambda row: order.index(row.origin)))
    return Launchables(str(directory), rows, (*(problem.message for problem in problems), *notes))


def request_of(row: Launchable, directory: Path) -> LaunchRequest:
    """The request of a row. Raises UserError for a file that is gone or cannot be launched."""
    if row.origin is not Origin.FILE:
        return row.request
    what = f"./{row.name}" if row.name.startswith("-") else row.name
    return own_request(read_own_program(what, (), directory), row.request)


def recent_commands(runs: Iterable[Run], directory: Path) -> tuple[Launchable, ...]:
    """Own programs that were launched from a directory, newest first, each command once with its latest
    resources. `runs` are newest first."""
    found: dict[tuple[object, ...], Launchable] = {}
    for run in filter(lambda run: run.is_mine, runs):
        request = request_from(run)
        own = request.own
        if own is None or own.name is not None or not _is_same(own.directory, directory):
            continue  # no own program, a training of the project, or launched from elsewhere
        name, about = _shown(own, request.set)
        again = replace(request, resume_from=None, is_mended=None)
        row = Launchable(Origin.RECENT, name, about, again, run.created_time_s)
        found.setdefault((name, about, own.offers), row)
        if len(found) == MAX_RECENT:
            break
    return tuple(found.values())


def _shown(own: OwnProgram, changes: Mapping[str, str | Scalar]) -> tuple[str, str]:
    """A command as it was launched: the program, and its arguments with the changed values in their places.
    Changes without a place in the command stand behind them."""
    placed = [each for each in read_options(own.words, None, own.parameters) if each.place is not None]
    words = mask_command(with_values(own.words, placed, changes))
    in_place = {each.parameter.name for each in placed}
    others = [f"{name}={value}" for name, value in sorted(changes.items()) if name not in in_place]
    at = next((i for i, word in enumerate(words) if i and word.startswith("-")), len(words))
    return shlex.join(words[:at]), " ".join(filter(None, (shlex.join(words[at:]), *others)))


def _is_same(path: str, directory: Path) -> bool:
    return path == str(directory) or os.path.realpath(path) == os.path.realpath(directory)


def find_programs(directory: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Paths of scripts and batch files below a directory, the nearest first, and notes on what was left out.

    Hidden folders, environments and links to folders are not entered.
    """
    found: list[str] = []
    notes: list[str] = []
    folders, num_left = [directory], MAX_ENTRIES
    for _ in range(MAX_DEPTH):
        below: list[Path] = []
        for folder in folders:
            entries = list(_entries(folder, num_left))
            num_left -= len(entries)
            found += [os.path.relpath(entry.path, directory) for entry in entries if _is_program(entry)]
            below += [Path(entry.path) for entry in entries if _is_entered(entry)]
            if num_left <= 0:
                notes.append(f"only the first {MAX_ENTRIES:,} entries of this directory were looked at")
                return _cut(found, notes)
        folders = below
    return _cut(found, notes)


def _cut(found: list[str], notes: list[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if len(found) > MAX_FILES:
        notes = [*notes, f"{len(found) - MAX_FILES} more files are not shown"]
    return tuple(found[:MAX_FILES]), tuple(notes)


def _entries(folder: Path, limit: int) -> Iterator[os.DirEntry[str]]:
    """At most `limit` entries, by name; none if the folder cannot be read or is an environment."""
    found: list[os.DirEntry[str]] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if len(found) == limit:
                    break
                found.append(entry)
    except OSError:
        return
    if not any(entry.name in _ENVIRONMENT_MARKS for entry in found):
        yield from sorted(found, key=lambda entry: entry.name)


def _is_program(entry: os.DirEntry[str]) -> bool:
    name = entry.name
    if name.startswith(".") or name in _NO_PROGRAMS or not name.endswith(SUFFIXES):
        return False
    try:
        return entry.is_file()
    except OSError:
        return False


def _is_entered(entry: os.DirEntry[str]) -> bool:
    if entry.name.startswith(".") or entry.name in _NOT_ENTERED:
        return False
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False
