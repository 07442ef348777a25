"""A person's named trainings, in `coach.toml` or in [tool.coach] of pyproject.toml, beside their code.

coach searches the working directory and then its parents. A training holds a target that `coach launch` could
also take directly (a script, a command, a batch file), its resources and a key. Once requested, it is
launched like any other.
"""

from __future__ import annotations

import errno
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from coach.launch.own_program import own_recipe, read_own_program
from coach.launch.recipe_file import Recipe, codes_of_rules
from coach.launch.spelling import parse_time
from coach.model.errors import UserError
from coach.model.launching.launch import LaunchRequest, OwnProgram
from coach.model.toml_schema import (
    COUNT,
    STRING,
    TABLE,
    Key,
    Kind,
    Schema,
    TomlFile,
    fulfilling,
    list_of,
    one_of,
    spelt,
    typed,
)
from coach.runs import expand_home
from coach.trusted import MAX_BYTES, open_trusted, place_of

FILES = ("coach.toml", "pyproject.toml")
_REFERENCE = re.compile(r"(?P<path>(?:.*/)?(?:coach|pyproject)\.toml):(?P<name>[^:/]+)")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,39}", re.ASCII)
_PROGRAMS = ("script", "command", "batch")


def _words(value: Any) -> tuple[str, ...]:
    try:
        words = shlex.split(value) if isinstance(value, str) else value
    except ValueError:
        words = None
    kept: tuple[str, ...] = list_of(STRING, _WORDS.takes)(words)
    return kept


_WORDS = Kind('words, for example "python train.py --lr 0.1" or ["python", "train.py"]', _words)
_TEXTS = fulfilling(
    TABLE, lambda table: all(isinstance(text, str) for text in table.values()), "a table of texts"
)
_PATH = typed("a path", str)
_OPTIONS: Schema = {
    "env": Key(_TEXTS, "Variables of its environment."),
    "sbatch": Key(_TEXTS, "More options of sbatch, by their long names."),
    "time": Key(spelt('a time such as "4:00:00"', parse_time), "The time limit."),
    "nodes": Key(COUNT, "Nodes."),
    "gpus": Key(COUNT, "GPUs on each node."),
    "nproc_per_node": Key(COUNT, "Ranks on each node."),
    "cpus_per_task": Key(COUNT, "CPUs on each node, for all its ranks and data workers."),
    "cpus_per_gpu": Key(COUNT, "CPUs for each GPU."),
    "until_done": Key(COUNT, "Segments at most: near the time limit it resumes in another one."),
    "mem": Key(STRING, "Memory on each node, for example 16G."),
    "partition": Key(STRING, "The partition to submit to."),
    "account": Key(STRING, "The account that is charged."),
    "qos": Key(STRING, "The quality of service."),
    "reservation": Key(STRING, "The reservation to run in."),
    "constraint": Key(STRING, "Features that each node must have."),
    "exclude": Key(STRING, "Nodes not to use."),
    "gpu_type": Key(STRING, "The type of GPU to ask for."),
    "environment": Key(STRING, "The training environment: a name from the config, or KIND=VALUE."),
    "python": Key(STRING, "The interpreter of the training environment."),
    "signal": Key(STRING, "The signal before the time limit, as sbatch's --signal: USR1@60."),
    "resume": Key(STRING, "With until_done: how the program gets its checkpoint."),
}
_FIELDS = {
    "time": "time_limit_s",
    "nodes": "num_nodes",
    "gpus": "gpus_per_node",
    "resume": "resume_with",
}
"""Key → field of LaunchRequest, where they differ."""
TRAINING_KEYS: Schema = {
    "title": Key(STRING, "One line for lists; without it the command."),
    "key": Key(
        one_of("123456789", 'a digit from 1 to 9 in quotes, for example "1"'),
        "The key that launches it from any screen.",
    ),
    "script": Key(_PATH, "The Python script that trains; one of script, command, batch is needed."),
    "command": Key(_WORDS, "The command that trains."),
    "batch": Key(_PATH, "The batch file that trains."),
    "arguments": Key(_WORDS, "The arguments after the script, the command or the batch file.", default=()),
    "with": Key(_WORDS, "Additions by coach, as with `coach launch --with`.", default=()),
    "parameters": Key(
        typed('a table, for example { lr = "--rate" }', dict),
        "coach's name of a parameter, and the program's own name for it.",
        default={},
    ),
    "watch": Key(codes_of_rules("GPU005"), "Rules that are worth watching.", default=()),
    **_OPTIONS,
}
_OPTION = fulfilling(STRING, bool, 'the program\'s own name for it, for example "--bs"')


