"""Read transformers' message about a failed import: the reason stands on the next line, without the
exception's type."""

from __future__ import annotations

from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.from_logs.library_exceptions import PLAIN
from coach.rules.from_logs.quoted_evidence import hits_of

_MAX_LINES = 8
"""How many lines below the reason may stand if the lines of several ranks are interleaved."""


def is_below_a_failed_import(hit: LogHit, snapshot: TargetSnapshot) -> bool:
    """True if a line is such a reason. A program that goes on without the module may print the same words
    alone."""
    return any(
        other.file == hit.file
        and 0 < hit.line - other.line <= _MAX_LINES
        and "Failed to import" in other.text
        and "because of the following error" in other.text
        for other in hits_of(snapshot, PLAIN)
    )


def is_without_torch(hit: LogHit) -> bool:
    """True if transformers reports that torch is missing. It prints the same for a torch that is too old."""
    return "requires the PyTorch library but it was not found" in hit.text
