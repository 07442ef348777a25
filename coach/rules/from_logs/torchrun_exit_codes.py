"""How torchrun tells in its summary that its ranks ended: with an exit code each, that of the first failure
last.

The others were ended by torchrun itself, by SIGTERM and then by SIGKILL: their codes say nothing.
"""

from __future__ import annotations

from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit, Signature
from coach.rules.from_logs.quoted_evidence import hits_of

_NAME = "exit_code"
OF_THE_SUMMARY = frozenset({_NAME, "root_cause", "failed_rank"})
"""The signatures that read torchrun's summary (rules/from_logs/first_lost_rank.py has two of them): they say
that a rank ended, never why."""


def exit_code_signature(rule: str) -> Signature:
    """Every exit code of a rank."""
    return Signature(rule, _NAME, ("exitcode",), r"\bexitcode *: (?P<exit_code>-?\d+)")


def is_first_failure(hit: LogHit, snapshot: TargetSnapshot, *codes: int) -> bool:
    """Whether a line of torchrun's summary tells of the first failure, and that it ended with one of these
    codes."""
    told = [each for each in hits_of(snapshot, hit.rule, _NAME) if each.file == hit.file]
    if not told:
        return True
    return int(told[-1].fields["exit_code"]) in codes
