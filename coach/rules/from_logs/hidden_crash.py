"""Word a crash that the exit status of the job hides.

The batch script ends with the status of its last command. So an `echo` or a `tee` behind a program that
crashed makes the job COMPLETED, and the next job in the chain starts from a broken result.
"""

from __future__ import annotations

from dataclasses import replace

from coach.model.judging.finding import Fix, Hit
from coach.model.snapshot import TargetSnapshot

_FIX = Fix(
    "Let the batch script fail with its program: put `set -e` and `set -o pipefail` at its top; to collect "
    "the failures of a loop, remember each exit status and end with it"
)


def told_as_hidden(hit: Hit, snapshot: TargetSnapshot) -> Hit:
    """The hit of an error that ended a program, as a warning if the job COMPLETED nevertheless."""
    if snapshot.state != "COMPLETED":
        return hit
    return replace(
        hit,
        summary=f"{hit.summary}; it ended a program of the job, and the script's exit status 0 hides that",
        is_hidden=True,
        confidence=min(hit.confidence, 0.8),
        fixes=(*hit.fixes, _FIX),
    )
