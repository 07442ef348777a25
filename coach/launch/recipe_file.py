"""One recipe's TOML, checked key by key and read into frozen values.

A recipe is data, so that a newcomer adds one without touching code; therefore every mistake in it is refused
with file, line, key, what is wrong and what would be right.
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
from coach.launch.table_reader import TableReader, parse_table
from coach.launch.trainer_arguments import TrainerArguments, declares_options
from coach.model.errors import UserError
from coach.model.launching.environment import Environment
from coach.model.launching.launch import OwnProgram, Scalar
from coach.model.teaching.drill import Drill
from coach.node.torch_build import satisfies

WORLD_SIZE = "world_size"
"""What a sweep may go over beside the recipe's parameters: the number of ranks."""

RANKS = Parameter(WORLD_SIZE, "int", 1, "Ranks in all", min=1)

MAX_RESTARTS = 100
"""More failures of one run than that are no accident."""

_NAME = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.-]{0,63}", re.ASCII)
_TRAINER = re.compile(r"[a-z][a-z0-9_]*\.py", re.ASCII)
_REQUIREMENT = 'a requirement such as ">=2.6" or ">=2.6,<3"'
_MODULE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", re.ASCII)
_CODE = re.compile(r"[A-Z]{3}\d{3}", re.ASCII)
_RECIPE_KEYS = (
    *("schema", "name", "title", "summary", "trainer", "devices", "key", "time", "torch", "requires"),
    *("teaches", "expect", "duration", "gpu_hours", "watch", "next", "expects", "uneven_by_design"),
    *("environment", "ranks", "max_restarts", "sweep", "drill", "remedies", "parameters_of", "parameters"),
)
_DEVICES = ("single", "multiple", "one process")
_SWEEP_KEYS = ("parameter", "values", "divides")
_REMEDIES = ("shard", "rank_per_device")


@dataclass(frozen=True, slots=True)
class Sweep:
    """A recipe that launches a group of runs, one for each value."""

    parameter: str
    """One of the recipe's parameters, or `world_size`."""
    values: tuple[Scalar, ...]
    """Those that are swept unless others are said."""
    divides: str | None = None
    """Of a sweep over ranks: a whole number that all ranks share, such as `batch_size`."""

    @property
    def names(self) -> tuple[str, ...]:
        """What `--set` may call the values: `world_sizes=1,2,4`, or the parameter's own name with commas."""
        plural = self.parameter if self.parameter.endswith("s") else f"{self.parameter}s"
        return tuple(dict.fromkeys((plural, self.parameter)))


@dataclass(frozen=True, slots=True)
class Recipe:
    """What to launch. `devices` is `single` (one rank), `multiple` (a rank for each device) or `one process`
    (one rank for all devices of a node); `key` launches it from any screen."""

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
    """The versions of torch that it can do with, for example `>=2.6`; None: any."""
    environment: Environment | None = None
    """Where it trains unless site or user say otherwise. Table [environment]."""
    requires: tuple[str, ...] = ()
    """Modules that the training environment must have beside torch."""
    teaches: str = ""
    expect: str = ""
    """What will be seen, and why."""
    duration: str = ""
    gpu_hours: float | None = None
    """What a run with the defaults costs, calculated."""
    watch: tuple[str, ...] = ()
    """Codes of the rules worth watching."""
    next: str | None = None
    """The next step of the ladder: a recipe's name."""
    expects: tuple[str, ...] = ()
    """Codes of findings that it shows on purpose; for its runs they are `info`."""
    uneven_by_design: bool = False
    """True if its ranks do unequal work on purpose, as the stages of a pipeline do: rules do not compare
    them."""
    remedies: Mapping[str, Mapping[str, Scalar]] = field(default_factory=dict)
    """Remedy → the changes of a launch that carry it out for this recipe.

    `shard`: model and optimizer in shares, one per rank; `rank_per_device`: one rank for each device. A
    change is another `recipe`, or a parameter's value.
    """
    ranks: int | None = None
    """Ranks in all, unless the launch says; None: one for each device, or two."""
    max_restarts: int | None = None
    """How often torchrun starts all ranks anew after one has failed, unless the launch says; None: never."""
    sweep: Sweep | None = None
    drill: Drill | None = None
    """The fault that it plants; None: it is no drill."""
    own_trainers: Path | None = None
    """The folder of a user's recipe that holds its trainer; None: the trainer is one of coach's."""
    own: OwnProgram | None = None
    """A person's own program, for which this stands; None: it is a recipe."""

    @property
    def kind(self) -> str:
        """What a list says of it: its devices, or what kind of own program it is."""
        return self.devices if self.own is None else str(self.own.kind)

    @property
    def is_single_device(self) -> bool:
        return self.devices == "single"

    @property
    def is_one_process(self) -> bool:
        """One rank on one node, on one device or on several."""
        return self.devices in ("single", "one process")

    def trainer_path(self, trainers: Path) -> Path:
        """The trainer's file. `trainers` is the folder of coach's own."""
        return (self.own_trainers or trainers) / self.trainer


