"""The values of a sweep: lists and ranges of several parameters, all combinations or some at random. Pure.

    lr=1e-4,3e-4,1e-3        these values
    batch_size=16..256*2     from 16 to 256, each double the one before
    num_workers=0..8+2       from 0 to 8 in steps of 2; whole numbers alone go in steps of 1
    lr=1e-5..1e-2            for --random, any value between; log-uniform if the range spans a decade

The seed of random values is derived from the sweep's own text: the same text gives the same runs.
"""

from __future__ import annotations

import itertools
import math
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coach.launch import parameters
from coach.launch.parameters import Parameter
from coach.model.errors import UserError
from coach.model.launching.launch import Scalar

MAX_RUNS = 32
"""More runs in one group are most often a typing error."""
_NUMBER = r"[+-]?(?:\d{1,18}(?:\.\d{0,18})?|\.\d{1,18})(?:[eE][+-]?\d{1,3})?"
_RANGE = re.compile(rf"({_NUMBER})\.\.({_NUMBER})(?:([*+])({_NUMBER}))?", re.ASCII)
_MAX_VALUES = 1000
_DIGITS = 4
"""Digits of a random value: few enough to read and type again."""


@dataclass(frozen=True, slots=True)
class _Span:
    """All values between two bounds, both included."""

    low: float
    high: float


def combinations(
    known: Mapping[str, Parameter], said: Mapping[str, str], num_random: int | None = None
) -> tuple[Mapping[str, Scalar], ...]:
    """The values of each run, in the order of the command line: the last parameter changes fastest.

    `known` are the parameters that may be swept; `said` maps a parameter's name → its text. With
    `num_random`, that many random runs replace the full grid. Raises UserError for an invalid name, value or
    number of runs.
    """
    choices = {name: _choices(_known(known, name), name, text) for name, text in said.items()}
    if num_random is None:
        return _grid(choices, said)
    if not 1 <= num_random <= MAX_RUNS:
        raise UserError(f"--random {num_random}: must be 1 to {MAX_RUNS}")
    draw = random.Random(repr(sorted(said.items())))
    runs: list[Mapping[str, Scalar]] = []
    for _ in range(100 * num_random):
        values = {name: _drawn(draw, known[name], name, choice) for name, choice in choices.items()}
        if values not in runs:
            runs.append(values)
        if len(runs) == num_random:
            break
    return tuple(runs)


def names_several(parameter: Parameter, text: object) -> bool:
    """True if a text in a form gives the parameter several values: a list or a range, and no value itself."""
    if not isinstance(text, str) or ("," not in text and _RANGE.fullmatch(text.strip()) is None):
        return False
    try:
        parameters.convert(parameter, text.strip(), parameter.name)
    except UserError:
        return True
    return False


def words_of(values: Mapping[str, Scalar]) -> str:
    """The values of one run, as its group's table shows them."""
    return ", ".join(parameters.show(value) for value in values.values())


def _known(known: Mapping[str, Parameter], name: str) -> Parameter:
    if name not in known:
        raise UserError(f"--sweep {name}: no such parameter", f"its parameters: {', '.join(known)}")
    return known[name]


def _grid(
    choices: Mapping[str, Sequence[Scalar] | _Span], said: Mapping[str, str]
) -> tuple[Mapping[str, Scalar], ...]:
    lists: dict[str, Sequence[Scalar]] = {}
    for name, choice in choices.items():
        if isinstance(choice, _Span):
            raise UserError(
                f"--sweep {name}={said[name]}: a step is missing",
                f"{said[name]}*10 multiplies, {said[name]}+0.1 adds; --random N draws any value between",
            )
        lists[name] = choice
    num_runs = math.prod(map(len, lists.values()))
    if num_runs > MAX_RUNS:
        raise UserError(
            f"{' × '.join(str(len(each)) for each in lists.values())} values: at most {MAX_RUNS} runs in one"
            " group",
            f"--random {MAX_RUNS} tries some of them",
        )
    return tuple(dict(zip(lists, each, strict=True)) for each in itertools.product(*lists.values()))


def _choices(parameter: Parameter, name: str, text: str) -> Sequence[Scalar] | _Span:
    found = _RANGE.fullmatch(text.strip())
    if found is None:
        words = [word.strip() for word in text.split(",")]
        return tuple(dict.fromkeys(parameters.convert(parameter, word, f"--sweep {name}") for word in words))
    what = f"--sweep {name}={text}"
    if parameter.type not in ("int", "float"):
        raise UserError(f"{what}: a range needs a number", "name the values: a,b,c")
    low, high, step = float(found[1]), float(found[2]), float(found[4] or 1)
    if not all(map(math.isfinite, (low, high, step))):
        raise UserError(f"{what}: a number is too large")
    if not low < high:
        raise UserError(f"{what}: the first value must be less than the last")
    if found[3] is None:
        if parameter.type == "float":
            return _Span(low, high)
        return _stepped(parameter, what, low, high, "+", 1.0)
    return _stepped(parameter, what, low, high, found[3], step)


def _stepped(
    parameter: Parameter, what: str, low: float, high: float, sign: str, step: float
) -> Sequence[Scalar]:
    if (sign == "*" and (step <= 1 or low <= 0)) or (sign == "+" and step <= 0):
        raise UserError(f"{what}: the values do not grow", "*2 doubles a value above 0, +2 adds 2 to it")
    values: list[Scalar] = []
    for index in range(_MAX_VALUES):
        value = _nth(low, sign, step, index)
        if value > high * (1 + 1e-9):
            return tuple(values)
        rounded = float(f"{value:.12g}")
        if parameter.type == "int" and rounded != int(rounded):
            raise UserError(f"{what}: {rounded:g} is not a whole number")
        values.append(
            parameters.convert(parameter, int(rounded) if parameter.type == "int" else rounded, what)
        )
    raise UserError(f"{what}: more than {_MAX_VALUES} values")


def _nth(low: float, sign: str, step: float, index: int) -> float:
    try:
        return low * step**index if sign == "*" else low + step * index
    except OverflowError:
        return math.inf


def _drawn(draw: random.Random, parameter: Parameter, name: str, choice: Sequence[Scalar] | _Span) -> Scalar:
    if not isinstance(choice, _Span):
        return draw.choice(choice)
    if choice.low > 0 and choice.high >= 10 * choice.low:
        value = math.exp(draw.uniform(math.log(choice.low), math.log(choice.high)))
    else:
        value = draw.uniform(choice.low, choice.high)
    rounded = float(f"{value:.{_DIGITS}g}")
    drawn = rounded if choice.low <= rounded <= choice.high else value
    return parameters.convert(parameter, drawn, f"--sweep {name}")
