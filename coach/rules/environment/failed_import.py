"""What transformers says when one of its modules cannot be imported: the reason stands on the next line,
without its exception's name."""

from __future__ import annotations

from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.from_logs.library_exceptions import PLAIN
from coach.rules.from_logs.quoted_evidence import hits_of

_MAX_LINES = 8
"""How far below the reason may stand where the lines of several ranks are mixed."""


def is_below_a_failed_import(hit: LogHit, snapshot: TargetSnapshot) -> bool:
    """Whether a line is such a reason. The same words alone may be printed by a program that goes on without
    the module."""
    return any(
        other.file == hit.file
        and 0 < hit.line - other.line <= _MAX_LINES
        and "Failed to import" in other.text
        and "because of the following error" in other.text
        for other in hits_of(snapshot, PLAIN)
    )


def is_without_torch(hit: LogHit) -> bool:
    """Whether transformers says that there is no torch: it says the same of one that is too old for it."""
    return "requires the PyTorch library but it was not found" in hit.text
