"""The speeds in a line that a training prints: step time, wait for data, rates, share of the GPU's peak.

`printed_speeds.toml` has their names, and a line of each program as proof. A further form is a row there.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files

_SEPARATORS = re.compile(r"[^a-z0-9]+")
_MEANS = frozenset({"avg", "mean", "average", "cur", "current"})
_UNITS = {
    **dict.fromkeys(("sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("iter", "iters", "its", "step", "steps", "batch", "batches"), "it"),
    **dict.fromkeys(
        ("sample", "img", "imgs", "image", "images", "example", "examples", "seq", "seqs"), "samples"
    ),
    **dict.fromkeys(("tok", "toks", "token"), "tokens"),
}
"""Unit → the unit that means the same."""
_SPEED_OF_UNIT = {
    "s/it": "step_time_s",
    "ms/it": "step_time_s",
    "it/s": "steps_per_s",
    "samples/s": "samples_per_s",
    "tokens/s": "tokens_per_s",
}
"""Unit behind a number → the speed that it is, whatever its name is."""
_BARE = "time"
"""The time of a step if the line has a wait for data beside it, or if it is in milliseconds."""
_OF_STEP = "step"
"""The time of a step if it has the unit of a time: without one it is the number of the step."""
_MOST_BARE_S = 10.0
"""A time of steps without a unit is read as seconds up to here. A larger one may be in milliseconds."""
_LARGEST_SHARE = 1.02
"""Of a step that waits for data all the time; the two numbers are rounded."""


@dataclass(frozen=True, slots=True)
class Form:
    """One line of a program, and what it gives."""

    of: str
    example: str
    gives: Mapping[str, float]
    source: str = ""
    names: Mapping[str, str] = field(default_factory=dict)
    """Name → speed, for names that mean this only in a line with all of them."""


def _plain(name: str) -> str:
    """`reader cost` for `avg_reader_cost`: the name as the table has it. The time of a training is not that
    of a step."""
    words = [word for word in _SEPARATORS.split(name) if word and word not in _MEANS]
    bare = [word for word in words if word not in ("train", "training")]
    return " ".join(bare if len(bare) > 1 else words)


_TABLE = tomllib.loads(files(__package__).joinpath("printed_speeds.toml").read_text("utf-8"))
_SPEEDS = {name: speed for speed, names in _TABLE["names"].items() for name in names}
FORMS = tuple(Form(**row) for row in _TABLE["forms"])
_WITH_NAMES = tuple(form for form in FORMS if form.names)


def speed_of(words: Sequence[str]) -> tuple[str | None, str]:
    """The speed that the end of these words names, and the last word: it is a speed in some programs only.

    A single word counts if no other word stands before it: `forward time` is no time of a step.
    """
    parts = [word.casefold() for word in words]
    last = " ".join(parts[-1:]).replace("_", " ")
    for start in range(len(parts)):
        name = _plain(" ".join(parts[start:]))
        if name in _SPEEDS and (" " in name or start == 0 or not parts[start - 1].isalpha()):
            return _SPEEDS[name], last
    return None, last


class Speeds:
    """The speeds of one line."""

    def __init__(self) -> None:
        self._found: dict[str, float] = {}
        """Speed → its first number."""
        self._by_name: dict[str, float] = {}
        """Last word of a name → number: some are a speed in some programs only."""
        self._may_be_ms = False
        """True if the time of the step has no unit and is large."""

    def take(
        self, speed_of_words: tuple[str | None, str], value: float, unit: str | None, *, is_decimal: bool
    ) -> bool:
        """True if the number is a speed, by its unit or by the words before it."""
        unit = "/".join(_UNITS.get(part, part) for part in unit.split("/")) if unit else ""
        value = value / 1000 if unit.startswith("ms") else value
        speed = _SPEED_OF_UNIT.get(unit)
        if speed is None:
            speed, name = speed_of_words
            if name:
                self._by_name.setdefault(name, value)
        if speed == _OF_STEP:
            speed = "step_time_s" if unit in ("s", "ms") else None
        if speed is None or not value >= 0 or (speed == _BARE and not (is_decimal or unit)):
            return False
        self._add("step_time_s" if speed == _BARE and unit == "ms" else speed, value, unit)
        return True

    def _add(self, speed: str, value: float, unit: str) -> None:
        if speed == "mfu" and (unit == "%" or value > 1):
            value /= 100
        if speed == "step_time_s" and speed not in self._found:
            self._may_be_ms = not unit and value > _MOST_BARE_S
        self._found.setdefault(speed, value)

    def of_line(self) -> dict[str, float]:
        """Speed → number in seconds, per second, or as a share. A wait that is longer than its step, or a
        time whose unit is not known, is left out."""
        found = self._found
        for form in _WITH_NAMES:
            if form.names.keys() <= self._by_name.keys():
                found |= {speed: self._by_name[name] for name, speed in form.names.items()}
        bare, rate, data = found.pop(_BARE, None), found.pop("steps_per_s", None), found.get("data_time_s")
        if "step_time_s" not in found and rate:
            found["step_time_s"] = 1 / rate
        if "step_time_s" not in found and bare is not None and data is not None:
            found["step_time_s"] = bare
        elif self._may_be_ms and data is None:
            found.pop("step_time_s", None)
        if data is not None and data > _LARGEST_SHARE * found.get("step_time_s", data):
            del found["data_time_s"]
        return found
