"""Find, at the end of a log that names no loss, a training objective that has become NaN.

Words such as `cost` and `perplexity` also name metrics, so their finite numbers are never read. A log counts
only if its newest values of one such word are all NaN, and, in a table, if they were finite before.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from coach.model.training.log import LogHit, LogTail

FEWEST_LINES = 5
"""One or two may be the values of a metric that is not computed yet."""

_MAX_CHARS = 300
_NAN = r"[-+]?(?:nan|NaN|NAN)"
_VALUE = re.compile(rf"{_NAN}|[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?")
_OBJECTIVE = re.compile(
    r"(?<![\w./-])(?P<key>(?:train(?:ing)?[_ /])?(?:objective|cost|nll|perplexity|ppl))"
    rf"[\"']?\s{{0,3}}[:=]\s{{0,3}}(?P<value>{_VALUE.pattern})(?![\w.%-])",
    re.IGNORECASE,
)
_OTHER = re.compile(
    r"\b(?:val(?:id(?:ation)?)?|eval(?:uation)?|test(?:ing)?|dev|best|min(?:imum)?)\b", re.IGNORECASE
)
"""Words of values that may be NaN because they were not computed yet."""
_COUNTER = re.compile(r"epochs?|steps?|iter(?:ation)?s?", re.IGNORECASE)
_COLUMN = re.compile(r"train(?:ing)?(?:[_/-]\w{1,20})?|objective|cost|nll|perplexity|ppl", re.IGNORECASE)


def broken_objective(tails: Iterable[LogTail]) -> list[LogHit]:
    """The newest values of a training objective that are all NaN, as hits; empty if there are too few."""
    for tail in tails:
        if tail.is_binary:
            continue
        for values in (_named(tail), _in_table(tail)):
            lasting = _lasting(values)
            if len(lasting) >= FEWEST_LINES:
                return lasting
    return []


def _named(tail: LogTail) -> list[LogHit]:
    """The values behind the word that the last such line has: `cost = 3.8`."""
    hits = []
    for number, line in enumerate(tail.plain, tail.first_line):
        found = _OBJECTIVE.search(line[:_MAX_CHARS])
        if found is not None and not _OTHER.search(line, 0, found.start()):
            hits.append(_hit(tail, number, line, found["key"], found["value"]))
    return [hit for hit in hits if hit.fields["key"] == hits[-1].fields["key"]]


def _in_table(tail: LogTail) -> list[LogHit]:
    """The training column of the last table, as in `epoch train valid`; empty if it was never finite."""
    names: Sequence[str] = ()
    hits: list[LogHit] = []
    for number, line in enumerate(tail.plain, tail.first_line):
        cells = line[:_MAX_CHARS].split()
        if len(cells) > 2 and _COUNTER.fullmatch(cells[0]) and any(map(_COLUMN.fullmatch, cells)):
            names, hits = cells, []
        elif names and len(cells) == len(names) and cells[0].isdigit():
            place = next(i for i, name in enumerate(names) if _COLUMN.fullmatch(name))
            if _VALUE.fullmatch(cells[place]):
                hits.append(_hit(tail, number, line, names[place], cells[place]))
    return hits if any(not _is_nan(hit) for hit in hits) else []


def _lasting(hits: Sequence[LogHit]) -> list[LogHit]:
    start = len(hits)
    while start > 0 and _is_nan(hits[start - 1]):
        start -= 1
    return list(hits[start:])


def _is_nan(hit: LogHit) -> bool:
    return hit.fields["value"].casefold().endswith("nan")


def _hit(tail: LogTail, number: int, line: str, key: str, value: str) -> LogHit:
    return LogHit("", "objective", tail.file, number, line, {"key": key, "value": value})
