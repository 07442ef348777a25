"""The speeds in a line that a training prints: step time, wait for data, rates, share of the GPU's peak.

`coach/sources/metrics/forms.toml` has their names, and lines of many programs as proof.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache, lru_cache

from coach.sources.metrics.quantities import Form, plain_name, printed_forms

_SAME_UNIT = (
    (re.compile(r"\b(?:sec(?:ond)?s?|s)\b"), "s"),
    (re.compile(r"\b(?:it|iters?|steps?|batch(?:es)?)\b"), "it"),
    (re.compile(r"\b(?:samples?|imgs?|images?|examples?|seqs?)\b"), "samples"),
    (re.compile(r"\btok(?:en)?s?\b"), "tokens"),
)
_SPEED_OF_UNIT = {
    "s/it": "step_time_s",
    "ms/it": "step_time_s",
    "it/s": "steps_per_s",
    "samples/s": "samples_per_s",
    "tokens/s": "tokens_per_s",
}
"""Unit behind a number → the speed that it is, whatever its name is."""
_BARE = "time"
_MOST_BARE_S = 10.0
"""A time of steps without a unit is read as seconds up to here. A larger one may be in milliseconds."""
_LARGEST_SHARE = 1.02
"""Of a step that waits for data all the time; the two numbers are rounded."""


class Speeds:
    """The speeds of one line."""

    def __init__(self) -> None:
        self._found: dict[str, float] = {}
        """Speed → its first number."""
        self._by_name: dict[str, float] = {}
        """Name → number, of names that are a speed in some programs only."""
        self._may_be_ms = False
        """True if the time of the step has no unit and is large."""

    def take(self, words: Sequence[str], value: float, unit: str | None, *, is_decimal: bool) -> bool:
        """True if the number is a speed. `words` stand before it, `unit` behind it or in its name."""
        unit = _plain_unit(unit) if unit else ""
        value = value / 1000 if unit.startswith("ms") else value
        speed = _SPEED_OF_UNIT.get(unit)
        if speed is None:
            speed, name = _speed_of(" ".join(words))
            if name:
                self._by_name.setdefault(name, value)
        if speed is None or (speed == _BARE and not is_decimal and not unit) or not value >= 0:
            return False
        if speed == "mfu" and (unit == "%" or value > 1):
            value /= 100
        elif unit.startswith("ms") and speed == _BARE:
            speed = "step_time_s"
        if speed == "step_time_s" and "step_time_s" not in self._found:
            self._may_be_ms = not unit and value > _MOST_BARE_S
        self._found.setdefault(speed, value)
        return True

    def of_line(self) -> dict[str, float]:
        """Speed → number in seconds, per second, or as a share. A wait that is longer than its step, or a
        time whose unit is not known, is left out."""
        found = self._found
        for form in _forms_with_names():
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


@lru_cache(maxsize=64)
def _plain_unit(unit: str) -> str:
    """`samples/s` for `imgs/sec`."""
    for pattern, plain in _SAME_UNIT:
        unit = pattern.sub(plain, unit)
    return unit


@lru_cache(maxsize=1024)
def _speed_of(words: str) -> tuple[str | None, str]:
    """The speed that the end of these words names, and the name if it is a speed in some programs only.

    A single word counts if no other word stands before it: `forward time` is no time of a step.
    """
    parts = words.casefold().split()
    special = " ".join(parts[-1:]).replace("_", " ")
    special = special if any(special in form.names for form in _forms_with_names()) else ""
    for start in range(len(parts)):
        name = plain_name(" ".join(parts[start:]))
        speed = printed_forms().names.get(name)
        if speed is not None and (" " in name or start == 0 or not parts[start - 1].isalpha()):
            return (_BARE if name == "time" else speed), special
    return None, special


@cache
def _forms_with_names() -> tuple[Form, ...]:
    return tuple(form for form in printed_forms().forms if form.names)
