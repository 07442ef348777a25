"""The parameters of a recipe: their types, hard limits and usual ranges.

A value beyond a hard limit is refused. An unusual value gets one line of warning and stays possible, because
a learner who may not break a run learns less.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from coach.analysis.spelling.numbers import short_number
from coach.launch.spelling import check_printable
from coach.model.errors import UserError
from coach.model.launching.launch import Scalar
from coach.model.toml_text import quoted

TYPES = ("int", "float", "str", "bool")
_WANTED = {"int": "a whole number", "float": "a number", "str": "text", "bool": "true or false"}
_MAX_LISTED = 8
_MAX_INT = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a recipe. A limit is None, or empty, if the parameter has none."""

    name: str
    type: str
    default: Scalar
    help: str
    above: float | None = None
    """Hard limit, exclusive."""
    min: float | None = None
    max: float | None = None
    choices: tuple[Scalar, ...] = ()
    usual: tuple[float, float] | None = None
    """A value outside this range is allowed, with a warning."""
    unit: str = ""
    """The unit of its number: `samples`, `steps`, `s`; empty for a pure number or a word."""

    @property
    def usual_words(self) -> str:
        """The usual range in words, empty if there is none."""
        return "" if self.usual is None else " to ".join(map(short_number, self.usual))

    def limits(self) -> str:
        """The hard limits in words, empty if there are none."""
        parts = []
        if self.above is not None:
            parts.append(f"above {short_number(self.above)}")
        if self.min is not None:
            parts.append(f"at least {short_number(self.min)}")
        if self.max is not None:
            parts.append(f"at most {short_number(self.max)}")
        if self.choices:
            parts.append("one of " + ", ".join(show(choice) for choice in self.choices))
        return " and ".join(parts)


def show(value: Scalar) -> str:
    """A value as it is typed on a command line, with `true` and `false` in small letters."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def convert(parameter: Parameter, value: Any, what: str) -> Scalar:
    """The value in the parameter's type, within its hard limits. Raises UserError that begins with `what`."""
    converted = _typed(parameter.type, value)
    if converted is None:
        raise UserError(f"{what} = {_shortened(value)}: expected {_WANTED[parameter.type]}")
    if isinstance(converted, str):
        check_printable(converted, what)
    if not _is_within(parameter, converted):
        raise UserError(f"{what} = {_shortened(value)}: must be {parameter.limits()}")
    return converted


def warning(parameter: Parameter, value: Scalar) -> str | None:
    """One line when the value is outside the usual range."""
    if parameter.usual is None or isinstance(value, str):
        return None
    low, high = parameter.usual
    if low <= value <= high:
        return None
    return f"{parameter.name} = {show(value)} is unusual: {parameter.usual_words} is the usual range"


def resolve(
    recipe_name: str | None, parameters: Mapping[str, Parameter], said: Mapping[str, Any]
) -> tuple[dict[str, Scalar], tuple[str, ...]]:
    """Each parameter's value (the given one, else its default), and the warnings. `recipe_name` is None for a
    user's own program."""
    for key in said:
        if key not in parameters:
            near = get_close_matches(key, parameters, 1) or _described(key, parameters)
            hint = f"did you mean {near[0]}?" if near else _listed(recipe_name, parameters)
            whose = "your program" if recipe_name is None else f"recipe {recipe_name}"
            raise UserError(f"--set {key}: {whose} has no parameter {key!r}", hint)
    values = {
        name: convert(parameter, said[name], f"--set {name}") if name in said else parameter.default
        for name, parameter in parameters.items()
    }
    warnings = (warning(parameter, values[name]) for name, parameter in parameters.items())
    return values, tuple(line for line in warnings if line is not None)


def _described(key: str, parameters: Mapping[str, Parameter]) -> list[str]:
    """The first parameter whose description contains the words of the key: `learning_rate` means lr."""
    words = key.replace("_", " ").replace("-", " ").casefold().strip()
    known = [each.name for each in parameters.values() if words in each.help.casefold()] if words else []
    return known[:1] if len(words) > 3 else []


def _listed(recipe_name: str | None, parameters: Mapping[str, Parameter]) -> str:
    if recipe_name is None and not parameters:
        return "coach found no parameter on its command line, in its argparse, or in a config file"
    if recipe_name is None or len(parameters) <= _MAX_LISTED:
        return f"its parameters: {', '.join(parameters)}"
    return f"`coach recipes {recipe_name}` lists its {len(parameters)} parameters"


def _typed(kind: str, value: Any) -> Scalar | None:
    if kind == "bool":
        return _bool(value)
    if kind == "str":
        return value if isinstance(value, str) else None
    if isinstance(value, bool):
        return None
    try:
        if kind == "float":
            number = float(value)
            return number if math.isfinite(number) else None
        whole = int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    is_exact = not isinstance(value, float) or value == whole
    return whole if is_exact and abs(whole) <= _MAX_INT else None


def _bool(value: Any) -> bool | None:
    if isinstance(value, bool):
        return value
    words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    return words.get(value.strip().lower()) if isinstance(value, str) else None


def _is_within(parameter: Parameter, value: Scalar) -> bool:
    if parameter.choices and value not in parameter.choices:
        return False
    if isinstance(value, str):
        return True
    return (
        (parameter.above is None or value > parameter.above)
        and (parameter.min is None or value >= parameter.min)
        and (parameter.max is None or value <= parameter.max)
    )


def _shortened(value: Any) -> str:
    text = quoted(value)
    return text if len(text) <= 80 else text[:77] + "…"
