"""How a training loss is written in logs: the key, and the number behind it.

Numbers are parsed, never the bare word: `nan_to_num`, `no nan values found` or `grad_norm=nan` say nothing about the loss. A value that
is not known yet (`val_loss`, `best_loss`, accuracies) is no training loss.
"""

from __future__ import annotations

import re

from coach.model.log import LogHit, Signature
from coach.model.snapshot import TargetSnapshot

# Words before the key that make it another quantity. Each is a fixed width, which is what a look-behind can have.
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

_KEY = (
    r"(?<![A-Za-z0-9_/.\-])(?:(?!(?:"
    + "|".join(_OTHER)
    + r")\w*[_/.\-])[A-Za-z][\w.\-]*[_/.\-])?"
    + _NOT_OTHER
    + r"loss(?:[_/](?:step|epoch|train|total|avg|mean|sum|iter|batch))?(?: value)?(?: \(\w+\))?"
)
_SEPARATOR = r"[\"'\]]{0,2}\s*(?:[:=]\s*|\s+is\s+|\s)\s*(?:tensor\()?[\"']?"
# Most lines with a loss have a finite one: they are let go after one cheap look ahead.
_HAS_NOT_FINITE = r"^(?=.*?(?:loss|Loss|LOSS).{0,30}?(?:nan|NaN|NAN|Nan|[iI]nf(?:inity)?\b|INFINITY)).*?"
NOT_FINITE = re.compile(
    rf"{_HAS_NOT_FINITE}(?i:(?P<key>{_KEY}){_SEPARATOR}(?P<value>[-+]?(?:(?-i:nan|NaN|NAN|Nan)|(?-i:inf|Inf)(?:inity)?|(?-i:INFINITY))))(?![\w.\-])(?=\s*(?:$|[,;|(){{}}\[\]/'\"\u2502]|[\w./ -]+\s*[:=]))"
)
FINITE = re.compile(rf"(?i:(?P<key>{_KEY}){_SEPARATOR}(?P<value>[-+]?\d+(?:\.\d*)?(?:e[-+]?\d+)?))(?![\w.%])")
LITERALS = ("loss", "Loss", "LOSS")
NOT_FINITE_LITERALS = ("nan", "NaN", "NAN", "Nan", "inf", "Inf", "INFINITY")

PROGRESS = Signature("progress", "loss", LITERALS, FINITE)
"""No rule's own: it is looked for once, on behalf of all rules that ask whether training went on."""


def losses_after(hit: LogHit, snapshot: TargetSnapshot) -> bool:
    """Whether a finite loss stands further down in the same log."""
    return any(
        line.rule == PROGRESS.rule and line.file == hit.file and line.line > hit.line
        for line in snapshot.log_hits
    )
