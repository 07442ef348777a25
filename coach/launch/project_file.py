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
from coach.launch.recipe_file import Recipe
from coach.launch.spelling import parse_time
from coach.launch.table_reader import Keys, TableKey, TableReader, parse_table
from coach.model.errors import UserError
from coach.model.launching.launch import LaunchRequest, OwnProgram
from coach.model.toml_text import quoted
from coach.runs import expand_home
from coach.trusted import MAX_BYTES, open_trusted, place_of

FILES = ("coach.toml", "pyproject.toml")
_REFERENCE = re.compile(r"(?P<path>(?:.*/)?(?:coach|pyproject)\.toml):(?P<name>[^:/]+)")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,39}", re.ASCII)
_CODE = re.compile(r"[A-Z]{3}\d{3}", re.ASCII)
_PROGRAMS = ("script", "command", "batch")
_COUNTS = {
    "nodes": "num_nodes",
    "gpus": "gpus_per_node",
    "nproc_per_node": "nproc_per_node",
    "cpus_per_task": "cpus_per_task",
    "cpus_per_gpu": "cpus_per_gpu",
    "until_done": "until_done",
}
_TEXTS = {
    name: name
    for name in (
        *("mem", "partition", "account", "qos", "reservation", "constraint", "exclude", "gpu_type"),
        *("environment", "python", "signal"),
    )
} | {"resume": "resume_with"}
_WORDS = 'words, for example "python train.py --lr 0.1" or ["python", "train.py"]'
TRAINING_KEYS: Keys = {
    "title": TableKey("text", "One line for lists; without it the command."),
    "key": TableKey(
        'a digit from 1 to 9 in quotes, for example "1"', "The key that launches it from any screen."
    ),
    "script": TableKey("a path", "The Python script that trains; one of script, command, batch is needed."),
    "command": TableKey(_WORDS, "The command that trains."),
    "batch": TableKey("a path", "The batch file that trains."),
    "arguments": TableKey(_WORDS, "The arguments after the script, the command or the batch file."),
    "with": TableKey(_WORDS, "Additions by coach, as with `coach launch --with`."),
    "parameters": TableKey(
        'a table, for example { lr = "--rate" }',
        "coach's name of a parameter, and the program's own name for it.",
    ),
    "watch": TableKey('codes of rules, for example ["GPU005"]', "Rules that are worth watching."),
    "env": TableKey("a table of texts", "Variables of its environment."),
    "sbatch": TableKey("a table of texts", "More options of sbatch, by their long names."),
    "time": TableKey('a time such as "4:00:00"', "The time limit."),
    "nodes": TableKey("a whole number", "Nodes."),
    "gpus": TableKey("a whole number", "GPUs on each node."),
    "nproc_per_node": TableKey("a whole number", "Ranks on each node."),
    "cpus_per_task": TableKey("a whole number", "CPUs on each node, for all its ranks and data workers."),
    "cpus_per_gpu": TableKey("a whole number", "CPUs for each GPU."),
    "until_done": TableKey(
        "a whole number", "Segments at most: near the time limit it resumes in another one."
    ),
    "mem": TableKey("text", "Memory on each node, for example 16G."),
    "partition": TableKey("text", "The partition to submit to."),
    "account": TableKey("text", "The account that is charged."),
    "qos": TableKey("text", "The quality of service."),
    "reservation": TableKey("text", "The reservation to run in."),
    "constraint": TableKey("text", "Features that each node must have."),
    "exclude": TableKey("text", "Nodes not to use."),
    "gpu_type": TableKey("text", "The type of GPU to ask for."),
    "environment": TableKey("text", "The training environment: a name from the config, or KIND=VALUE."),
    "python": TableKey("text", "The interpreter of the training environment."),
    "signal": TableKey("text", "The signal before the time limit, as sbatch's --signal: USR1@60."),
    "resume": TableKey("text", "With until_done: how the program gets its checkpoint."),
}


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
    text: str
    table: Mapping[str, Any]

    def trainings(self) -> tuple[Training, ...]:
        """The file's trainings in their order. Raises UserError with file, line and key."""
        return _Reader(self.path, self.text, self.path.name == FILES[1]).trainings(self.table)


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
        text = data.decode("utf-8")
        table = parse_table(text)
    except ValueError as error:
        if path.name != FILES[0]:
            return None  # another program owns this pyproject.toml and reports its errors
        raise UserError(f"{path}: not valid TOML: {error}") from None
    if path.name == FILES[0]:
        return Project(place, text, table)
    tool = table.get("tool")
    own = tool.get("coach") if isinstance(tool, dict) else None
    return Project(place, text, own) if isinstance(own, dict) else None


def _unusable(path: Path, error: OSError) -> Refused:
    return Refused(f"{path}: {error.strerror}", "it names programs that run: only a file of your own counts")


