"""Reads one recipe's TOML into frozen values, and checks it key by key.

A recipe is data, so a newcomer can add one without touching code. An error therefore names the file, the line
and the key, and says what is wrong and what would be right.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
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
from coach.launch.trainer_arguments import TrainerArguments, declares_options
from coach.model.errors import UserError
from coach.model.launching.environment import Environment
from coach.model.launching.launch import OwnProgram, Scalar
from coach.model.teaching.drill import Drill
from coach.model.toml_schema import (
    COUNT,
    FIRST_VERSION,
    FLAG,
    NUMBER,
    STRING,
    TABLE,
    Key,
    Kind,
    Schema,
    TomlFile,
    fulfilling,
    list_of,
    matching,
    one_of,
    parsed,
    refuse,
    spelt,
    typed,
    whole,
)
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
_RECIPE = matching(_NAME, "a recipe's name")
_CHANGES = typed('a table of changes, for example { recipe = "fsdp" }', dict)
_MIB = fulfilling(COUNT, lambda size_mib: size_mib >= 0, "MiB from 0")


def codes_of_rules(example: str) -> Kind:
    """A list of codes of rules."""
    return list_of(matching(_CODE, "a code"), f'codes of rules, for example ["{example}"]')


RECIPE_KEYS: Schema = {
    "schema": Key(FIRST_VERSION, "The version of this format.", is_needed=True),
    "name": Key(
        matching(_NAME, "letters, digits, _ . and -"), "What `coach launch` calls it.", is_needed=True
    ),
    "title": Key(STRING, "One line for lists.", is_needed=True),
    "summary": Key(STRING, "What it does, in two or three sentences.", is_needed=True),
    "trainer": Key(
        matching(_TRAINER, 'a file of trainers/, for example "ddp.py"'),
        "Its program: a file beside the recipe, or one of coach's.",
        is_needed=True,
    ),
    "devices": Key(
        one_of(_DEVICES, "one of " + ", ".join(f'"{kind}"' for kind in _DEVICES)),
        "One rank, a rank for each device, or one rank for all devices of a node.",
        is_needed=True,
    ),
    "key": Key(
        fulfilling(STRING, lambda key: len(key) == 1 and key.isprintable(), "one character"),
        "The key that launches it from any screen. Coach's own recipes have 1 to 5; users and sites give "
        "6 to 9 in [keys] of the config.",
    ),
    "time": Key(
        spelt('a time such as "00:30:00"', parse_time), "The time limit of its runs.", is_needed=True
    ),
    "torch": Key(
        fulfilling(
            STRING,
            lambda torch: satisfies("2.0", torch) is not None,
            'a requirement such as ">=2.6" or ">=2.6,<3"',
        ),
        "The versions of torch with which it works.",
    ),
    "requires": Key(
        list_of(matching(_MODULE, "a module"), 'modules, for example ["nvidia.dali"]'),
        "Modules that the training environment must have beside torch.",
        default=(),
    ),
    "teaches": Key(STRING, "What a learner takes from it.", default=""),
    "expect": Key(STRING, "The result to expect, and the reason.", default=""),
    "duration": Key(STRING, "How long a run with the defaults takes, and on what.", default=""),
    "gpu_hours": Key(
        fulfilling(NUMBER, lambda hours: 0 <= hours < math.inf, "a number from 0"),
        "What a run with the defaults costs, calculated.",
    ),
    "watch": Key(codes_of_rules("GPU005"), "Rules that are worth watching.", default=()),
    "next": Key(_RECIPE, "The next step of the ladder."),
    "expects": Key(
        codes_of_rules("DST016"),
        "Findings that it causes on purpose; for its runs they are `info`.",
        default=(),
    ),
    "uneven_by_design": Key(
        FLAG, "True if its ranks do unequal work on purpose: rules do not compare them.", default=False
    ),
    "environment": Key(
        TABLE, "Where it trains unless site or user say otherwise, as [environments.NAME] of the config."
    ),
    "memory": Key(
        TABLE, "The host memory that it needs on a node; without it the site's default.", default={}
    ),
    "ranks": Key(COUNT, "Ranks in all, unless the launch sets them."),
    "max_restarts": Key(
        whole(0, MAX_RESTARTS),
        "How many times torchrun restarts all ranks after a failure, unless the launch sets it.",
    ),
    "sweep": Key(TABLE, "Makes a launch a group of runs, one for each value."),
    "drill": Key(TABLE, "Makes it a drill: the planted fault, and the answers offered to a learner."),
    "remedies": Key(TABLE, "Changes of a launch that carry out a remedy for this recipe.", default={}),
    "parameters_of": Key(
        _RECIPE, "A recipe, or a trainer's file, that lends it parameters; its own keys override them."
    ),
    "parameters": Key(TABLE, "Its parameters, a table for each.", default={}),
}
SWEEP_KEYS: Schema = {
    "parameter": Key(
        typed(f"one of the parameters, or {WORLD_SIZE}", str),
        "The parameter that differs from run to run.",
        is_needed=True,
    ),
    "values": Key(
        fulfilling(typed("a list", list), bool, "a list with at least one value"),
        "The values, unless the launch gives others.",
        is_needed=True,
    ),
    "divides": Key(
        typed("one of the parameters, a whole number", str),
        "For a sweep over ranks: the total that they divide, for strong scaling.",
    ),
}
MEMORY_KEYS: Schema = {
    "node": Key(_MIB, "Resident memory of torchrun and the sampler.", is_needed=True),
    "rank": Key(_MIB, "Resident memory of a rank on CPUs.", is_needed=True),
    "worker": Key(_MIB, "Resident memory of a DataLoader worker.", is_needed=True),
}
REMEDY_KEYS: Schema = {
    "shard": Key(_CHANGES, "Model and optimizer in shares, one per rank.", default={}),
    "rank_per_device": Key(_CHANGES, "One rank for each device.", default={}),
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
    return _RecipeFile(path, read_named(path), arguments or TrainerArguments(trainers)).recipe(trainers)


def _merged(inherited: Mapping[str, Any], own: Mapping[str, Any]) -> Mapping[str, Any]:
    """The inherited parameters with the recipe's own changes, and its own parameters."""
    merged = {key: _changed(values, own.get(key, {})) for key, values in inherited.items()}
    return {**merged, **{key: values for key, values in own.items() if key not in merged}}


