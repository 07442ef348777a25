"""Reads one recipe's TOML into frozen values, and checks it key by key.

A recipe is data, so a newcomer can add one without touching code. An error therefore names the file, the line
and the key, and says what is wrong and what would be right.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any

from coach.analysis.spelling.environment import read_environment
from coach.launch import parameters
from coach.launch.drill_table import read_drill
from coach.launch.parameter_table import read_parameter
from coach.launch.parameters import Parameter
from coach.launch.spelling import parse_time
from coach.launch.table_reader import Keys, TableKey, TableReader, parse_table
from coach.launch.trainer_arguments import TrainerArguments, declares_options
from coach.model.errors import UserError
from coach.model.launching.environment import Environment
from coach.model.launching.launch import OwnProgram, Scalar
from coach.model.teaching.drill import Drill
from coach.node.torch_build import satisfies
from coach.sources.named_file import read_named

WORLD_SIZE = "world_size"
"""The number of ranks, which a sweep can vary like a recipe's parameter."""

RANKS = Parameter(WORLD_SIZE, "int", 1, "Ranks in all", min=1)

MAX_RESTARTS = 100
"""A run that fails more often than this does not fail by accident."""

_NAME = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.-]{0,63}", re.ASCII)
_TRAINER = re.compile(r"[a-z][a-z0-9_]*\.py", re.ASCII)
_MODULE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", re.ASCII)
_CODE = re.compile(r"[A-Z]{3}\d{3}", re.ASCII)
_DEVICES = ("single", "multiple", "one process")
_NAMED = "letters, digits, _ . and -"
RECIPE_KEYS: Keys = {
    "schema": TableKey("1", "The version of this format.", is_needed=True),
    "name": TableKey(_NAMED, "What `coach launch` calls it.", is_needed=True),
    "title": TableKey("text", "One line for lists.", is_needed=True),
    "summary": TableKey("text", "What it does, in two or three sentences.", is_needed=True),
    "trainer": TableKey(
        'a file of trainers/, for example "ddp.py"',
        "Its program: a file beside the recipe, or one of coach's.",
        is_needed=True,
    ),
    "devices": TableKey(
        "one of " + ", ".join(f'"{kind}"' for kind in _DEVICES),
        "One rank, a rank for each device, or one rank for all devices of a node.",
        is_needed=True,
    ),
    "key": TableKey(
        "one character",
        "The key that launches it from any screen. Coach's own recipes have 1 to 5; users and sites give "
        "6 to 9 in [keys] of the config.",
    ),
    "time": TableKey('a time such as "00:30:00"', "The time limit of its runs.", is_needed=True),
    "torch": TableKey(
        'a requirement such as ">=2.6" or ">=2.6,<3"', "The versions of torch with which it works."
    ),
    "requires": TableKey(
        'modules, for example ["nvidia.dali"]',
        "Modules that the training environment must have beside torch.",
    ),
    "teaches": TableKey("text", "What a learner takes from it."),
    "expect": TableKey("text", "The result to expect, and the reason."),
    "duration": TableKey("text", "How long a run with the defaults takes, and on what."),
    "gpu_hours": TableKey("a number from 0", "What a run with the defaults costs, calculated."),
    "watch": TableKey('codes of rules, for example ["GPU005"]', "Rules that are worth watching."),
    "next": TableKey("a recipe's name", "The next step of the ladder."),
    "expects": TableKey(
        'codes of rules, for example ["DST016"]',
        "Findings that it causes on purpose; for its runs they are `info`.",
    ),
    "uneven_by_design": TableKey(
        "true or false",
        "True if its ranks do unequal work on purpose: rules do not compare them.",
    ),
    "environment": TableKey(
        "a table", "Where it trains unless site or user say otherwise, as [environments.NAME] of the config."
    ),
    "memory": TableKey("a table", "The host memory that it needs on a node; without it the site's default."),
    "ranks": TableKey("a whole number", "Ranks in all, unless the launch sets them."),
    "max_restarts": TableKey(
        f"a whole number from 0 to {MAX_RESTARTS}",
        "How many times torchrun restarts all ranks after a failure, unless the launch sets it.",
    ),
    "sweep": TableKey("a table", "Makes a launch a group of runs, one for each value."),
    "drill": TableKey(
        "a table", "Makes it a drill: the planted fault, and the answers offered to a learner."
    ),
    "remedies": TableKey("a table", "Changes of a launch that carry out a remedy for this recipe."),
    "parameters_of": TableKey(
        "a recipe's name",
        "A recipe, or a trainer's file, that lends it parameters; its own keys override them.",
    ),
    "parameters": TableKey("a table", "Its parameters, a table for each."),
}
SWEEP_KEYS: Keys = {
    "parameter": TableKey(
        f"one of the parameters, or {WORLD_SIZE}",
        "The parameter that differs from run to run.",
        is_needed=True,
    ),
    "values": TableKey("a list", "The values, unless the launch gives others.", is_needed=True),
    "divides": TableKey(
        "one of the parameters, a whole number",
        "For a sweep over ranks: the total that they divide, for strong scaling.",
    ),
}
MEMORY_KEYS: Keys = {
    "node": TableKey("MiB from 0", "Resident memory of torchrun and the sampler.", is_needed=True),
    "rank": TableKey("MiB from 0", "Resident memory of a rank on CPUs.", is_needed=True),
    "worker": TableKey("MiB from 0", "Resident memory of a DataLoader worker.", is_needed=True),
}
REMEDY_KEYS: Keys = {
    "shard": TableKey(
        'a table of changes, for example { recipe = "fsdp" }',
        "Model and optimizer in shares, one per rank.",
    ),
    "rank_per_device": TableKey(
        'a table of changes, for example { recipe = "fsdp" }', "One rank for each device."
    ),
}