class _Reader(TableReader):
    """Checks one file key by key."""

    def __init__(self, path: Path, text: str, is_pyproject: bool) -> None:
        super().__init__(path, text)
        self._top = "tool.coach." if is_pyproject else ""

    def trainings(self, table: Mapping[str, Any]) -> tuple[Training, ...]:
        self.check_keys(self._top.rstrip("."), table, ("training",))
        named = self.get(table, "training", dict, "tables such as [training.pretrain]", {})
        found = [self._training(name, named[name]) for name in named]
        keys = [each.key for each in found if each.key is not None]
        for each in found:
            if each.key is not None and keys.count(each.key) > 1:
                raise self.error(
                    self._where(each.name, "key"), f"key = {each.key!r}: two trainings have this key"
                )
        return tuple(found)

    def _where(self, name: str, key: str = "") -> str:
        return f"{self._top}training.{name}{'.' if key else ''}{key}"

    def _training(self, name: str, table: Any) -> Training:
        where = self._where(name)
        if not _NAME.fullmatch(name):
            raise self.error(where, f"[{where}]: expected a name of letters, digits, _ . and -")
        if not isinstance(table, dict):
            raise self.error(where, f"{where} = {table!r}: expected a table")
        self.check_keys(where, table, TRAINING_KEYS)
        key = self._said(table, name, "key", str)
        if key is not None and key not in tuple("123456789"):
            raise self.error(
                self._where(name, "key"), f"key = {key!r}: expected {TRAINING_KEYS['key'].takes}"
            )
        own = replace(self._program(name, table), name=name, parameters=self._parameters(name, table))
        watch = self._said(table, name, "watch", list) or []
        if not all(isinstance(code, str) and _CODE.fullmatch(code) for code in watch):
            raise self.error(self._where(name, "watch"), f"watch = {watch!r}: expected codes of rules")
        title = self._said(table, name, "title", str) or " ".join(own.words)
        return Training(name, title, key, own, self._asked(name, table), tuple(watch), self.path)

    def _said(self, table: Mapping[str, Any], name: str, key: str, kind: type) -> Any:
        value = table.get(key)
        if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
            takes = TRAINING_KEYS[key].takes
            raise self.error(self._where(name, key), f"{key} = {quoted(value)}: expected {takes}")
        return value

    def _program(self, name: str, table: Mapping[str, Any]) -> OwnProgram:
        """The program to start, resolved from the directory of the file."""
        said = [key for key in _PROGRAMS if key in table]
        if len(said) != 1:
            raise self.error(
                self._where(name), f"[{self._where(name)}]: expected one of {', '.join(_PROGRAMS)}"
            )
        kind = said[0]
        folder = self.path.parent
        arguments = self._words(name, "arguments", table.get("arguments", []))
        offers = self._words(name, "with", table.get("with", []))
        if kind == "command":
            words = (*self._words(name, kind, table[kind]), *arguments)
            return self._told(name, kind, lambda: read_own_program(None, words, folder, offers))
        file = self._said(table, name, kind, str)
        program = self._told(name, kind, lambda: read_own_program(file, arguments, folder, offers))
        if str(program.kind) != kind:
            raise self.error(
                self._where(name, kind),
                f"{kind} = {file!r}: this is a {program.kind}: write {program.kind} =",
            )
        return program

    def _told(self, name: str, key: str, read: Any) -> OwnProgram:
        """The program from `read`; an error gets the line of the key that names it."""
        try:
            program: OwnProgram = read()
        except UserError as error:
            raise self.error(self._where(name, key), error.message, error.hint) from None
        return program

    def _words(self, name: str, key: str, value: Any) -> tuple[str, ...]:
        try:
            words = shlex.split(value) if isinstance(value, str) else value
        except ValueError:
            words = None
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise self.error(self._where(name, key), f"{key} = {quoted(value)}: expected {_WORDS}")
        return tuple(words)

    def _parameters(self, name: str, table: Mapping[str, Any]) -> Mapping[str, str]:
        said = self._said(table, name, "parameters", dict) or {}
        for key, option in said.items():
            if not isinstance(option, str) or not option:
                raise self.error(
                    self._where(name, f"parameters.{key}"),
                    f'{key} = {option!r}: expected the program\'s own name for it, for example "--bs"',
                )
        return MappingProxyType(dict(said))

    def _asked(self, name: str, table: Mapping[str, Any]) -> Mapping[str, Any]:
        asked: dict[str, Any] = {}
        for key, field in _COUNTS.items():
            asked[field] = self._said(table, name, key, int)
        for key, field in _TEXTS.items():
            asked[field] = self._said(table, name, key, str)
        time = self._said(table, name, "time", str)
        if time is not None:
            asked["time_limit_s"] = parse_time(time, f"{self.at(self._where(name, 'time'))}: time =")
        for key in ("env", "sbatch"):
            pairs = self._said(table, name, key, dict)
            if pairs is not None and not all(isinstance(value, str) for value in pairs.values()):
                raise self.error(self._where(name, key), f"{key} = {pairs!r}: expected texts")
            asked[key] = pairs
        return MappingProxyType({field: value for field, value in asked.items() if value is not None})
