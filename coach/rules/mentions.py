"""Which hits only mention an error: a help text, a comment, the name of a test, a text in quotes that was printed.

The words are the same as where the error happened. What surrounds them is judged here, once, before any rule sees them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from coach.model.log import LogHit, LogTail
from coach.model.snapshot import TargetSnapshot

_OPTION = re.compile(r"\s+-{1,2}[A-Za-z][\w-]*(?:[ ,=]|$)")
_MENTION = re.compile(
    # An option in a help text; a comment; a command that `set -x` shows before it runs; what pytest says of a test that went as it should.
    rf"{_OPTION.pattern}|\s*(?:#+|//) |\++ \S|.*\b(?:PASSED|XFAIL|XPASS|SKIPPED)\b"
)
_CONTINUED = "        "
"""What a help text goes on with below an option is indented further than any line of a traceback."""
_QUOTES = '"""'


def happened(snapshot: TargetSnapshot) -> tuple[LogHit, ...]:
    """The hits of a target's logs without those that are mere words."""
    tails = {tail.file: tail for tail in snapshot.log_tails}
    return tuple(hit for hit in snapshot.log_hits if not _is_mention(hit, tails))


def _is_mention(hit: LogHit, tails: Mapping[str, LogTail]) -> bool:
    if _MENTION.match(hit.text):
        return True
    tail = tails.get(hit.file)
    # A process pool quotes a worker's whole traceback: that happened.
    return (
        tail is not None
        and not hit.traceback
        and (_continues_an_option(hit, tail) or _stands_in_quotes(hit, tail))
    )


def _continues_an_option(hit: LogHit, tail: LogTail) -> bool:
    if not hit.text.startswith(_CONTINUED):
        return False
    above = tail.lines[: max(0, hit.line - tail.first_line)]
    first = next((line for line in reversed(above) if not line.startswith(_CONTINUED)), "")
    return bool(_OPTION.match(first))


def _stands_in_quotes(hit: LogHit, tail: LogTail) -> bool:
    index = hit.line - tail.first_line
    marks = [number for number, line in enumerate(tail.lines) if line.startswith(_QUOTES)]
    return (
        0 <= index < len(tail.lines)
        and sum(1 for number in marks if number <= index) % 2 == 1
        and any(number > index for number in marks)
    )
