"""Strip a log line to its words: colours, rank prefixes, time stamps, source lines of tracebacks.

Launchers put a rank before each line, terminals add colours, loggers a time. Rules match only the words; this
module removes the rest and returns what it means.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from itertools import islice

from coach.runs import SAID_OF_END

ANSI = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\r\n]*(?:\x07|\x1b\\)|[()][0-9A-Za-z]|[@-Z\\^_=>78])"
)
"""Terminal control sequences: colours, cursor movements, titles."""

PREFIX = re.compile(
    r"\[rank(?P<rank>\d{1,6})\]: ?"  # torch
    r"|\[default(?P<default>\d{1,6})\]:"  # torchrun --tee
    # mpirun --tag-output; horovodrun, in most cases with a time
    r"|(?:[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4})?\[(?:\d+,)?(?P<mpi>\d{1,6})\]<std(?:out"
    r"|err)>: ?"
    r"| {0,5}(?P<label>\d{1,6}): "  # srun --label
    r"|\((?:[\w.-]+ )?(?:rank=(?P<worker>\d{1,6}) )?pid=\d+(?:, ip=[\d.]+)?\) ?"  # Ray, vLLM
    r"|\(raylet(?:, ip=[\d.]+)?\) "
    r"|\[rank: (?P<lightning>\d{1,6})\] "
    r"|(?!python|slurm|ep(?:och)?\d|step|iter)[a-z][\w.-]*\d: "  # pdsh, DeepSpeed's launcher: the node
    # containers
    r"|(?:(?:ERROR|CRITICAL) )?\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d) (?:std(?:out"
    r"|err) [FP] )?"
    # vLLM's logger, before each line of a traceback
    r"|(?:ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d \[?[\w./]+\.py:\d+\](?: |$)"
)
_RANK_OF_TRACEBACK = "]: Traceback (most recent call last)"
_RANK = re.compile(r"\[rank(\d{1,6})$")
"""torch's prefix of a traceback that begins behind a progress bar: `5/50 [00:01][rank0]: Traceback …`."""
_SAID = SAID_OF_END.encode()
_VERDICT = re.compile(rb"(?m)^" + re.escape(_SAID) + rb"[^\r\n]*")
_BAR = re.compile(r"[^\n]{0,80}?\d{1,3}%\||\s*\d{1,9}/\d{1,9} (?:\[|━|\x1b)")
_SIGNALS = (b"Killed", b"Terminated", b"Hangup", b"Aborted", b"Segmentation fault", b"Bus error")
"""A shell's words about a program that a signal ended."""
_SIGNAL = re.compile(rb"(?:" + b"|".join(_SIGNALS) + rb")(?: \(core dumped\))?(?=[\r\n]|$)")
_IN_BARS = (b"\r", b"it/s", b"s/it", b"%|")
MAX_PREFIXES = 3
_MAX_SHOWN_CHARS = 4096

_TIME_STAMP = re.compile(
    r"(\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)(?: ?(Z|[+-]\d\d:?\d\d)(?!\d))?"
)
_MAX_TIME_STAMP_COLUMN = 80
_CANCELLED_AT = "CANCELLED AT "

_BELOW_ERROR = re.compile(
    r"\[[WI]\d{0,4} |[WI]\d{4} |\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{1,9}: [WI] "
    r"|(?>.*?(?:(?<!=)\b(?:WARN(?:ING)?|INFO|DEBUG)\b|(?:Error|Exception): ))(?<!: )"
)
"""Includes the forms of c10d and TensorFlow: `[W1121 …]`, `2026-11-21 03:49:46.12: W …`. `NCCL_DEBUG=INFO` is
advice, not a level. A level behind an error's name belongs to its message, or to another line that was mixed
in."""
_TYPE = re.compile(r"(?>.*?(?:(?:Error|Exception|Timeout|what\(\)): |Failed running))")

_FRAME = re.compile(r'[\s|]*File "[^"]+", line \d+(?:, in |$)')
_SHOWN_BESIDE_A_MARK = re.compile(r"│\s*(?:❱\s*)?\d+ │|-{2,}> ?\d+ |> {4,}\S")
"""A source line as rich, notebooks and pytest print it."""
_WARNED = re.compile(r"\S{1,400}:\d{1,7}: \w{0,60}Warning: ")
"""Below a warning, Python prints the line that caused it."""
_MAX_LINES_BELOW_A_FRAME = 16
"""Python prints a statement of several lines, and marks below it."""


