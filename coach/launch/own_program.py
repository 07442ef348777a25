"""A person's own training, unlike a recipe: a Python script, a command, or a batch file.

It runs as it is: coach adds no flag and does not change the file. Facts that it may need (`COACH_RUN_DIR`)
are in its environment. For all code after the launch it is a recipe like any other.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import islice, pairwise
from pathlib import Path
from shlex import quote
from types import MappingProxyType

from coach.analysis.jobs.batch_script import change_script, read_script
from coach.launch import batch_file
from coach.launch.own_arguments import Form, OwnOption, read_options, with_values
from coach.launch.own_config import (
    as_options,
    hydra_values,
    merged,
    named_values,
    option_of,
)
from coach.launch.parameters import Parameter, show
from coach.launch.python_source import packages_of, read_program
from coach.launch.recipe_file import Recipe
from coach.launch.spelling import check_printable
from coach.model.errors import UserError
from coach.model.launching.launch import OFFERS, LaunchRequest, OwnKind, OwnProgram, Scalar
from coach.runs import expand_home

BATCH_SUFFIXES = (".sbatch", ".slurm", ".sh", ".bash", ".csh", ".job", ".batch")
_SUFFIXES = (".py", *BATCH_SUFFIXES)
_RECIPE_SUFFIX = ".toml"
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.]+", re.ASCII)
_MAX_WORDS = 1000


def is_own(what: str | None) -> bool:
    """True if a launch of `what` starts an own program, not a recipe. None: the command stands after `--`."""
    if what is None:
        return True
    path = expand_home(what)
    if path.suffix == _RECIPE_SUFFIX or path.is_dir():
        return False
    return what == "-" or path.is_file() or path.suffix in _SUFFIXES


def read_own_program(
    what: str | None,
    behind: Sequence[str],
    directory: Path,
    offers: Sequence[str] = (),
    *,
    is_unread: bool = False,
) -> OwnProgram:
    """The program to launch. Raises UserError if it cannot be launched.

    `is_unread`: it is a batch file that is submitted unchanged.
    """
    for offer in offers:
        if offer not in OFFERS:
            raise UserError(f"--with {offer}: no such offer", f"expected one of {', '.join(OFFERS)}")
    if len(behind) > _MAX_WORDS:
        raise UserError(f"{len(behind)} words after --: at most {_MAX_WORDS}")
    for word in (what or "", *behind):
        check_printable(word, "the command")
    if what is None and not behind:
        raise UserError(
            "launch: expected a recipe, a script, a batch file or `-- COMMAND`",
            "for example `coach launch train.py -- --lr 1e-4`; `coach recipes` lists the recipes",
        )
    kind, words = _kind(what, directory, is_unread), (*((what,) if what is not None else ()), *behind)
    if kind is OwnKind.BATCH and "torchrun" in offers:
        raise UserError(
            f"{what}: coach cannot put torchrun into a batch file", "write `srun torchrun …` in it"
        )
    if kind is OwnKind.COMMAND and what is not None and "/" not in what:
        words = (f"./{what}", *behind)
    return OwnProgram(kind, words, str(directory), tuple(offers))


def _kind(what: str | None, directory: Path, is_unread: bool) -> OwnKind:
    """The kind of program. Raises UserError for a file that cannot be launched."""
    if what is None:
        return OwnKind.COMMAND
    if what == "-":
        raise UserError(
            "launch -: a script from standard input cannot be read again for a relaunch",
            "write it to a file, and launch the file",
        )
    path = directory / expand_home(what)
    if not path.exists():
        by_stem = _programs_in(path.parent, path.suffix)
        near = get_close_matches(path.stem, by_stem, 1)  # endings alone would make all scripts alike
        raise UserError(f"{what}: no such file", f"did you mean {by_stem[near[0]]}?" if near else None)
    has_options = batch_file.has_options(path)
    if is_unread:
        return OwnKind.BATCH
    if has_options or path.suffix in BATCH_SUFFIXES:
        batch_file.check(path)
        return OwnKind.BATCH
    return OwnKind.SCRIPT if path.suffix == ".py" else OwnKind.COMMAND


def own_recipe(own: OwnProgram, said: Mapping[str, str | Scalar] = MappingProxyType({})) -> Recipe:
    """The program as a Recipe, for all code after the launch. Raises UserError if its file is gone.

    `said` are the parameters that the launch sets: one of them may name another config file.
    """
    path = _file_of(own)
    name = own.name or _name(own, path)
    return Recipe(
        name=name,
        title="your own training",
        summary=" ".join(own.words),
        trainer=path.name if path is not None else own.words[0],
        devices="multiple",
        key=None,
        time_limit_s=None,
        parameters=MappingProxyType(
            {each.parameter.name: each.parameter for each in _read(own, path, said)[0]}
        ),
        path=path or Path(own.directory) / name,
        ranks=1,
        own=own,
    )


@dataclass(frozen=True, slots=True)
class OwnCommand:
    """The command that starts an own program."""

    words: tuple[str, ...]
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def own_command(own: OwnProgram, values: Mapping[str, Scalar]) -> OwnCommand:
    """The program and its arguments, with its parameters' values. Raises UserError, with the lines to change,
    if a value stands in a config file and the command line does not set it."""
    options, undecided = _read(own, _file_of(own), values)
    changed = {
        each.parameter.name: each
        for each in options
        if values.get(each.parameter.name, each.parameter.default) != each.parameter.default
    }
    in_files = {
        name: each.held.change(values[name])
        for name, each in changed.items()
        if each.form is Form.FILE and each.held is not None
    }
    if in_files:
        rest = [f"--set {quote(f'{name}={show(values[name])}')}" for name in changed if name not in in_files]
        raise UserError(
            f"{', '.join(in_files)}: set in a config file of your program, which coach does not write",
            " ".join(("change it there, and launch it again", *(["with"] if rest else []), *rest)),
            diff=tuple(in_files.values()),
        )
    if own.kind is OwnKind.BATCH:
        return OwnCommand(own.words, warnings=batch_file.differences(own))
    notes = (
        f"{name} is not guessed: {' and '.join(places)} could be it; "
        f"`parameters = {{ {name} = … }}` in coach.toml decides"
        for name, places in undecided.items()
    )
    return OwnCommand(with_values(own.words, options, values), tuple(notes))


def undecided_places(own: OwnProgram, name: str, said: Mapping[str, str | Scalar]) -> tuple[str, ...]:
    """The keys and options of the program that could each mean a parameter; coach chose none."""
    return _read(own, _file_of(own), said)[1].get(name, ())


def own_request(own: OwnProgram, request: LaunchRequest) -> LaunchRequest:
    """A request for an own program instead of a recipe."""
    return replace(request, recipe=own_recipe(own, request.set).name, own=own)


def imported_modules(own: OwnProgram) -> tuple[str, ...]:
    """The packages that a script and its own modules always import."""
    try:
        file = _file_of(own)
    except UserError:
        return ()
    return packages_of(file, {Path(own.directory), file.parent}) if file is not None else ()


def _read(
    own: OwnProgram, path: Path | None, said: Mapping[str, str | Scalar]
) -> tuple[tuple[OwnOption, ...], Mapping[str, tuple[str, ...]]]:
    """The options of the program with the values of its config files, and each parameter that several of them
    could mean."""
    directory = Path(own.directory)
    if own.kind is OwnKind.BATCH and path is not None:
        text = batch_file.read(path)
        options = tuple(_options_of_script(text, path.name))
        words = [word.strip("\"'") for line in text.splitlines() for word in line.partition("#")[0].split()]
        held = as_options(named_values(words, (), directory, said), (), "")
        return merged(options, held, own.parameters)
    source = read_program(path) if path is not None and path.suffix == ".py" else ""
    options = read_options(own.words, source, own.parameters)
    held = as_options(named_values(own.words, options, directory, said), options, source)
    if path is not None:
        of_hydra = hydra_values(path, source, own.words)
        held += [option_of(each, each.name, Form.PAIR) for each in of_hydra]
    return merged(options, held, own.parameters)


def _options_of_script(text: str, name: str) -> Iterator[OwnOption]:
    """The options of a batch file that it sets where coach can set another value."""
    script = read_script([text])
    for key, value in script.parameters.items():
        if type(value) in (int, float, str, bool) and not change_script(script, {key: 0})[1]:
            parameter = Parameter(key, type(value).__name__, value, f"What {name} says for {key}.")
            yield OwnOption(parameter, key, Form.APART, 0)


def _programs_in(folder: Path, suffix: str) -> Mapping[str, str]:
    """The names of the scripts, batch files and commands among the first files of a folder, by their stems;
    of equal stems, the one with this ending. Empty if the folder cannot be read."""
    try:
        files = [each for each in islice(folder.iterdir(), 500) if each.is_file()]
        programs = [each for each in files if each.suffix in _SUFFIXES or os.access(each, os.X_OK)]
    except OSError:
        return {}
    return {each.stem: each.name for each in sorted(programs, key=lambda each: each.suffix == suffix)}


def _file_of(own: OwnProgram) -> Path | None:
    """The program's file, if a word names one."""
    words = own.words if own.kind is OwnKind.COMMAND else own.words[:1]
    for word in words:
        path = Path(own.directory, expand_home(word))
        if own.kind is not OwnKind.COMMAND or (path.suffix == ".py" and path.is_file()):
            if not path.is_file():
                raise UserError(f"{path}: no such file")
            return path
    return None


def _name(own: OwnProgram, path: Path | None) -> str:
    """The name of its runs."""
    word = path.stem if path is not None else _module(own.words) or Path(own.words[0]).name
    return _NOT_IN_NAMES.sub("_", word).strip("._")[:40] or "own"


def _module(words: Sequence[str]) -> str | None:
    """The module that `python -m` starts, unless it is a launcher."""
    for option, module in pairwise(words):
        if option == "-m" and not module.startswith(("torch.distributed", "accelerate")):
            return module
    return None


def text_of(recipe: Recipe) -> str | None:
    """The text of an own Python program."""
    if recipe.own is not None and recipe.own.kind is OwnKind.BATCH:
        return batch_file.read(recipe.path)
    if recipe.own is None or recipe.path.suffix != ".py":
        return None
    return read_program(recipe.path)