def _changed(values: Any, own: Any) -> Any:
    """One inherited table with the recipe's own keys. A value that is no table is refused later, when tables
    are read."""
    return {**values, **own} if isinstance(values, dict) and isinstance(own, dict) else own


class _RecipeFile(TomlFile):
    def __init__(self, path: Path, text: str, arguments: TrainerArguments) -> None:
        super().__init__(path, text)
        self._arguments = arguments

    def recipe(self, trainers: Path) -> Recipe:
        table = self.table
        values = self.values("", table, RECIPE_KEYS)
        is_own = self._has_trainer_beside(values["trainer"], trainers)
        base = self._base(values["parameters_of"], trainers)
        tables = _merged(base.get("parameters", {}), values["parameters"])
        known = MappingProxyType({key: read_parameter(self, key, tables[key]) for key in tables})
        values |= {
            "parameters": known,
            "environment": self._environment(values["environment"]),
            "remedies": self._remedies(table if "remedies" in table else base, known),
            "memory": self._memory(table if "memory" in table else base),
            "sweep": self._sweep(values["sweep"], known, values["devices"]),
            "drill": read_drill(self, values["drill"], known),
            "time_limit_s": values["time"],
            "path": self.path,
            "own_trainers": self.path.parent if is_own else None,
        }
        names = {item.name for item in fields(Recipe)}
        return Recipe(**{name: value for name, value in values.items() if name in names})

    def _has_trainer_beside(self, trainer: str, trainers: Path) -> bool:
        """True if the trainer lies beside the recipe and not among coach's own."""
        beside = self.path.parent
        is_own = beside != trainers and (beside / trainer).is_file()
        if not is_own and not (trainers / trainer).is_file():
            raise self.error("trainer", f"trainer = {trainer!r}: no such file in {trainers}")
        return is_own

    def _base(self, name: str | None, trainers: Path) -> Mapping[str, Any]:
        """The parameters of the recipe or trainer that `parameters_of` names; empty if none is named.

        The recipe's own keys win over them.
        """
        return {} if name is None else self._lent(name, (self.path,), trainers)

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
            base = parsed(path, read_named(path))
        except UserError as error:
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
        named = self.check("remedies", TABLE, table.get("remedies", {}))
        remedies = self.values("remedies", named, REMEDY_KEYS)
        return MappingProxyType({name: self._changes(remedies[name], name, known) for name in named})

    def _memory(self, table: Mapping[str, Any]) -> Mapping[str, int]:
        sizes = self.check("memory", TABLE, table.get("memory", {}))
        return MappingProxyType(self.values("memory", sizes, MEMORY_KEYS) if sizes else {})

    def _changes(
        self, changes: Mapping[str, Any], name: str, known: Mapping[str, Parameter]
    ) -> Mapping[str, Scalar]:
        where = f"remedies.{name}"
        if set(changes) == {"recipe"}:
            return MappingProxyType({"recipe": self.check(f"{where}.recipe", _RECIPE, changes["recipe"])})
        refuse(self.unknown_keys(where, changes, (*known, "recipe")))
        if not changes or "recipe" in changes:
            raise self.error(where, f"{where}: expected another recipe alone, or values of parameters")
        at = f"{self.at(where)}: {where}"
        return MappingProxyType(
            {key: parameters.convert(known[key], value, f"{at}.{key}") for key, value in changes.items()}
        )

    def _sweep(
        self, table: Mapping[str, Any] | None, known: Mapping[str, Parameter], devices: str
    ) -> Sweep | None:
        if table is None:
            return None
        values = self.values("sweep", table, SWEEP_KEYS)
        name, divided = values["parameter"], values["divides"]
        if name not in known and name != WORLD_SIZE:
            near = get_close_matches(name, (*known, WORLD_SIZE), 1)
            hint = f"did you mean {near[0]}?" if near else f"one of {', '.join((*known, WORLD_SIZE))}"
            raise self.error("sweep.parameter", f"sweep.parameter = {name!r}: no such parameter", hint)
        if name == WORLD_SIZE and devices != "multiple":
            raise self.error("sweep.parameter", f'{WORLD_SIZE} needs devices = "multiple"')
        is_shared = name == WORLD_SIZE and divided in known and known[divided].type == "int"
        if divided is not None and not is_shared:
            raise self.error(
                "sweep.divides", f"sweep.divides = {divided!r}: expected a whole number that ranks share"
            )
        at = f"{self.at('sweep.values')}: sweep.values"
        kind = known.get(name, RANKS)
        return Sweep(name, tuple(parameters.convert(kind, value, at) for value in values["values"]), divided)

    def _environment(self, table: Mapping[str, Any] | None) -> Environment | None:
        if table is None:
            return None
        environment, problems = read_environment(self, None, table)
        refuse(problems)
        return environment
