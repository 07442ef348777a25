"""Reads the table [parameters.NAME] of a recipe into a frozen value, and checks it key by key."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from coach.launch import parameters
from coach.launch.parameters import Parameter
from coach.model.errors import UserError
from coach.model.launching.launch import Scalar
from coach.model.toml_schema import (
    NUMBER,
    STRING,
    Key,
    Kind,
    Schema,
    TableReader,
    WrongValueError,
    list_of,
    one_of,
    typed,
)

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}", re.ASCII)


def _range(value: Any) -> tuple[float, float]:
    """The usual range, from `[LOW, HIGH]`."""
    ends = list_of(NUMBER, "[LOW, HIGH]")(value)
    if len(ends) != 2 or ends[0] > ends[1]:
        raise WrongValueError("expected [LOW, HIGH]")
    return float(ends[0]), float(ends[1])


PARAMETER_KEYS: Schema = {
    "type": Key(
        one_of(parameters.TYPES),
        "The type of its value, here or in the file that parameters_of names.",
        is_needed=True,
    ),
    "default": Key(
        Kind("a value of its type", lambda value: value),
        "The value unless a launch sets another, here or in the file that parameters_of names.",
        is_needed=True,
    ),
    "above": Key(NUMBER, "Its value must be greater."),
    "min": Key(NUMBER, "The smallest allowed value."),
    "max": Key(NUMBER, "The largest allowed value."),
    "choices": Key(typed("a list", list), "The allowed values; without this key, any.", default=()),
    "usual": Key(Kind("[LOW, HIGH]", _range), "The usual range: the plan warns of a value outside it."),
    "help": Key(STRING, "Its meaning.", default=""),
    "unit": Key(STRING, "The unit of its value.", default=""),
}


def read_parameter(reader: TableReader, name: str, table: Any) -> Parameter:
    """One table as a value. Type and default are required; all other keys are optional."""
    where = f"parameters.{name}"
    if not isinstance(table, dict) or not _NAME.fullmatch(name):
        raise reader.error(where, f"{where}: expected a table with a name of small letters, digits and _")
    values = reader.values(where, table, PARAMETER_KEYS)
    kind, default = values["type"], values["default"]
    free = Parameter(name, kind, "", "")
    choices = tuple(_converted(reader, free, choice, f"{where}.choices") for choice in values["choices"])
    limited = Parameter(name, **{**values, "default": "", "choices": choices})
    key = f"{where}.default"
    if kind != "str" and isinstance(default, str):
        raise reader.error(key, f"{key} = {default!r}: expected a value of type {kind}, without quotes")
    return replace(limited, default=_converted(reader, limited, default, key))


def _converted(reader: TableReader, parameter: Parameter, value: Any, key: str) -> Scalar:
    """The value in the parameter's type. The key's line is searched only for an error message."""
    try:
        return parameters.convert(parameter, value, key)
    except UserError:
        return parameters.convert(parameter, value, f"{reader.at(key)}: {key}")