def decode(data: bytes) -> str:
    """The text of a log.

    If no byte outside ASCII is valid UTF-8, the text is Latin-1, which older programs and some libraries
    write.
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode("utf-8", "replace")
    if text.replace("\ufffd", "").isascii():
        return data.decode("latin-1")
    return text


def without_verdict(data: bytes) -> bytes:
    """Empty the lines in which coach wrote into the job's log why the job ended. They quote the error, so a
    rule would count it twice. The empty lines keep the numbers of the others."""
    return _VERDICT.sub(b"", data) if _SAID in data else data


def with_signals_apart(data: bytes, is_in_bar: bool) -> bytes:
    """Put a carriage return before a shell's message about a signal that stands behind a progress bar: a bar
    ends without a newline. `is_in_bar` is True if the data begin behind a carriage return."""
    if not any(words in data for words in _SIGNALS):
        return data

    def apart(found: re.Match[bytes]) -> bytes:
        newline = data.rfind(b"\n", 0, found.start())
        bar = data[newline + 1 : found.start()]
        is_behind = (newline < 0 and is_in_bar) or any(sign in bar for sign in _IN_BARS)
        return b"\r" + found[0] if is_behind else found[0]

    return _SIGNAL.sub(apart, data)


def last_state(line: str) -> str:
    """The text that a terminal finally shows of a line: a progress bar rewrites its line. After 4,096
    characters it is cut, with `…` at its end."""
    piece = next((piece for piece in reversed(line.split("\r")) if piece), "")
    return piece if len(piece) <= _MAX_SHOWN_CHARS else piece[:_MAX_SHOWN_CHARS] + "…"


def is_below_error(words: str) -> bool:
    """True if the line has a logger's level below ERROR."""
    return _BELOW_ERROR.match(words) is not None


def start_of_words(words: str) -> int | None:
    """Offset behind the first name of an exception type; None if the line has none."""
    found = _TYPE.match(words)
    return found.end() if found is not None else None


def split_prefix(line: str) -> tuple[int | None, str]:
    """(rank, words): the line without the prefixes of launchers."""
    rank, position = None, 0
    for _ in range(MAX_PREFIXES):
        found = PREFIX.match(line, position)
        if found is None:
            break
        for value in found.groupdict().values():
            rank = int(value) if value is not None else rank
        position = found.end()
    end = line.find(_RANK_OF_TRACEBACK, position)
    behind_bar = _RANK.search(line[position:end]) if end > 0 else None
    return int(behind_bar[1]) if behind_bar is not None else rank, line[position:]


def parse_time_s(words: str) -> float | None:
    """The time stamp of a line in epoch seconds. A stamp without a time zone is in this machine's zone."""
    found = _TIME_STAMP.search(words[: _MAX_TIME_STAMP_COLUMN + 40])
    if found is None or found.start() > _MAX_TIME_STAMP_COLUMN:
        place = words.find(_CANCELLED_AT)
        found = _TIME_STAMP.match(words, place + len(_CANCELLED_AT)) if place >= 0 else None
        if found is None:
            return None
    try:
        return datetime.fromisoformat(found[1].replace("/", "-") + (found[2] or "")).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def start_of_line(text: bytes, place: int, start: int) -> int:
    newline = text.rfind(b"\n", start, place)
    return max(newline, text.rfind(b"\r", max(newline, start), place), start - 1) + 1


def end_of_line(text: bytes, place: int) -> int:
    newline = text.find(b"\n", place)
    end = len(text) if newline < 0 else newline
    carriage_return = text.find(b"\r", place, end)
    return end if carriage_return < 0 else carriage_return


def is_source_line(words: str, rank: int | None, before: Iterable[tuple[int | None, str]]) -> bool:
    """True for a line that shows the program instead of its error: a frame of a traceback, the source line
    below it, the marks below that, or the line that caused a warning.

    `before` holds (rank, words) of the lines above, nearest first. A source line is indented further than its
    frame, and the exception less, however far the whole traceback is indented; the bars before the lines of
    an exception group do not count.
    """
    if _SHOWN_BESIDE_A_MARK.match(words):
        return True
    depth = depth_of(words)
    if depth == 0:
        return False
    if _FRAME.match(words):
        return True
    for line_rank, line in islice(before, _MAX_LINES_BELOW_A_FRAME):
        if line_rank != rank:
            continue
        if _FRAME.match(line):
            return depth > depth_of(line)
        if _WARNED.match(line):
            return True
        depth = min(depth, depth_of(line))
        if depth == 0:
            return False
    return False


def depth_of(words: str) -> int:
    """The indentation of a line, without the bars and the corner of an exception group; 0 for a progress bar,
    which is neither source nor the rest of a message."""
    text = words.lstrip(" |\t+")
    return len(words) - len(text) if text and not _BAR.match(words) else 0