@dataclass(frozen=True, slots=True)
class Training:
    """One named training of a project."""

    name: str
    title: str
    key: str | None
    """The digit that launches it from any screen."""
    own: OwnProgram
    asked: Mapping[str, Any]
    """Field of a launch request → its value in the file."""
    watch: tuple[str, ...]
    path: Path
    """The project file that defines it."""

    @property
    def reference(self) -> str:
        """The name by which a launch requests it: `/home/ada/gpt/coach.toml:pretrain`."""
        return f"{self.path}:{self.name}"

    def recipe(self) -> Recipe:
        """The training as a Recipe, for all code after the launch. Raises UserError if its program is
        gone."""
        return replace(
            own_recipe(self.own),
            title=self.title,
            key=self.key,
            time_limit_s=self.asked.get("time_limit_s"),
            watch=self.watch,
        )


@dataclass(frozen=True, slots=True)
class Project:
    """A project file, read once. `path` is where the opened file lay, whatever its name leads to later."""

    path: Path
    file: TomlFile
    table: Mapping[str, Any]

    def trainings(self) -> tuple[Training, ...]:
        """The file's trainings in their order. Raises UserError with file, line and key."""
        return _trainings(self.file, self.table, "tool.coach" if self.path.name == FILES[1] else "")


class Refused(UserError):
    """A coach.toml that names programs of somebody else."""


def find_project(directory: Path) -> Project | None:
    """The nearest file with trainings, from a directory upwards. Raises UserError if it is not valid, Refused
    if there is only a coach.toml that must not be used."""
    refused = None
    for folder in (directory, *directory.parents):
        for name in FILES:
            try:
                project = _read(folder / name)
            except OSError as error:
                if name == FILES[0] and error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.EACCES):
                    refused = refused or _unusable(folder / name, error)
                continue
            if project is not None:
                return project
    if refused is not None:
        raise refused
    return None


def read_project(path: Path) -> tuple[Training, ...]:
    """The trainings of this file in their order. Raises UserError with file, line and key."""
    try:
        project = _read(path)
    except OSError as error:
        raise _unusable(path, error) from None
    if project is None:
        raise UserError(f"{path}: no training in it", "expected a table such as [training.pretrain]")
    return project.trainings()


def is_reference(name: str) -> bool:
    """True if the name has the form of a reference to a project's training."""
    return _REFERENCE.fullmatch(name) is not None


def get_training(name: str) -> Training:
    """The training with this reference. Raises UserError that lists the existing names."""
    found = _REFERENCE.fullmatch(name)
    if found is None:
        raise UserError(f"{name}: not a reference to a training", "expected for example coach.toml:pretrain")
    path = expand_home(found["path"]).absolute()
    trainings = {each.name: each for each in read_project(path)}
    if found["name"] not in trainings:
        names = f"its trainings: {', '.join(trainings)}" if trainings else "it has no training"
        raise UserError(f"{path}: no training {found['name']!r}", names)
    return trainings[found["name"]]


