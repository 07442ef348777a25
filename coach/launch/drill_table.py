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
from coach.launch.table_reader import Keys, TableKey, TableReader
from coach.model.launching.launch import Scalar
from coach.model.teaching.drill import Drill, Need, Twin
from coach.model.toml_text import quoted

_CAUSE = re.compile(r"[a-z][a-z0-9_]{0,63}", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.-]{0,63}", re.ASCII)
_CAUSES = 'causes such as ["input_bound"]'
DRILL_KEYS: Keys = {
    "planted": TableKey(
        'a cause such as "input_bound"', "The cause that its finding must have.", is_needed=True
    ),
    "also": TableKey(_CAUSES, "Further causes that its finding may have; they are offered too."),
    "choices": TableKey(
        _CAUSES, "The answers offered to a learner: 4 to 6, the planted one among them.", is_needed=True
    ),
    "needs": TableKey(
        f"a list of {', '.join(Need)}", "Hardware or software without which it shows no symptom."
    ),
    "is_live": TableKey("true or false", "True if its symptom shows while it runs."),
    "set": TableKey("a table of parameters", "Values of parameters for its launch."),
    "options": TableKey("a table of options", "Options of its launch."),
    "mend": TableKey("text", "The place of the fault in the code, which the learner edits."),
    "twin": TableKey("a table", "The launch of the same size without the fault.", is_needed=True),
}
TWIN_KEYS: Keys = {
    "recipe": TableKey("a recipe's name", "The recipe that is launched.", is_needed=True),
    "set": TableKey("a table of parameters", "Values of its parameters."),
    "options": TableKey("a table of options", "Options of its launch."),
}
OPTIONS: Mapping[str, tuple[str, type, str]] = {
    "num_nodes": ("num_nodes", int, "a whole number"),
    "gpus_per_node": ("gpus_per_node", int, "a whole number"),
    "nproc_per_node": ("nproc_per_node", int, "a whole number"),
    "cpus_per_task": ("cpus_per_task", int, "a whole number"),
    "max_restarts": ("max_restarts", int, "a whole number"),
    "mem": ("mem", str, 'memory such as "600M"'),
    "time": ("time_limit_s", str, 'a time such as "00:01:00"'),
    "signal": ("signal", str, 'a signal such as "USR1@60"'),
    "setup": ("setup", list, "lines of shell"),
    "env": ("env", dict, "a table of variables"),
    "sbatch": ("sbatch", dict, "a table of options"),
}
"""Option → (field of `LaunchRequest`, type, description of a valid value). The names match the fields, except
`time`, which is in Slurm's format."""


def read_drill(
    reader: TableReader, table: Mapping[str, Any] | None, known: Mapping[str, Parameter]
) -> Drill | None:
    """The table as a value, or None if there is no table. `known` are the recipe's parameters."""
    if table is None:
        return None
    reader.check_keys("drill", table, DRILL_KEYS)
    planted = reader.matching(table, "drill.planted", _CAUSE, DRILL_KEYS["planted"].takes)
    choices = reader.words(table, "drill.choices", _CAUSE, DRILL_KEYS["choices"].takes)
    also = reader.words(table, "drill.also", _CAUSE, DRILL_KEYS["also"].takes)
    if not 4 <= len(set(choices)) == len(choices) <= 6 or planted not in choices:
        raise reader.error(
            "drill.choices", "drill.choices: expected 4 to 6 causes, the planted one among them"
        )
    needs = reader.words(table, "drill.needs", _CAUSE, DRILL_KEYS["needs"].takes)
    for need in needs:
        if need not in tuple(Need):
            raise reader.error("drill.needs", f"drill.needs: {need!r} is none of {', '.join(Need)}")
    twin = reader.get(table, "drill.twin", dict, DRILL_KEYS["twin"].takes)
    reader.check_keys("drill.twin", twin, TWIN_KEYS)
    return Drill(
        planted=planted,
        choices=tuple(sorted({*choices, *also})),  # a drill's author often lists the planted one first
        twin=Twin(
            recipe=reader.matching(twin, "drill.twin.recipe", _NAME, TWIN_KEYS["recipe"].takes),
            set=_scalars(reader, twin, "drill.twin.set"),
            options=_options(reader, twin, "drill.twin.options"),
        ),
        also=also,
        needs=tuple(map(Need, needs)),
        is_live=reader.get(table, "drill.is_live", bool, DRILL_KEYS["is_live"].takes, True),
        set=_values(reader, table, known),
        options=_options(reader, table, "drill.options"),
        mend=reader.get(table, "drill.mend", str, DRILL_KEYS["mend"].takes, None),
    )


def _scalars(reader: TableReader, table: Mapping[str, Any], key: str) -> dict[str, Scalar]:
    values: dict[str, Any] = reader.get(table, key, dict, DRILL_KEYS["set"].takes, {})
    for name, value in values.items():
        if not isinstance(value, Scalar):
            raise reader.error(key, f"{key}.{name} = {quoted(value)}: expected text, a number, true or false")
    return dict(values)


def _values(
    reader: TableReader, table: Mapping[str, Any], known: Mapping[str, Parameter]
) -> dict[str, Scalar]:
    key = "drill.set"
    values = _scalars(reader, table, key)
    reader.check_keys(key, values, known)
    return {
        name: parameters.convert(known[name], value, f"{reader.at(key)}: {key}.{name}")
        for name, value in values.items()
    }


def _options(reader: TableReader, table: Mapping[str, Any], key: str) -> dict[str, Any]:
    options = reader.get(table, key, dict, DRILL_KEYS["options"].takes, {})
    reader.check_keys(key, options, OPTIONS)
    found: dict[str, Any] = {}
    for name in options:
        field, kind, wanted = OPTIONS[name]
        value = reader.get(options, f"{key}.{name}", kind, wanted)
        if name == "time":
            value = parse_time(value, f"{reader.at(f'{key}.{name}')}: time =")
        elif kind is list:
            value = tuple(map(str, value))
        elif kind is dict:
            value = {str(word): str(said) for word, said in value.items()}
        found[field] = value
    return found
