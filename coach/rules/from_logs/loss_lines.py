"""Patterns of a training loss in a log line: the key and the number behind it.

They match a value behind a loss key, never a bare word: `nan_to_num`, `no nan values found` or
`grad_norm=nan` say nothing about the loss. `val_loss`, `best_loss` and accuracies may be NaN before their
first value, and are no training losses.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from coach.model.training.log import MAX_LINE_BYTES, LogHit, Signature
from coach.model.training.metrics import WORDS_OF_TOTAL_LOSS

# Words before the key that make it another quantity. Each has a fixed width, as a look-behind requires.
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
"""Longest name that is tried. The bound keeps the time for a line proportional to its length."""

_ADVERSARY = r"[_/ ](?:[gd](?:_?[ab\d])?|gen(?:erator)?|disc(?:riminator)?)"
"""`loss_G`, `Loss_D`, `loss_G_A`, `loss_disc`: of the programs that train two adversaries."""
_ENDING = (
    rf"(?:[_/](?:step|epoch|train(?:/total)?|total|avg|mean|sum|iter|batch)|{_ADVERSARY})?(?: value)?"
    r"(?: \(\w+\))?"
)
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
    """Pattern of a key with `value`. Nearly all lines have another value, and a cheap look-ahead rejects them
    early."""
    look_ahead = rf"^(?=.*?(?:loss|Loss|LOSS)(?i:{_ENDING}{_SEPARATOR}{value}))"
    return rf"{look_ahead}.*?(?i:(?P<key>{_KEY}){_SEPARATOR}(?P<value>{value})){then}"


# The next name and number, with only spaces between them. A preposition means a sentence about a NaN.
_NEXT_NUMBER = (
    r"(?!(?:after|at|before|by|for|from|in|is|of|on|since|than|to|until|was|with|within)\b)"
    r"[A-Za-z][\w/.-]*(?:[ \t]+loss)?[ \t]+(?:\d+[ \t]+[A-Za-z][\w/.-]*[ \t]+)*"
    r"[-+]?(?:\d+\.\d|\d+e[-+]?\d|\d+:\d\d|\d+ ?m?s\b|\d+\s*$|(?:nan|inf)\b)"
)
_AFTER_NO_NUMBER = (
    r"(?:\.\d)?(?![\w.\-])(?=\t|\s*+(?:$|[,;|(){}\[\]/'\"\u2502:=]"
    rf"|[\w./-][\w./ -]{{0,{_MAX_NAME}}}+(?:\(\w{{1,9}}\))?+\s*+[:=]|{_NEXT_NUMBER}))"
)
_AFTER_NUMBER = r"(?![\w.%])"
NOT_FINITE = _line_with(_NO_NUMBER, _AFTER_NO_NUMBER)
FINITE = _line_with(_NUMBER, _AFTER_NUMBER)
_LOSS_FUNCTIONS = r"mse|bce|nll|xent|elbo|cross[_ -]?entropy|ce"
_ALSO_METRICS = r"rmse|mae|objective"
_FUNCTION = (
    rf"(?<![A-Za-z0-9])(?=train|{_LOSS_FUNCTIONS}){_NOT_OTHER}"
    rf"(?P<key>(?:train(?:ing)?[_ /.-])?(?:{_LOSS_FUNCTIONS})"
    rf"|train(?:ing)?[_ /.-](?:{_ALSO_METRICS}))(?:[_/](?:step|epoch|train|avg|mean))?{_SEPARATOR}"
)
"""The name of a loss function instead of `loss`. A closed list: any other name before a NaN may be a metric
that has no value yet."""
FUNCTION_NOT_FINITE = rf"(?i:{_FUNCTION}(?P<value>{_NO_NUMBER})){_AFTER_NO_NUMBER}"
_FUNCTION_FINITE = rf"(?i:{_FUNCTION}(?P<value>{_NUMBER})){_AFTER_NUMBER}"
FUNCTION_LITERALS = (
    *(
        form
        for word in ("mse", "bce", "nll", "xent", "elbo", "entropy", "mae", "objective")
        for form in (word, word.title(), word.upper())
    ),
    *("CE", "train_ce", "train/ce", "train ce"),
)
_EACH_NOT_FINITE = re.compile(rf"(?i:(?P<key>{_KEY}){_SEPARATOR}{_NO_NUMBER}){_AFTER_NO_NUMBER}")
_EACH_FINITE = re.compile(rf"(?i:(?P<key>{_KEY}){_SEPARATOR}(?P<value>{_NUMBER})){_AFTER_NUMBER}")
_OF_THE_WHOLE = WORDS_OF_TOTAL_LOSS | {"loss", "value"}
"""Words that the name of the total training loss may consist of. With any other word it is a part of that
loss, or another quantity."""
WHOLE = ""
"""The name of the total training loss, however the program calls it."""
_OF_ADVERSARIES = re.compile(
    r"(?<![a-z])(?:[gd]|gen(?:erator)?|disc(?:riminator)?)[_/. -]?loss|loss[_/ ]?(?:[gd](?![a-z])|gen|disc)",
    re.IGNORECASE,
)
_LAST_WORD = re.compile(r"([A-Za-z]{1,20}) $")
LITERALS = ("loss", "Loss", "LOSS")

PROGRESS = Signature("progress", "loss", LITERALS, FINITE, reads_rows=True, max_chars=MAX_LINE_BYTES)
"""Belongs to no single rule: one search serves all rules that check whether training went on."""
FUNCTION_PROGRESS = Signature(
    PROGRESS.rule, "function", FUNCTION_LITERALS, _FUNCTION_FINITE, max_chars=MAX_LINE_BYTES
)
"""The same for a loss that is called by its function."""


def value_of(text: str, name: str) -> str | None:
    """The first number of the loss with this name in the line; None if it has none."""
    found = (each for each in _EACH_FINITE.finditer(text) if _name_or_whole(each, text) == name)
    return next((each["value"] for each in found), None)


def not_finite_names(text: str) -> frozenset[str]:
    """The names of the losses in this line that are NaN or infinite: `g_loss`, `generator loss`, or WHOLE."""
    return frozenset(_names(_EACH_NOT_FINITE, text))


def finite_names(text: str) -> frozenset[str]:
    """The same for the losses that are finite."""
    return frozenset(_names(_EACH_FINITE, text))


def name_of(hit: LogHit) -> str:
    """The name of the finite loss of a hit, with the word before it: `d loss` and `g loss` are two losses."""
    return _name_in(hit, _EACH_FINITE)


def label_of(hit: LogHit) -> str:
    """The loss of a hit that is not finite, as a finding calls it."""
    name = _name_in(hit, _EACH_NOT_FINITE)
    if _is_whole(name):
        return "The training loss"
    return hit.fields["key"] if name == hit.fields["key"].casefold() else f"The {name}"


def is_of_adversaries(name: str) -> bool:
    """True for the name of a loss in a training of a generator and a discriminator."""
    return _OF_ADVERSARIES.search(name) is not None


def _name_in(hit: LogHit, losses: re.Pattern[str]) -> str:
    found = (each for each in losses.finditer(hit.named) if each["key"] == hit.fields["key"])
    return next((_name(each, hit.named) for each in found), hit.fields["key"].casefold())


def _names(pattern: re.Pattern[str], text: str) -> Iterable[str]:
    return (_name_or_whole(found, text) for found in pattern.finditer(text))


def _name_or_whole(found: re.Match[str], text: str) -> str:
    name = _name(found, text)
    return WHOLE if _is_whole(name) else name


def _name(found: re.Match[str], text: str) -> str:
    """The key of a match, with the word before it."""
    before = _LAST_WORD.search(text, max(0, found.start() - 20), found.start())
    return f"{before[1] if before else ''} {found['key']}".casefold().strip()


def _is_whole(name: str) -> bool:
    return _OF_THE_WHOLE.issuperset(re.findall(r"[a-z]+", name))


def last_losses(hits: Iterable[LogHit]) -> dict[str, int]:
    """File → line number of its last finite loss."""
    last: dict[str, int] = {}
    for hit in hits:
        if hit.rule == PROGRESS.rule:
            last[hit.file] = max(hit.line, last.get(hit.file, 0))
    return last
