"""Reads the table [parameters.NAME] of a recipe into a frozen value, and checks it key by key."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from coach.launch import parameters
from coach.launch.parameters import Parameter
from coach.launch.table_reader import Keys, TableKey, TableReader
from coach.model.errors import UserError
from coach.model.launching.launch import Scalar

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}", re.ASCII)
PARAMETER_KEYS: Keys = {
    "type": TableKey(
        f"one of {', '.join(parameters.TYPES)}",
        "The type of its value; required here, or in the file that parameters_of names.",
    ),
    "default": TableKey(
        "a value of its type",
        "The value unless a launch sets another; required here, or in the file that parameters_of names.",
    ),
    "above": TableKey("a number", "Its value must be greater."),
    "min": TableKey("a number", "The smallest allowed value."),
    "max": TableKey("a number", "The largest allowed value."),
    "choices": TableKey("a list", "The allowed values; without this key, any."),
    "usual": TableKey("[LOW, HIGH]", "The usual range: the plan warns of a value outside it."),
    "help": TableKey("text", "Its meaning."),
    "unit": TableKey("text", "The unit of its value."),
}


def read_parameter(reader: TableReader, name: str, table: Any) -> Parameter:
    """One table as a value. Type and default are required; all other keys are optional."""
    where = f"parameters.{name}"
    if not isinstance(table, dict) or not _NAME.fullmatch(name):
        raise reader.error(where, f"{where}: expected a table with a name of small letters, digits and _")
    reader.check_keys(where, table, PARAMETER_KEYS)
    kind = reader.get(table, f"{where}.type", str, PARAMETER_KEYS["type"].takes)
    if kind not in parameters.TYPES:
        raise reader.error(
            f"{where}.type", f"{where}.type = {kind!r}: expected one of {', '.join(parameters.TYPES)}"
        )
    if "default" not in table:
        raise reader.error(where, f"{where}: the key default is missing")
    free = Parameter(name, kind, "", "")
    choices = reader.get(table, f"{where}.choices", list, "a list", [])
    limited = Parameter(
        name=name,
        type=kind,
        default="",
        help=reader.get(table, f"{where}.help", str, "text", ""),
        unit=reader.get(table, f"{where}.unit", str, "text", ""),
        above=reader.number(table, f"{where}.above"),
        min=reader.number(table, f"{where}.min"),
        max=reader.number(table, f"{where}.max"),
        choices=tuple(_converted(reader, free, choice, f"{where}.choices") for choice in choices),
        usual=_usual(reader, table, f"{where}.usual"),
    )
    key, default = f"{where}.default", table["default"]
    if kind != "str" and isinstance(default, str):
        raise reader.error(key, f"{key} = {default!r}: expected a value of type {kind}, without quotes")
    return replace(limited, default=_converted(reader, limited, default, key))


def _converted(reader: TableReader, parameter: Parameter, value: Any, key: str) -> Scalar:
    """The value in the parameter's type. The key's line is searched only for an error message."""
    try:
        return parameters.convert(parameter, value, key)
    except UserError:
        return parameters.convert(parameter, value, f"{reader.at(key)}: {key}")


def _usual(reader: TableReader, table: Mapping[str, Any], key: str) -> tuple[float, float] | None:
    pair = reader.get(table, key, list, "[LOW, HIGH]", None)
    if pair is None:
        return None
    is_pair = len(pair) == 2 and all(
        isinstance(end, (int, float)) and not isinstance(end, bool) for end in pair
    )
    if not is_pair or pair[0] > pair[1]:
        raise reader.error(key, f"{key} = {pair!r}: expected [LOW, HIGH]")
    return (float(pair[0]), float(pair[1]))
