"""Which hits only mention an error: a help text, a comment, the name of a test, a text in quotes that was
printed.

The words are the same as where the error happened. What surrounds them is judged here, once, before any rule
sees them.
"""

from __future__ import annotations

import re

from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit, LogTail
from coach.rules.from_logs.loss_lines import PROGRESS

_OPTION = re.compile(r"\s+-{1,2}[A-Za-z][\w-]*(?:[ ,=]|$)")
_MENTION = re.compile(
    # An option in a help text; a comment (not what Java's machine and Kaldi's run.pl say of a crash); a
    # command that `set -x` shows before it runs; what pytest says of a test that went as it should.
    rf"{_OPTION.pattern}|\s*(?:#+(?! +SIGSEGV \(0x| Ended \(code \d)|//) |\++ \S|.*\b(?:PASSED|XFAIL"
    r"|XPASS|SKIPPED)\b"
)
_CONTINUED = "        "
"""What a help text goes on with below an option is indented further than any line of a traceback."""
_QUOTES = '"""'


def happened(snapshot: TargetSnapshot) -> tuple[LogHit, ...]:
    """The hits of a target's logs without those that are mere words."""
    tails = {tail.file: tail for tail in snapshot.log_tails}
    quoted = {file: _quoted_lines(tail) for file, tail in tails.items()}
    return tuple(
        hit
        for hit in snapshot.log_hits
        # A process pool quotes a worker's whole traceback: that happened.
        if hit.rule == PROGRESS.rule
        or not (
            _MENTION.match(hit.text)
            or (not hit.traceback and hit.line in quoted.get(hit.file, ()))
            or _continues_an_option(hit, tails.get(hit.file))
        )
    )


def _quoted_lines(tail: LogTail) -> frozenset[int]:
    """The numbers of the lines between two lines that begin with such marks."""
    marks = [tail.first_line + index for index, line in enumerate(tail.plain) if line.startswith(_QUOTES)]
    pairs = zip(marks[::2], marks[1::2], strict=False)
    return frozenset(number for first, last in pairs for number in range(first, last))


def _continues_an_option(hit: LogHit, tail: LogTail | None) -> bool:
    if tail is None or not hit.text.startswith(_CONTINUED):
        return False
    above = tail.plain[: max(0, hit.line - tail.first_line)]
    first = next((line for line in reversed(above) if not line.startswith(_CONTINUED)), "")
    return bool(_OPTION.match(first))
