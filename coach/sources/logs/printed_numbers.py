"""Parse the numbers of a training from the lines that it prints, in any of these forms: `loss 0.5`, `'loss':
0.5`, `lm loss: 5.0E-01 |`, `loss=0.5]`.

A line counts if it names a training loss or an evaluation loss. This module separates names from numbers;
`quantities.py` interprets the names. A line without a step number is numbered by its position among these
lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from coach.sources.logs.line_text import parse_time_s
from coach.sources.metrics.quantities import quantity_of

MAX_CHARS = 2048
_MAX_NUMBERS = 40

_NUMBER = re.compile(
    r"(?<![\w.])[-+]?(?:\d{1,3}(?:,\d{3})+|\d{1,18})(?:\.\d{0,18})?(?:[eE][-+]?\d{1,3})?(?![\w.%])"
    r"|(?<![\w.])[-+]?(?:nan|NaN|NAN|inf|Inf|INF)(?![\w.])"
)
_NAME_CHARS = 120
"""Number of characters before a number that are searched for its name."""
_MAX_WORDS = 4
_PARTS = re.compile(r"[|,;()\[\]{}]")
"""A name never extends across one of these."""
_AFTER_NAME = " \t\"'([:=|"
_STEP_WORDS = frozenset({"step", "steps", "iter", "iters", "iteration", "iterations", "global_step", "it"})
_STEP_TIME = (
    (re.compile(r"(?<![\w.])(\d{1,9}(?:\.\d{1,9})?) ?(?:it|iters?|steps?|batch(?:es)?)/s(?:ec)?\b"), True),
    (re.compile(r"(?<![\w.])(\d{1,9}(?:\.\d{1,9})?) ?s(?:ec)?/(?:it|iter|step|batch)\b"), False),
)
"""(pattern, True for a rate in steps/s, False for seconds per step)."""
_SAMPLE = r"(?:samples?|imgs?|images?|examples?|seqs?)"
_SAMPLES = (
    re.compile(rf"\b{_SAMPLE}(?:/s(?:ec)?|_per_sec(?:ond)?)[\"']?[:= ]{{1,3}}(\d{{1,9}}(?:\.\d{{1,9}})?)"),
    re.compile(rf"(?<![\w.-])(\d{{1,9}}(?:\.\d{{1,9}})?) ?{_SAMPLE}/s(?:ec)?\b"),
)
"""Samples per second, with the name before or behind the number."""
_SECONDS = r"[\"']?[:=\s]{1,4}(\d{1,6}\.\d{1,9})(?![\d.%])(?: ?(ms|s)\b|(?! ?[kKMGT]?i?B))"
_DATA_TIME = re.compile(rf"(?<![\w/.-])[Dd][Aa][Tt][Aa](?:[_ ]?[Tt]ime)?{_SECONDS}")
_TIME_BESIDE = re.compile(rf"(?<![\w/.-])(?:(?:step|batch|iter)[_ ])?[Tt]ime{_SECONDS}")
"""`time: 0.35, data_time: 0.01` of MMEngine and detectron2, `Time 0.5 (0.9) Data 0.2 (0.3)` of PyTorch's
ImageNet example, `Time: 0.41s … Data: 0.01` of timm: the wait for data, and the whole step beside it."""


def record_of_line(text: str) -> Mapping[str, float] | None:
    """Name → number of one line, with `step`, `epoch`, `time_s`, `step_time_s` and `data_time_s` if the
    line has them; None for a line without a loss.

    If a name has two numbers, as in `Loss 0.52 (0.61)`, the first one counts.
    """
    text = text[:MAX_CHARS]
    if "loss" not in text and "Loss" not in text and "LOSS" not in text:
        return None
    record: dict[str, float] = {}
    for count, found in enumerate(_NUMBER.finditer(text)):
        if count == _MAX_NUMBERS:
            break
        name = _name_before(text, found.start())
        if name is not None:
            record.setdefault(name, float(found[0].replace(",", "")))
    quantities = [quantity_of(name) for name in record]
    if not any(each is not None and each.field == "loss" for each in quantities):
        return None
    time_s = parse_time_s(text)
    if time_s is not None:
        record["time_s"] = time_s
    _add_rates(record, text)
    return record


def _name_before(text: str, place: int) -> str | None:
    """The name of the number at `place`: `step`, `epoch`, or the name of a known quantity; else None."""
    before = text[max(0, place - _NAME_CHARS) : place].rstrip(_AFTER_NAME).removesuffix("tensor")
    words = _PARTS.split(before.rstrip(_AFTER_NAME))[-1].replace('"', "").replace("'", "").split()
    words = words[-_MAX_WORDS:]
    for start in range(len(words)):
        name = " ".join(words[start:])
        if not name[0].isalpha() and name[0] != "_":
            continue
        plain = name.casefold()
        if plain in _STEP_WORDS:
            return "step"
        if plain == "epoch" or quantity_of(name) is not None:
            return plain
    return None


def _add_rates(record: dict[str, float], text: str) -> None:
    for pattern, is_rate in _STEP_TIME:
        found = pattern.search(text)
        if found is not None and float(found[1]) > 0:
            record["step_time_s"] = 1 / float(found[1]) if is_rate else float(found[1])
            break
    data = _DATA_TIME.search(text)
    if data is not None:
        record["data_time_s"] = _seconds(data)
        step = _TIME_BESIDE.search(text)
        if step is not None and "step_time_s" not in record and _seconds(step) >= _seconds(data):
            record["step_time_s"] = _seconds(step)
    samples = next((found for pattern in _SAMPLES if (found := pattern.search(text))), None)
    if samples is not None:
        record["samples_per_s"] = float(samples[1])


def _seconds(found: re.Match[str]) -> float:
    return float(found[1]) / (1000 if found[2] == "ms" else 1)


class LineNumbers:
    """The records of one log in order, each with a step number that grows."""

    def __init__(self) -> None:
        self._num_records = 0
        self._last_step = -1.0
        self._last_epoch = -1.0
        self._offset = 0.0
        """The steps of all earlier epochs, if the program counts steps anew in each epoch."""

    def records(self, lines: Iterable[str]) -> list[Mapping[str, float]]:
        """The records of the lines that name a loss."""
        found = (record_of_line(line) for line in lines)
        return [self._with_step(dict(record)) for record in found if record is not None]

    def _with_step(self, record: dict[str, float]) -> Mapping[str, float]:
        step = record.get("step", float(self._num_records)) + self._offset
        epoch = record.get("epoch", self._last_epoch)
        if step <= self._last_step and epoch > self._last_epoch >= 0:
            first = record.get("step", 0.0)
            self._offset = self._last_step + (not first)
            step = first + self._offset
        self._last_step, self._last_epoch = step, epoch
        self._num_records += 1
        return {**record, "step": step}