def with_training(request: LaunchRequest) -> LaunchRequest:
    """A request that names a training gets the training's program, and the file's values for fields that
    nobody set. If the person named an environment, the file's interpreter belongs to another one."""
    if request.own is not None or not is_reference(request.recipe):
        return request
    training = get_training(request.recipe)
    unsaid = {
        name: value
        for name, value in training.asked.items()
        if name not in ("env", "sbatch") and getattr(request, name) is None
    }
    if request.environment is not None:
        unsaid.pop("python", None)
    return replace(
        request,
        recipe=training.name,
        own=training.own,
        env={**training.asked.get("env", {}), **request.env},
        sbatch={**training.asked.get("sbatch", {}), **request.sbatch},
        **unsaid,
    )


def _read(path: Path) -> Project | None:
    """The project in this file; None if coach has no table in it. Raises OSError, also for a link and for a
    file of another user: this user would run the programs that it names. Raises UserError if it is not
    TOML."""
    with open_trusted(path, owner=os.geteuid()) as file:
        place, data = place_of(file, path), file.read(MAX_BYTES)
    try:
        found = TomlFile(place, data.decode("utf-8"))
    except (UserError, UnicodeDecodeError) as error:
        if path.name != FILES[0]:
            return None  # another program owns this pyproject.toml and reports its errors
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path}: not valid TOML: {error}") from None
    if path.name == FILES[0]:
        return Project(place, found, found.table)
    tool = found.table.get("tool")
    own = tool.get("coach") if isinstance(tool, dict) else None
    return Project(place, found, own) if isinstance(own, dict) else None


def _unusable(path: Path, error: OSError) -> Refused:
    return Refused(f"{path}: {error.strerror}", "it names programs that run: only a file of your own counts")


def _trainings(file: TomlFile, table: Mapping[str, Any], top: str) -> tuple[Training, ...]:
    """`top` is the dotted name of coach's table in the file, empty for the whole file."""
    named = file.values(
        top, table, {"training": Key(typed("tables such as [training.pretrain]", dict), "", default={})}
    )["training"]
    around = f"{top}.training" if top else "training"
    found = {f"{around}.{name}": _training(file, f"{around}.{name}", name, named[name]) for name in named}
    keys = [each.key for each in found.values() if each.key is not None]
    for where, each in found.items():
        if keys.count(each.key or "") > 1:
            raise file.error(f"{where}.key", f"{where}.key = {each.key!r}: two trainings have this key")
    return tuple(found.values())


def _training(file: TomlFile, where: str, name: str, table: Any) -> Training:
    if not _NAME.fullmatch(name):
        raise file.error(where, f"[{where}]: expected a name of letters, digits, _ . and -")
    values = file.values(where, file.check(where, TABLE, table), TRAINING_KEYS)
    parameters = {
        key: file.check(f"{where}.parameters.{key}", _OPTION, option)
        for key, option in values["parameters"].items()
    }
    own = replace(_program(file, where, values), name=name, parameters=MappingProxyType(parameters))
    asked = {_FIELDS.get(key, key): values[key] for key in _OPTIONS if values[key] is not None}
    title = values["title"] or " ".join(own.words)
    return Training(name, title, values["key"], own, MappingProxyType(asked), values["watch"], file.path)


def _program(file: TomlFile, where: str, values: Mapping[str, Any]) -> OwnProgram:
    """The program to start, resolved from the directory of the file."""
    kinds = [key for key in _PROGRAMS if values[key] is not None]
    if len(kinds) != 1:
        raise file.error(where, f"[{where}]: expected one of {', '.join(_PROGRAMS)}")
    kind = kinds[0]
    target: Any = values[kind]
    arguments: tuple[str, ...] = values["arguments"]
    if kind == "command":
        target, arguments = None, (*target, *arguments)
    try:
        program = read_own_program(target, arguments, file.path.parent, values["with"])
    except UserError as error:
        raise file.error(f"{where}.{kind}", error.message, error.hint) from None
    if target is not None and str(program.kind) != kind:
        raise file.error(
            f"{where}.{kind}", f"{kind} = {target!r}: this is a {program.kind}: write {program.kind} ="
        )
    return program
