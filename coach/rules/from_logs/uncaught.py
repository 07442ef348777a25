"""Find the exceptions that ended a program and that no signature knows by name, and those that the log's
end cuts off.

A signature knows an exception by the end of its name (`…Error`). Python allows any name, so the place counts
here: the last line of a traceback, below its frames.
"""

from __future__ import annotations

from coach.model.error_block import ErrorBlock
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.from_logs.aftermath import cut_block, is_uncaught
from coach.rules.from_logs.library_exceptions import CUT, PLAIN

_EXCEPTION = "exception"
"""COD001's signature of an exception."""
_GROUP = "Group"
"""An exception group only holds the exceptions that count."""


def unnamed_exceptions(snapshot: TargetSnapshot) -> tuple[LogHit, ...]:
    """Hits of COD001 for uncaught exceptions at whose line the log scanner has none, and for tracebacks at
    the end of a log."""
    known = {
        (hit.file, hit.line) for hit in snapshot.log_hits if (hit.rule, hit.signature) == (PLAIN, _EXCEPTION)
    }
    cut = [block for tail in snapshot.log_tails if (block := cut_block(tail)) is not None]
    return tuple(_hit_of(block, CUT) for block in cut) + tuple(
        _hit_of(block, _EXCEPTION)
        for tail in snapshot.log_tails
        for block in tail.blocks
        if is_uncaught(block) and (block.file, block.error_line) not in known and _is_named(block)
    )


def _is_named(block: ErrorBlock) -> bool:
    """True if its last line is `TYPE` or `TYPE: message`; other programs print between the frames as well."""
    rest = block.lines[-1].strip(" |\t").removeprefix(block.type or "").rstrip()
    return rest in ("", ":") or (rest.startswith(": ") and not block.name.endswith(_GROUP))


def _hit_of(block: ErrorBlock, signature: str) -> LogHit:
    fields = {"type": block.type or "", "words": block.message.partition("\n")[0]}
    line = block.error_line
    return LogHit(PLAIN, signature, block.file, line, block.lines[-1], fields, block.rank, block=block)