@dataclass(frozen=True, slots=True)
class Sweep:
    """A recipe that launches a group of runs, one for each value."""

    parameter: str
    """One of the recipe's parameters, or `world_size`."""
    values: tuple[Scalar, ...]
    """The values of the sweep, if the launch gives no others."""
    divides: str | None = None
    """For a sweep over ranks: a parameter with a total that the ranks divide, such as `batch_size`."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names by which `--set` can give the values: `world_sizes=1,2,4`, or the parameter's own name with
        commas."""
        plural = self.parameter if self.parameter.endswith("s") else f"{self.parameter}s"
        return tuple(dict.fromkeys((plural, self.parameter)))


@dataclass(frozen=True, slots=True)
class Recipe:
    """A training to launch. `devices` is `single` (one rank), `multiple` (one rank per device) or `one
    process` (one rank for all devices of a node). `key` launches it from any screen."""

    name: str
    title: str
    summary: str
    trainer: str
    """File name of the trainer."""
    devices: str
    key: str | None
    time_limit_s: int | None
    """None: the site's default."""
    parameters: Mapping[str, Parameter]
    path: Path
    torch: str | None = None
    """The versions of torch with which it works, for example `>=2.6`; None: any."""
    environment: Environment | None = None
    """Its environment, unless site or user set another. Table [environment]."""
    requires: tuple[str, ...] = ()
    """Modules that the training environment must have beside torch."""
    teaches: str = ""
    expect: str = ""
    """The result to expect, and the reason for it."""
    duration: str = ""
    gpu_hours: float | None = None
    """The calculated GPU-hours of a run with the defaults."""
    watch: tuple[str, ...] = ()
    """Codes of the rules worth watching."""
    next: str | None = None
    """The next step of the ladder: a recipe's name."""
    expects: tuple[str, ...] = ()
    """Codes of the findings that it causes on purpose; for its runs they are `info`."""
    uneven_by_design: bool = False
    """True if its ranks do unequal work on purpose, such as the stages of a pipeline. Rules then do not
    compare them."""
    remedies: Mapping[str, Mapping[str, Scalar]] = field(default_factory=dict)
    """Remedy → the changes of a launch that carry it out for this recipe.

    `shard`: model and optimizer in shares, one per rank; `rank_per_device`: one rank for each device. A
    change is another `recipe`, or a parameter's value.
    """
    memory: Mapping[str, int] = field(default_factory=dict)
    """MiB of host memory, as `MEMORY_KEYS` says; empty: unknown."""
    ranks: int | None = None
    """Ranks in all, unless the launch sets them. None: one per device, or two."""
    max_restarts: int | None = None
    """How many times torchrun restarts all ranks after a failure, unless the launch sets it. None: never."""
    sweep: Sweep | None = None
    drill: Drill | None = None
    """The planted fault; None: the recipe is no drill."""
    own_trainers: Path | None = None
    """The folder of a user's recipe that holds its trainer; None: the trainer is coach's."""
    own: OwnProgram | None = None
    """The person's own program that this Recipe stands for; None for a recipe."""

    @property
    def kind(self) -> str:
        """Its kind in a list: its devices, or the kind of own program."""
        return self.devices if self.own is None else str(self.own.kind)

    @property
    def is_single_device(self) -> bool:
        return self.devices == "single"

    @property
    def is_one_process(self) -> bool:
        """True for one rank on one node, on one or several devices."""
        return self.devices in ("single", "one process")

    def trainer_path(self, trainers: Path) -> Path:
        """The trainer's file. `trainers` is the folder of coach's own trainers."""
        return (self.own_trainers or trainers) / self.trainer


