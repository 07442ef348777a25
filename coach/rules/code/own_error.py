"""Word the finding of an error of the program itself: what it is, where, and what to correct."""

from __future__ import annotations

import re

from coach.model.judging.finding import Evidence, Fix, Hit, Subject
from coach.model.judging.outcome import RankEnd
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.advice.circumstances import fixes_of_wording
from coach.rules.from_logs.aftermath import tail_of
from coach.rules.from_logs.hidden_package import hiding_file, rename
from coach.rules.from_logs.outcome import proof_of, told_as_hidden
from coach.rules.from_logs.quoted_evidence import hits_of, innermost_own, own_frame, quote, ranks_text

_HYDRA_SAYS = re.compile(
    r"^(?:In '.*?': |Could not |Cannot find |You must specify |Primary config |Error (?:merging|parsing"
    r"|loading|in call to) |Missing |Key '|Lexer|mismatched |no viable "
    r"|Ambiguous |Multiple values |Unrecognized |Duplicate )"
)
MAX_LINES_OF_HYDRA = 40
_PLACES: tuple[tuple[re.Pattern[str], re.Pattern[str], int, int], ...] = (
    (
        re.compile(r"^yaml\.(?:\w+\.)*(?:Scanner|Parser|Composer|Constructor|Reader)Error: "),
        re.compile(r'^ {2}in "(?P<file>[^"<]{1,300})", line (?P<line>\d+), column (?P<column>\d+):?$'),
        0,
        6,
    ),
    (
        re.compile(r"^Fortran runtime error: "),
        re.compile(
            r"^At line (?P<line>\d+) of file (?P<program>\S{1,300}) "
            r"\(unit = \d+, file = '(?P<file>[^']{1,300})'\)$"
        ),
        1,
        0,
    ),
    (
        re.compile(r"^(?:SyntaxError|IndentationError|TabError): "),
        re.compile(r'^ *File "(?P<file>[^"<]{1,300})", line (?P<line>\d+)$'),
        4,
        0,
    ),
)
"""Errors with a line nearby that names the file that could not be read: the error, that line, and how many
lines above and below the error are searched for it. Of several such lines the last one has the place."""
_CORRECT = "Correct the program at the line that is shown, and try it for a few steps"
_FIND = "Find the place in the program by the lines above the error, correct it, and try it for a few steps"
"""The advice if no line of the program is shown."""
_KEY_ERROR = re.compile(
    r"(?:.*\.)?(?:KeyError|ConfigKeyError|ConfigAttributeError): (?:Key )?(?P<key>'[^']{1,80}')"
)
_CONFIG = re.compile(
    r"\b(?:\w{0,20}_)?(?:cfg|conf|config|configuration|hparams|hyperparameters|hyperparams|settings)\b",
    re.IGNORECASE,
)
"""Names of variables that hold what a configuration file says."""


def name_of(hit: LogHit) -> str:
    """The type of an exception, without its module."""
    return hit.fields["type"].rpartition(".")[2]


def of_a_program(first: LogHit, hits: list[LogHit], snapshot: TargetSnapshot) -> Hit:
    """The finding of an error of the program itself. `first` is the earliest hit."""
    kind, words = "The program ended with an error", first.fields.get("words", "")
    if first.signature in ("hydra", "halted"):
        words = _words_above(first, snapshot)
    elif first.signature == "exception":
        kind = name_of(first)
    place = _place_in_a_file(first, snapshot)
    if place is not None:
        words = f"{words} ({place[0].string.strip()})"
    ranks = sorted({hit.rank for hit in hits if hit.rank is not None})
    frame = own_frame(first)
    hides = hiding_file(first)
    if hides is not None:
        kind, words = f"{hides[0]} hides the package {hides[1]}", f"{kind}: {words}"
        frame = Evidence(f"this file is imported instead of the package: {hides[0]}")
    hit = Hit(
        summary=kind + (f": {words[:200]}" if words else "") + (f" ({ranks_text(ranks)})" if ranks else ""),
        evidence=(
            quote(first),
            *([Evidence(place[0].string.strip(), first.file, place[1])] if place else []),
            *_led_to(first, hits),
            *([frame] if frame else []),
        ),
        confidence=0.8,
        subject=Subject(rank=ranks[0] if len(ranks) == 1 else None),
        fixes=(rename(*hides),) if hides is not None else _fixes(first, place, frame is not None, snapshot),
        cause=_cause(first, snapshot),
        since_s=first.time_s,
    )
    return told_as_hidden(hit, snapshot)


