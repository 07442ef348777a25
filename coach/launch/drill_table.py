"""Reads the table [drill] of a recipe key by key: the planted fault, the answers offered, and the twin
without the fault.

It is apart from recipe_file.py because everybody may read a recipe, but nobody should see this table before
answering the drill.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from coach.launch import parameters
from coach.launch.parameters import Parameter
from coach.launch.spelling import parse_time
from coach.model.launching.launch import Scalar
from coach.model.teaching.drill import Drill, Need, Twin
from coach.model.toml_schema import (
    COUNT,
    FLAG,
    STRING,
    TABLE,
    Key,
    Kind,
    Schema,
    TableReader,
    list_of,
    matching,
    one_of,
    refuse,
    spelt,
    typed,
)

_CAUSE = matching(re.compile(r"[a-z][a-z0-9_]{0,63}", re.ASCII), 'a cause such as "input_bound"')
_CAUSES = list_of(_CAUSE, 'causes such as ["input_bound"]')
_NAME = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.-]{0,63}", re.ASCII)
_OPTIONS = typed("a table of options", dict)
_PARAMETERS = typed("a table of parameters", dict)


def _texts(table: Any) -> dict[str, str]:
    return {str(name): str(value) for name, value in TABLE(table).items()}


DRILL_KEYS: Schema = {
    "planted": Key(_CAUSE, "The cause that its finding must have.", is_needed=True),
    "also": Key(_CAUSES, "Further causes that its finding may have; they are offered too.", default=()),
    "choices": Key(
        _CAUSES, "The answers offered to a learner: 4 to 6, the planted one among them.", is_needed=True
    ),
    "needs": Key(
        list_of(one_of(Need), f"a list of {', '.join(Need)}"),
        "Hardware or software without which it shows no symptom.",
        default=(),
    ),
    "is_live": Key(FLAG, "True if its symptom shows while it runs.", default=True),
    "set": Key(_PARAMETERS, "Values of parameters for its launch.", default={}),
    "options": Key(_OPTIONS, "Options of its launch.", default={}),
    "mend": Key(STRING, "The place of the fault in the code, which the learner edits."),
    "twin": Key(TABLE, "The launch of the same size without the fault.", is_needed=True),
}
TWIN_KEYS: Schema = {
    "recipe": Key(matching(_NAME, "a recipe's name"), "The recipe that is launched.", is_needed=True),
    "set": Key(_PARAMETERS, "Values of its parameters.", default={}),
    "options": Key(_OPTIONS, "Options of its launch.", default={}),
}
OPTIONS: Mapping[str, tuple[str, Kind]] = {
    "num_nodes": ("num_nodes", COUNT),
    "gpus_per_node": ("gpus_per_node", COUNT),
    "nproc_per_node": ("nproc_per_node", COUNT),
    "cpus_per_task": ("cpus_per_task", COUNT),
    "max_restarts": ("max_restarts", COUNT),
    "mem": ("mem", typed('memory such as "600M"', str)),
    "time": ("time_limit_s", spelt('a time such as "00:01:00"', parse_time)),
    "signal": ("signal", typed('a signal such as "USR1@60"', str)),
    "setup": ("setup", list_of(STRING, "lines of shell")),
    "env": ("env", Kind("a table of variables", _texts)),
    "sbatch": ("sbatch", Kind("a table of options", _texts)),
}
"""Option → field of `LaunchRequest`, and the kind of its value."""


def read_drill(
    reader: TableReader, table: Mapping[str, Any] | None, known: Mapping[str, Parameter]
) -> Drill | None:
    """The table as a value, or None if there is no table. `known` are the recipe's parameters."""
    if table is None:
        return None
    values = reader.values("drill", table, DRILL_KEYS)
    planted, choices, also = values["planted"], values["choices"], values["also"]
    if not 4 <= len(set(choices)) == len(choices) <= 6 or planted not in choices:
        raise reader.error(
            "drill.choices", "drill.choices: expected 4 to 6 causes, the planted one among them"
        )
    twin = reader.values("drill.twin", values["twin"], TWIN_KEYS)
    key = "drill.set"
    said = _scalars(reader, values["set"], key)
    refuse(reader.unknown_keys(key, said, known))
    return Drill(
        planted=planted,
        choices=tuple(sorted({*choices, *also})),  # a drill's author often lists the planted one first
        twin=Twin(
            recipe=twin["recipe"],
            set=_scalars(reader, twin["set"], "drill.twin.set"),
            options=_options(reader, twin["options"], "drill.twin.options"),
        ),
        also=also,
        needs=tuple(map(Need, values["needs"])),
        is_live=values["is_live"],
        set={
            name: parameters.convert(known[name], value, f"{reader.at(key)}: {key}.{name}")
            for name, value in said.items()
        },
        options=_options(reader, values["options"], "drill.options"),
        mend=values["mend"],
    )


def _scalars(reader: TableReader, values: Mapping[str, Any], key: str) -> dict[str, Scalar]:
    scalar = typed("text, a number, true or false", str, int, float, bool)
    return {name: reader.check(f"{key}.{name}", scalar, value) for name, value in values.items()}


def _options(reader: TableReader, options: Mapping[str, Any], key: str) -> dict[str, Any]:
    refuse(reader.unknown_keys(key, options, OPTIONS))
    found: dict[str, Any] = {}
    for name, value in options.items():
        field, kind = OPTIONS[name]
        found[field] = reader.check(f"{key}.{name}", kind, value)
    return found