def read_recipe_file(path: Path, trainers: Path, arguments: TrainerArguments | None = None) -> Recipe:
    """Read one recipe. Its trainer lies beside it, or is one of `trainers`.

    `arguments` is what reads the trainers, if it is to remember them for the next recipe.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: {getattr(error, 'strerror', None) or 'not UTF-8 text'}") from None
    try:
        table = parse_table(text)
    except ValueError as error:
        raise UserError(f"{path}: not valid TOML: {error}") from None
    return _Reader(path, text, arguments or TrainerArguments(trainers)).recipe(table, trainers)


def _merged(inherited: Mapping[str, Any], own: Mapping[str, Any]) -> Mapping[str, Any]:
    """Inherited parameters with what the recipe itself says of them, and its own ones."""
    merged = {key: _changed(values, own.get(key, {})) for key, values in inherited.items()}
    return {**merged, **{key: values for key, values in own.items() if key not in merged}}


def _changed(values: Any, own: Any) -> Any:
    """One inherited table with the recipe's own keys; what is no table is refused where tables are read."""
    return {**values, **own} if isinstance(values, dict) and isinstance(own, dict) else own


class _Reader(TableReader):
    """Checks one parsed file key by key."""

    def __init__(self, path: Path, text: str, arguments: TrainerArguments) -> None:
        super().__init__(path, text)
        self._arguments = arguments

    def recipe(self, table: Mapping[str, Any], trainers: Path) -> Recipe:
        self.check_keys("", table, _RECIPE_KEYS)
        schema = self.get(table, "schema", int, "1")
        if schema != 1:
            raise self.error("schema", f"schema = {schema}: this coach reads schema 1")
        name = self.matching(table, "name", _NAME, "letters, digits, _ . and -")
        known = ", ".join(f'"{kind}"' for kind in _DEVICES)
        devices = self.get(table, "devices", str, f"one of {known}")
        if devices not in _DEVICES:
            raise self.error("devices", f"devices = {devices!r}: expected one of {known}")
        trainer, is_own = self._trainer(table, trainers)
        key = self._key(table)
        time = self.get(table, "time", str, 'a time such as "00:30:00"')
        torch = self.get(table, "torch", str, _REQUIREMENT, None)
        if torch is not None and satisfies("2.0", torch) is None:
            raise self.error("torch", f"torch = {torch!r}: expected {_REQUIREMENT}")
        base = self._base(table, trainers)
        own: Mapping[str, Any] = self.get(table, "parameters", dict, "a table", {})
        tables = _merged(base.get("parameters", {}), own)
        read = MappingProxyType({key: read_parameter(self, key, tables[key]) for key in tables})
        return Recipe(
            name=name,
            title=self.get(table, "title", str, "text"),
            summary=self.get(table, "summary", str, "text"),
            trainer=trainer,
            devices=devices,
            key=key,
            time_limit_s=parse_time(time, f"{self.at('time')}: time ="),
            parameters=read,
            path=self.path,
            torch=torch,
            environment=self._environment(self.get(table, "environment", dict, "a table", None)),
            requires=self.words(table, "requires", _MODULE, 'modules, for example ["nvidia.dali"]'),
            teaches=self.get(table, "teaches", str, "text", ""),
            expect=self.get(table, "expect", str, "text", ""),
            duration=self.get(table, "duration", str, "text", ""),
            gpu_hours=self._gpu_hours(table),
            watch=self.words(table, "watch", _CODE, 'codes of rules, for example ["GPU005"]'),
            next=self.matching(table, "next", _NAME, "a recipe's name") if "next" in table else None,
            expects=self.words(table, "expects", _CODE, 'codes of rules, for example ["DST016"]'),
            uneven_by_design=self.get(table, "uneven_by_design", bool, "true or false", False),
            remedies=self._remedies(table if "remedies" in table else base, read),
            ranks=self.get(table, "ranks", int, "a whole number", None),
            max_restarts=self._max_restarts(table),
            sweep=self._sweep(self.get(table, "sweep", dict, "a table", None), read, devices),
            drill=read_drill(self, self.get(table, "drill", dict, "a table", None), read),
            own_trainers=self.path.parent if is_own else None,
        )

    def _trainer(self, table: Mapping[str, Any], trainers: Path) -> tuple[str, bool]:
        """The trainer's file, and True if it lies beside the recipe instead of among coach's own."""
        trainer = self.matching(table, "trainer", _TRAINER, 'a file of trainers/, for example "ddp.py"')
        beside = self.path.parent
        is_own = beside != trainers and (beside / trainer).is_file()
        if not is_own and not (trainers / trainer).is_file():
            raise self.error("trainer", f"trainer = {trainer!r}: no such file in {trainers}")
        return trainer, is_own

    def _key(self, table: Mapping[str, Any]) -> str | None:
        key: str | None = self.get(table, "key", str, "one character", None)
        if key is not None and not (len(key) == 1 and key.isprintable()):
            raise self.error("key", f"key = {key!r}: expected one character")
        return key

    def _base(self, table: Mapping[str, Any], trainers: Path) -> Mapping[str, Any]:
        """What `parameters_of` names, a recipe or a trainer; empty where none is named.

        What this one says itself wins, key by key.
        """
        if "parameters_of" not in table:
            return {}
        name = self.matching(table, "parameters_of", _NAME, "a recipe's name")
        if _TRAINER.fullmatch(name):
            return {"parameters": self._declared(name, self.path.parent, trainers)}
        places = (self.path.parent / f"{name}.toml", trainers.parent / "recipes" / f"{name}.toml")
        path = next((place for place in places if place.is_file()), None)
        if path is None or path == self.path:
            raise self.error("parameters_of", f"parameters_of = {name!r}: no such recipe")
        try:
            base = parse_table(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise self.error(
                "parameters_of", f"parameters_of = {name!r}: {path} cannot be read: {error}"
            ) from None
        trainer = base.get("parameters_of")
        if not isinstance(trainer, str) or not _TRAINER.fullmatch(trainer):
            return base
        declared = self._declared(trainer, path.parent, trainers)
        return {**base, "parameters": _merged(declared, base.get("parameters", {}))}

    def _declared(self, trainer: str, beside: Path, trainers: Path) -> Mapping[str, Any]:
        """The parameters that a trainer declares: the one beside its recipe, else coach's of the same name.

        A user may put a script that declares nothing in the place of a copied trainer: it gets the same
        options.
        """
        paths = [place / trainer for place in (beside, trainers) if (place / trainer).is_file()]
        if not paths:
            raise self.error("parameters_of", f"parameters_of = {trainer!r}: no such trainer")
        return self._arguments.of(next(filter(declares_options, paths), paths[0]))

    def _remedies(
        self, table: Mapping[str, Any], known: Mapping[str, Parameter]
    ) -> Mapping[str, Mapping[str, Scalar]]:
        remedies: Mapping[str, Any] = self.get(table, "remedies", dict, "a table", {})
        self.check_keys("remedies", remedies, _REMEDIES)
        return MappingProxyType({name: self._changes(remedies, name, known) for name in remedies})

    def _changes(
        self, remedies: Mapping[str, Any], name: str, known: Mapping[str, Parameter]
    ) -> Mapping[str, Scalar]:
        where = f"remedies.{name}"
        changes = self.get(remedies, where, dict, 'a table of changes, for example { recipe = "fsdp" }')
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
            raise self.error("gpu_hours", f"gpu_hours = {hours!r}: expected a number from 0")
        return hours

    def _max_restarts(self, table: Mapping[str, Any]) -> int | None:
        wanted = f"a whole number from 0 to {MAX_RESTARTS}"
        number: int | None = self.get(table, "max_restarts", int, wanted, None)
        if number is not None and not 0 <= number <= MAX_RESTARTS:
            raise self.error("max_restarts", f"max_restarts = {number}: expected {wanted}")
        return number

    def _sweep(
        self, table: Mapping[str, Any] | None, known: Mapping[str, Parameter], devices: str
    ) -> Sweep | None:
        if table is None:
            return None
        self.check_keys("sweep", table, _SWEEP_KEYS)
        name = self.get(table, "sweep.parameter", str, f"one of the parameters, or {WORLD_SIZE}")
        if name not in known and name != WORLD_SIZE:
            near = get_close_matches(name, (*known, WORLD_SIZE), 1)
            hint = f"did you mean {near[0]}?" if near else f"one of {', '.join((*known, WORLD_SIZE))}"
            raise self.error("sweep.parameter", f"sweep.parameter = {name!r}: no such parameter", hint)
        if name == WORLD_SIZE and devices != "multiple":
            raise self.error("sweep.parameter", f'{WORLD_SIZE} needs devices = "multiple"')
        values = self.get(table, "sweep.values", list, "a list", None)
        if not values:
            raise self.error("sweep.values", "sweep.values: expected at least one value")
        at = f"{self.at('sweep.values')}: sweep.values"
        kind = known.get(name, RANKS)
        converted = tuple(parameters.convert(kind, value, at) for value in values)
        return Sweep(name, converted, self._divided(table, name, known))

    def _divided(self, table: Mapping[str, Any], swept: str, known: Mapping[str, Parameter]) -> str | None:
        """What the ranks of a sweep share."""
        divided: str | None = self.get(table, "sweep.divides", str, "a parameter", None)
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
