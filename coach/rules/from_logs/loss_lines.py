"""How a training loss is written in logs: the key, and the number behind it.

Numbers are parsed, never the bare word: `nan_to_num`, `no nan values found` or `grad_norm=nan` say nothing
about the loss. A value that is not known yet (`val_loss`, `best_loss`, accuracies) is no training loss.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from coach.model.training.log import MAX_LINE_BYTES, LogHit, Signature

# Words before the key that make it another quantity. Each is a fixed width, which is what a look-behind can
# have.
_OTHER = (
    "val",
    "valid",
    "validation",
    "eval",
    "evaluation",
    "test",
    "dev",
    "best",
    "min",
    "minimum",
    "lowest",
    "previous",
    "prev",
)
_NOT_OTHER = "".join(
    f"(?<!{word}{separator})" for word in _OTHER for separator in ("_", "/", "-", r"\.", " ")
)

_MAX_NAME = 100
"""No name is longer. A bound here keeps the time for a line in proportion to its length."""

_ENDING = r"(?:[_/](?:step|epoch|train|total|avg|mean|sum|iter|batch))?(?: value)?(?: \(\w+\))?"
_KEY = (
    rf"(?<![A-Za-z0-9_/.\-])(?=[\w/.\-]{{0,{_MAX_NAME}}}loss)(?:(?!(?:"
    + "|".join(_OTHER)
    + rf")\w{{0,{_MAX_NAME}}}[_/.\-])[A-Za-z][\w.\-]{{0,{_MAX_NAME}}}[_/.\-])?"
    + _NOT_OTHER
    + "loss"
    + _ENDING
)
_SEPARATOR = r"[\"'\]]{0,2}\s*+(?:[:=]\s*+|(?<=\s)(?:is\s++)?+)(?:tensor\()?[\"']?"
_NUMBER = r"[-+]?\d+(?:\.\d*)?(?:e[-+]?\d+)?"
_NO_NUMBER = r"[-+]?(?:(?-i:nan|NaN|NAN|Nan)|(?-i:inf|Inf)(?:inity)?|(?-i:INFINITY))"


def _line_with(value: str, then: str) -> str:
    """A key with such a value. Nearly all lines have another one, and are let go after one cheap look
    ahead."""
    look_ahead = rf"^(?=.*?(?:loss|Loss|LOSS)(?i:{_ENDING}{_SEPARATOR}{value}))"
    return rf"{look_ahead}.*?(?i:(?P<key>{_KEY}){_SEPARATOR}(?P<value>{value})){then}"


# The name and the number that come next, with nothing but spaces between. A preposition stands in a sentence
# about a NaN.
_NEXT_NUMBER = (
    r"(?!(?:after|at|before|by|for|from|in|is|of|on|since|than|to|until|was|with|within)\b)"
    r"[A-Za-z][\w/.-]*(?:[ \t]+loss)?[ \t]+(?:\d+[ \t]+[A-Za-z][\w/.-]*[ \t]+)*"
    r"[-+]?(?:\d+\.\d|\d+e[-+]?\d|\d+:\d\d|\d+ ?m?s\b|\d+\s*$|(?:nan|inf)\b)"
)
_AFTER_NO_NUMBER = (
    r"(?:\.\d)?(?![\w.\-])(?=\s*+(?:$|[,;|(){}\[\]/'\"\u2502:=]"
    rf"|[\w./-][\w./ -]{{0,{_MAX_NAME}}}+\s*+[:=]|{_NEXT_NUMBER}))"
)
_AFTER_NUMBER = r"(?![\w.%])"
NOT_FINITE = _line_with(_NO_NUMBER, _AFTER_NO_NUMBER)
FINITE = _line_with(_NUMBER, _AFTER_NUMBER)
_EACH_NOT_FINITE = re.compile(rf"(?i:(?P<key>{_KEY}){_SEPARATOR}{_NO_NUMBER}){_AFTER_NO_NUMBER}")
_EACH_FINITE = re.compile(rf"(?i:(?P<key>{_KEY}){_SEPARATOR}{_NUMBER}){_AFTER_NUMBER}")
_OF_THE_WHOLE = frozenset(
    (
        *(
            "loss",
            "value",
            "train",
            "training",
            "total",
            "lm",
            "sum",
            "avg",
            "average",
            "mean",
            "running",
            "current",
        ),
        *("smoothed", "step", "iter", "iteration", "batch", "epoch"),
        *("nan", "inf", "s", "ms", "the"),  # what stands before it may be the end of another value
    )
)
"""What the name of the loss that is trained on may be made of; with any other word it is a part of it, or
another quantity."""
_LAST_WORD = re.compile(r"([A-Za-z]{1,20}) $")
LITERALS = ("loss", "Loss", "LOSS")

PROGRESS = Signature("progress", "loss", LITERALS, FINITE, max_chars=MAX_LINE_BYTES)
"""No rule's own: it is looked for once, on behalf of all rules that ask whether training went on."""


def is_whole_not_finite(text: str) -> bool:
    """Whether a line gives a NaN for the loss that is trained on, by its name, and not only for a part of it
    (`aux_loss`, `kl loss`)."""
    return _names_whole(_EACH_NOT_FINITE, text)


def is_whole_finite(text: str) -> bool:
    """Whether a line gives a number for the loss that is trained on."""
    return _names_whole(_EACH_FINITE, text)


def _names_whole(pattern: re.Pattern[str], text: str) -> bool:
    for found in pattern.finditer(text):
        before = _LAST_WORD.search(text, max(0, found.start() - 20), found.start())
        words = re.findall(r"[a-z]+", f"{before[1] if before else ''} {found['key']}".casefold())
        if _OF_THE_WHOLE.issuperset(words):
            return True
    return False


def last_losses(hits: Iterable[LogHit]) -> dict[str, int]:
    """File → the line of its last finite loss."""
    last: dict[str, int] = {}
    for hit in hits:
        if hit.rule == PROGRESS.rule:
            last[hit.file] = max(hit.line, last.get(hit.file, 0))
    return last