def read_recipe_file(path: Path, trainers: Path, arguments: TrainerArguments | None = None) -> Recipe:
    """Read one recipe. Its trainer lies beside it, or in the folder `trainers`.

    `arguments` reads the trainers. Pass one to reuse what it has read for the next recipe.
    """
    text = read_named(path)
    try:
        table = parse_table(text)
    except ValueError as error:
        raise UserError(f"{path}: not valid TOML: {error}") from None
    return _Reader(path, text, arguments or TrainerArguments(trainers)).recipe(table, trainers)


def _merged(inherited: Mapping[str, Any], own: Mapping[str, Any]) -> Mapping[str, Any]:
    """The inherited parameters with the recipe's own changes, and its own parameters."""
    merged = {key: _changed(values, own.get(key, {})) for key, values in inherited.items()}
    return {**merged, **{key: values for key, values in own.items() if key not in merged}}


def _changed(values: Any, own: Any) -> Any:
    """One inherited table with the recipe's own keys. A value that is no table is refused later, when tables
    are read."""
    return {**values, **own} if isinstance(values, dict) and isinstance(own, dict) else own


class _Reader(TableReader):
    """Checks one parsed file key by key."""

    def __init__(self, path: Path, text: str, arguments: TrainerArguments) -> None:
        super().__init__(path, text)
        self._arguments = arguments

    def recipe(self, table: Mapping[str, Any], trainers: Path) -> Recipe:
        self.check_keys("", table, RECIPE_KEYS)
        schema = self._said(table, "schema", int)
        if schema != 1:
            raise self.error("schema", f"schema = {schema}: this coach reads schema 1")
        name = self._matching(table, "name", _NAME)
        devices = self._said(table, "devices", str)
        if devices not in _DEVICES:
            raise self.error("devices", f"devices = {devices!r}: expected {RECIPE_KEYS['devices'].takes}")
        trainer, is_own = self._trainer(table, trainers)
        key = self._key(table)
        time = self._said(table, "time", str)
        torch = self._said(table, "torch", str, None)
        if torch is not None and satisfies("2.0", torch) is None:
            raise self.error("torch", f"torch = {torch!r}: expected {RECIPE_KEYS['torch'].takes}")
        base = self._base(table, trainers)
        own: Mapping[str, Any] = self._said(table, "parameters", dict, {})
        tables = _merged(base.get("parameters", {}), own)
        read = MappingProxyType({key: read_parameter(self, key, tables[key]) for key in tables})
        return Recipe(
            name=name,
            title=self._said(table, "title", str),
            summary=self._said(table, "summary", str),
            trainer=trainer,
            devices=devices,
            key=key,
            time_limit_s=parse_time(time, f"{self.at('time')}: time ="),
            parameters=read,
            path=self.path,
            torch=torch,
            environment=self._environment(self._said(table, "environment", dict, None)),
            requires=self._words(table, "requires", _MODULE),
            teaches=self._said(table, "teaches", str, ""),
            expect=self._said(table, "expect", str, ""),
            duration=self._said(table, "duration", str, ""),
            gpu_hours=self._gpu_hours(table),
            watch=self._words(table, "watch", _CODE),
            next=self._matching(table, "next", _NAME) if "next" in table else None,
            expects=self._words(table, "expects", _CODE),
            uneven_by_design=self._said(table, "uneven_by_design", bool, False),
            remedies=self._remedies(table if "remedies" in table else base, read),
            memory=self._memory(table if "memory" in table else base),
            ranks=self._said(table, "ranks", int, None),
            max_restarts=self._max_restarts(table),
            sweep=self._sweep(self._said(table, "sweep", dict, None), read, devices),
            drill=read_drill(self, self._said(table, "drill", dict, None), read),
            own_trainers=self.path.parent if is_own else None,
        )

    def _said(self, table: Mapping[str, Any], key: str, kind: type, default: Any = ...) -> Any:
        return self.get(table, key, kind, RECIPE_KEYS[key].takes, default)

    def _matching(self, table: Mapping[str, Any], key: str, pattern: re.Pattern[str]) -> str:
        return self.matching(table, key, pattern, RECIPE_KEYS[key].takes)

    def _words(self, table: Mapping[str, Any], key: str, pattern: re.Pattern[str]) -> tuple[str, ...]:
        return self.words(table, key, pattern, RECIPE_KEYS[key].takes)

    def _trainer(self, table: Mapping[str, Any], trainers: Path) -> tuple[str, bool]:
        """The trainer's file, and True if it lies beside the recipe and not among coach's own."""
        trainer = self._matching(table, "trainer", _TRAINER)
        beside = self.path.parent
        is_own = beside != trainers and (beside / trainer).is_file()
        if not is_own and not (trainers / trainer).is_file():
            raise self.error("trainer", f"trainer = {trainer!r}: no such file in {trainers}")
        return trainer, is_own

    def _key(self, table: Mapping[str, Any]) -> str | None:
        key: str | None = self._said(table, "key", str, None)
        if key is not None and not (len(key) == 1 and key.isprintable()):
            raise self.error("key", f"key = {key!r}: expected {RECIPE_KEYS['key'].takes}")
        return key

    def _base(self, table: Mapping[str, Any], trainers: Path) -> Mapping[str, Any]:
        """The parameters of the recipe or trainer that `parameters_of` names; empty if none is named.

        The recipe's own keys win over them.
        """
        if "parameters_of" not in table:
            return {}
        return self._lent(self._matching(table, "parameters_of", _NAME), (self.path,), trainers)

    def _lent(self, name: str, borrowers: tuple[Path, ...], trainers: Path) -> Mapping[str, Any]:
        """The parameters of a recipe or trainer, with those that it has from another. `borrowers` are the
        recipes on the way to it: this one first, last the one that names it."""
        beside = borrowers[-1].parent
        if _TRAINER.fullmatch(name):
            return {"parameters": self._declared(name, beside, trainers)}
        places = (beside / f"{name}.toml", trainers.parent / "recipes" / f"{name}.toml")
        path = next((place for place in places if place.is_file()), None)
        if path is None or path in borrowers:
            raise self.error("parameters_of", f"parameters_of = {name!r}: no such recipe")
        try:
            base = parse_table(read_named(path))
        except (UserError, ValueError) as error:
            raise self.error("parameters_of", f"parameters_of = {name!r}: cannot be read: {error}") from None
        own = base.get("parameters", {})
        if not isinstance(own, dict):
            raise self.error("parameters_of", f"parameters_of = {name!r}: {path}: parameters is no table")
        lender = base.get("parameters_of")
        if not isinstance(lender, str) or not _NAME.fullmatch(lender):
            return base
        lent = self._lent(lender, (*borrowers, path), trainers)
        return {**lent, **base, "parameters": _merged(lent.get("parameters", {}), own)}

    def _declared(self, trainer: str, beside: Path, trainers: Path) -> Mapping[str, Any]:
        """The parameters that a trainer declares: the one beside its recipe, else coach's with the same name.

        A user may replace a copied trainer by a script that declares nothing: it gets the same options.
        """
        paths = [place / trainer for place in (beside, trainers) if (place / trainer).is_file()]
        if not paths:
            raise self.error("parameters_of", f"parameters_of = {trainer!r}: no such trainer")
        return self._arguments.of(next(filter(declares_options, paths), paths[0]))

    def _remedies(
        self, table: Mapping[str, Any], known: Mapping[str, Parameter]
    ) -> Mapping[str, Mapping[str, Scalar]]:
        remedies: Mapping[str, Any] = self._said(table, "remedies", dict, {})
        self.check_keys("remedies", remedies, REMEDY_KEYS)
        return MappingProxyType({name: self._changes(remedies, name, known) for name in remedies})

    def _memory(self, table: Mapping[str, Any]) -> Mapping[str, int]:
        sizes: Mapping[str, Any] = self._said(table, "memory", dict, {})
        self.check_keys("memory", sizes, MEMORY_KEYS)
        for name, key in MEMORY_KEYS.items() if sizes else ():
            if self.get(sizes, f"memory.{name}", int, key.takes) < 0:
                raise self.error(f"memory.{name}", f"memory.{name} = {sizes[name]}: expected {key.takes}")
        return MappingProxyType(dict(sizes))

    def _changes(
        self, remedies: Mapping[str, Any], name: str, known: Mapping[str, Parameter]
    ) -> Mapping[str, Scalar]:
        where = f"remedies.{name}"
        changes = self.get(remedies, where, dict, REMEDY_KEYS[name].takes)
        if set(changes) == {"recipe"}:
            return MappingProxyType(
                {"recipe": self.matching(changes, f"{where}.recipe", _NAME, "a recipe's name")}
            )
        self.check_keys(where, changes, (*known, "recipe"))
        if not changes or "recipe" in changes:
            raise self.error(where, f"{where}: expected another recipe alone, or values of parameters")
        at = f"{self.at(where)}: {where}"
        return MappingProxyType(
            {key: parameters.convert(known[key], value, f"{at}.{key}") for key, value in changes.items()}
        )

    def _gpu_hours(self, table: Mapping[str, Any]) -> float | None:
        hours = self.number(table, "gpu_hours")
        if hours is not None and not 0 <= hours < math.inf:
            raise self.error("gpu_hours", f"gpu_hours = {hours!r}: expected {RECIPE_KEYS['gpu_hours'].takes}")
        return hours

    def _max_restarts(self, table: Mapping[str, Any]) -> int | None:
        number: int | None = self._said(table, "max_restarts", int, None)
        if number is not None and not 0 <= number <= MAX_RESTARTS:
            raise self.error(
                "max_restarts", f"max_restarts = {number}: expected {RECIPE_KEYS['max_restarts'].takes}"
            )
        return number

    def _sweep(
        self, table: Mapping[str, Any] | None, known: Mapping[str, Parameter], devices: str
    ) -> Sweep | None:
        if table is None:
            return None
        self.check_keys("sweep", table, SWEEP_KEYS)
        name = self.get(table, "sweep.parameter", str, SWEEP_KEYS["parameter"].takes)
        if name not in known and name != WORLD_SIZE:
            near = get_close_matches(name, (*known, WORLD_SIZE), 1)
            hint = f"did you mean {near[0]}?" if near else f"one of {', '.join((*known, WORLD_SIZE))}"
            raise self.error("sweep.parameter", f"sweep.parameter = {name!r}: no such parameter", hint)
        if name == WORLD_SIZE and devices != "multiple":
            raise self.error("sweep.parameter", f'{WORLD_SIZE} needs devices = "multiple"')
        values = self.get(table, "sweep.values", list, SWEEP_KEYS["values"].takes, None)
        if not values:
            raise self.error("sweep.values", "sweep.values: expected at least one value")
        at = f"{self.at('sweep.values')}: sweep.values"
        kind = known.get(name, RANKS)
        converted = tuple(parameters.convert(kind, value, at) for value in values)
        return Sweep(name, converted, self._divided(table, name, known))

    def _divided(self, table: Mapping[str, Any], swept: str, known: Mapping[str, Parameter]) -> str | None:
        """The parameter with the total that the ranks of a sweep divide."""
        divided: str | None = self.get(table, "sweep.divides", str, SWEEP_KEYS["divides"].takes, None)
        if divided is not None and (
            swept != WORLD_SIZE or divided not in known or known[divided].type != "int"
        ):
            raise self.error(
                "sweep.divides", f"sweep.divides = {divided!r}: expected a whole number that ranks share"
            )
        return divided

    def _environment(self, table: Mapping[str, Any] | None) -> Environment | None:
        if table is None:
            return None
        environment, problems = read_environment(None, table, lambda key: self.at(f"environment.{key}"))
        if problems:
            raise problems[0]
        return environment