def _led_to(first: LogHit, hits: list[LogHit]) -> list[Evidence]:
    """The exception that was raised while the program handled the first one: it may say what is wrong."""
    later = [hit for hit in hits if hit.block is not None and first.block in hit.block.chain]
    return [quote(later[-1])] if later and first.block is not None else []


def _place_in_a_file(hit: LogHit, snapshot: TargetSnapshot) -> tuple[re.Match[str], int] | None:
    """The line beside an error that names the file that could not be read, and its number in the log."""
    tail = tail_of(hit, snapshot)
    kind = next((row for row in _PLACES if row[0].search(hit.text)), None)
    if tail is None or kind is None:
        return None
    at = hit.line - tail.first_line
    start, stop = max(0, at - kind[2]), at + 1 + kind[3]
    near = (
        (kind[1].match(line), n) for n, line in enumerate(tail.plain[start:stop], tail.first_line + start)
    )
    found = [(match, number) for match, number in near if match is not None]
    return found[-1] if found else None


def _advice_on_place(place: re.Match[str]) -> str:
    named = place.groupdict()
    if "program" not in named:
        column = f", column {named['column']}" if "column" in named else ""
        return f"Correct {named['file']} at line {named['line']}{column}, or just above it"
    return (
        f"See if {named['file']} is complete, and of the form that the program expects: "
        f"{named['program']} reads it at line {named['line']}"
    )


def _fixes(
    hit: LogHit, place: tuple[re.Match[str], int] | None, is_line_shown: bool, snapshot: TargetSnapshot
) -> tuple[Fix, ...]:
    """The fixes of the wording, by rows that hold advice alone, or else one general fix."""
    if place is not None:
        return (Fix(_advice_on_place(place[0])),)
    known = next(filter(None, (fixes_of_wording(row, snapshot) for row in _rows(hit, snapshot))), ())
    return known or (Fix(_advice_on_key(hit) or (_CORRECT if is_line_shown else _FIND)),)


def _cause(hit: LogHit, snapshot: TargetSnapshot) -> str | None:
    """The cause that a row names; None: the rule's own."""
    causes = (row.wording.cause for row in _rows(hit, snapshot) if row.wording is not None)
    return next(filter(None, causes), None)


def _rows(hit: LogHit, snapshot: TargetSnapshot) -> list[LogHit]:
    """The hits of rows at its line that hold advice alone, then the hit."""
    rows = hits_of(snapshot, hit.rule, "advice")
    return [*(row for row in rows if (row.file, row.line) == (hit.file, hit.line)), hit]


def _advice_on_key(hit: LogHit) -> str | None:
    """Advice if the line reads a key of a configuration: the mistake may be in that file."""
    key = _KEY_ERROR.match(hit.text.strip())
    own = innermost_own(hit.frames)
    if key is None or own is None or not _CONFIG.search(own.source or ""):
        return None
    return (
        f"Look for {key['key']} in the configuration that this line reads: the key may be missing or "
        "misspelt there. Else correct the line that is shown"
    )


def of_another_log(failure: RankEnd | None, hit: LogHit | None) -> Hit:
    """The finding of a rank whose error stands in another log."""
    which = "A rank ended with an error"
    if failure is not None:
        which = f"Rank {failure.rank} ended with exit code {failure.exit_code}"
    proof = quote(hit) if hit is not None else proof_of(failure) if failure is not None else None
    return Hit(
        summary=f"{which}; its error is not in this log",
        subject=Subject(rank=failure.rank if failure else None),
        evidence=(proof,) if proof is not None else (),
        confidence=0.5,
        fixes=(
            Fix(
                "Look for its traceback where the rank's own output went (torchrun's --log-dir, a file "
                "for stderr)"
            ),
            Fix(
                "Put torch.distributed.elastic.multiprocessing.errors.record on the main function: coach "
                "then shows the error here"
            ),
        ),
        since_s=hit.time_s if hit is not None else None,
    )


def _words_above(hit: LogHit, snapshot: TargetSnapshot) -> str:
    """The first known line of the message above Hydra's last line, with the next one where it announces
    that; the error above R's last line; empty without one."""
    tail = tail_of(hit, snapshot)
    end = hit.line - tail.first_line if tail is not None else 0
    above = tail.plain[max(0, end - MAX_LINES_OF_HYDRA) : end] if tail is not None and end > 0 else ()
    lines = [line.strip() for line in above]
    if hit.signature == "halted":
        return next((line for line in reversed(lines) if line.startswith(("Error in ", "Error: "))), "")
    place = next((place for place, line in enumerate(lines) if _HYDRA_SAYS.match(line)), len(lines))
    num_lines = 2 if lines[place:] and lines[place].endswith(":") else 1
    return " ".join(lines[place : place + num_lines])
