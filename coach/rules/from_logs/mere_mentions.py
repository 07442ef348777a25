"""Drop hits that only mention an error: a help text, a comment, the name of a test, a quoted text.

The words are the same as in a real error. The surrounding lines decide, once, before any rule sees the hits.
"""

from __future__ import annotations

import re

from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit, LogTail
from coach.rules.from_logs.loss_lines import PROGRESS

_OPTION = re.compile(r"\s+-{1,2}[A-Za-z][\w-]*(?:[ ,=]|$)")
_MENTION = re.compile(
    # An option in a help text; a comment (but not a crash report of the Java virtual machine or Kaldi's
    # run.pl); a command that `set -x` prints; pytest's line for a test that passed or was expected to fail.
    rf"{_OPTION.pattern}|\s*(?:#+(?! +SIGSEGV \(0x| Ended \(code \d)|//) |\++ \S|.*\b(?:PASSED|XFAIL"
    r"|XPASS|SKIPPED)\b"
)
_CONTINUED = "        "
"""Continuation lines of a help text are indented deeper than any line of a traceback."""
_QUOTES = '"""'


def happened(snapshot: TargetSnapshot) -> tuple[LogHit, ...]:
    """The hits of a target's logs without mere mentions."""
    tails = {tail.file: tail for tail in snapshot.log_tails}
    quoted = {file: _quoted_lines(tail) for file, tail in tails.items()}
    return tuple(
        hit
        for hit in snapshot.log_hits
        # A process pool quotes the whole traceback of its worker: that error is real.
        if hit.rule == PROGRESS.rule
        or not (
            _MENTION.match(hit.text)
            or (not hit.traceback and hit.line in quoted.get(hit.file, ()))
            or _continues_an_option(hit, tails.get(hit.file))
        )
    )


def _quoted_lines(tail: LogTail) -> frozenset[int]:
    """Line numbers between two lines that begin with quotation marks."""
    marks = [tail.first_line + index for index, line in enumerate(tail.plain) if line.startswith(_QUOTES)]
    pairs = zip(marks[::2], marks[1::2], strict=False)
    return frozenset(number for first, last in pairs for number in range(first, last))


def _continues_an_option(hit: LogHit, tail: LogTail | None) -> bool:
    if tail is None or not hit.text.startswith(_CONTINUED):
        return False
    above = tail.plain[: max(0, hit.line - tail.first_line)]
    first = next((line for line in reversed(above) if not line.startswith(_CONTINUED)), "")
    return bool(_OPTION.match(first))
