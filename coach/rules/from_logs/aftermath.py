"""What a log says after an error: whether the program ended with it, or caught it and lived on.

The same words stand in both kinds of logs. To tell the two apart is one question, answered once for all rules
about errors.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, islice

from coach.lookback.history import History
from coach.model.slurm.cluster import is_final
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit, LogTail
from coach.rules.from_logs.loss_lines import PROGRESS, losses_after

_FAILING_WINDOW_LINES = 200
"""A traceback that so many lines follow was caught: a dying process flushes less than that."""

_CAUGHT_AFTER_LINES = 40
"""Without a traceback, so many lines and no sign of an end say the same."""

_UNBUFFERED = re.compile(r"\d%\||\bINFO\b(?! \S+:\d+ -> \d)(?! .*Abort COMPLETE)|\d(?:it/s|s/it)\b")
"""Progress bars and loggers write to stderr at once: unlike printed lines, they were not flushed by a dying
process."""

_SIGNS_OF_LIFE = 10
"""Other ranks may say a few before they are ended as well."""

_TIDYING = ", in _run_finalizers"
_JAX_PLUGIN = "Jax plugin configuration error: "
_BY_A_SIGNAL = "SignalException: "
_TRIED_AGAIN = re.compile(
    r"\b[Rr]etrying\b|\bretry (?:loop|in|with|\d)|-> retry\b|[Ww]ill (?:be )?(?:retry|retried|try again)"
    r"|\b[Ff]all(?:ing|s)? back to\b|, trying (?:another|port|\d)"
    r"|\boffline\b(?!-run|[- ]mode|['\"]?\s*[:=])|\b[Uu]sing (?:cached|previous|default)\b"
    r"|starting from scratch|\b(?<!marked as )skipp(?:ed|ing)\b|, using (?:\S+ )?\S+(?: instead|$)"
)
_ADVICE = re.compile(r"^\s*(?:#|- )|[Yy]ou can|[Pp]lease|set ")
_TRIED_AGAIN_LINES = 3

_DEATH = re.compile(
    r"Traceback \(most recent call last\)|^\S*(?:Error|Exception): |^(?:srun"
    r"|slurmstepd\S*): error: (?!.*(?:CANCELLED AT|: Terminated$))|ChildFailedError|core dumped"
)
"""What stands at the end of a log whose program died: of this error, of what it caused on other ranks, or of
another. Not that it was cancelled."""

_ENDED_WELL = re.compile(
    r"\b[Tt]raining\b.{0,20}\b(?:[Dd]one|[Ff]inished|[Cc]ompleted?)\b|\bdone training\b|\b(?:finished|exits"
    r"|(?<!completed )completed) successfully\b"
    r"|`Trainer\.fit` stopped"
)
"""What stands at the end of a log whose program did what it was to do, or whose script thinks so."""

_TESTS_PASSED = re.compile(r"^=+ (?!.*\b(?:failed|errors?)\b)(?>.*?\d passed\b).* in [\d.:]+")
"""pytest's last line: whatever a test provoked above it was expected."""

_MONITOR = re.compile(r"\b(?:nvidia-smi|dcgmi|tensorboard|sleep|tail)\b")
_SHELL_JOB = re.compile(r": line \d+: +\d+ (?:Killed|Terminated|Hangup|Interrupt)\b(?P<command>.*)")
"""What a shell says of a program that it had started and that a signal ended."""

_OF_A_PROGRAM = re.compile(rf"{_DEATH.pattern}|{_SHELL_JOB.pattern}|^\W*[Ee]xit (?:code|status)\b")
"""What is said when a program has ended: a script that goes on behind it says "done" all the same."""

_DUMPED = re.compile(
    r'^\W*$|^(?:srun|salloc|slurmstepd\S*): |NVRM: |^\[ *\d+\.\d+\] |\bkernel: |File "|frame #\d'
    r"|Thread 0x|Current thread 0x|Extension modules: "
)
"""What a fault handler prints of a dying process, however many threads it had, and Slurm of its step: no sign
of life."""


_NUM_LOGS = 64
"""So many logs are remembered: a target with more has most of them looked at again."""


@dataclass(frozen=True, slots=True)
class _Signs:
    """What the lines that are kept of a log say, looked at once however many errors stand above them. Indices
    of lines, in order."""

    deaths: tuple[int, ...]
    good_ends: tuple[int, ...]
    passed_tests: tuple[int, ...]
    num_unbuffered: tuple[int, ...]
    """Before each line."""
    num_told: tuple[int, ...]
    """Lines before each that no fault handler prints."""

    def death_from(self, start: int) -> int | None:
        return next(iter(self.deaths[bisect_left(self.deaths, start) :]), None)


@lru_cache(_NUM_LOGS)
def _signs_of(lines: tuple[str, ...]) -> _Signs:
    def indices(pattern: re.Pattern[str]) -> tuple[int, ...]:
        return tuple(index for index, line in enumerate(lines) if pattern.search(line))

    return _Signs(
        deaths=indices(_DEATH),
        good_ends=indices(_ENDED_WELL),
        passed_tests=indices(_TESTS_PASSED),
        num_unbuffered=tuple(accumulate((bool(_UNBUFFERED.search(line)) for line in lines), initial=0)),
        num_told=tuple(accumulate((not _DUMPED.search(line) for line in lines), initial=0)),
    )


def went_on(hit: LogHit, snapshot: TargetSnapshot) -> bool:
    """Whether the error was caught: the run completed or still runs, it was tried again, losses follow in the
    same log, or it ends long after, and well.

    Losses right after a traceback prove nothing, because buffered output is flushed when a dying process
    exits; many lines do.
    """
    state = snapshot.state
    if state == "COMPLETED" or (state is not None and not is_final(state)):
        return True
    tail = next((tail for tail in snapshot.log_tails if tail.file == hit.file), None)
    if _says_tried_again(hit.text):
        return True
    if tail is None:
        return not hit.traceback and losses_after(hit, snapshot)
    signs, start, end = _signs_of(tail.plain), _below(hit, tail), len(tail.plain)
    next_said = islice(filter(str.strip, islice(tail.plain, start, None)), _TRIED_AGAIN_LINES)
    if any(map(_says_tried_again, next_said)) or _is_ignored(hit, tail):
        return True
    if signs.passed_tests and signs.passed_tests[-1] >= start:
        return True
    if not hit.traceback and not _OF_A_PROGRAM.search(hit.text) and ended_well(hit, tail):
        return True
    if losses_after(hit, snapshot):
        return not hit.traceback or tail.num_lines - hit.line > _FAILING_WINDOW_LINES
    death = signs.death_from(start)
    until = end if death is None else death
    if signs.num_unbuffered[until] - signs.num_unbuffered[start] >= _SIGNS_OF_LIFE:
        return True
    enough = _FAILING_WINDOW_LINES if hit.traceback else _CAUGHT_AFTER_LINES
    num_told = signs.num_told[until] - signs.num_told[start]
    is_long_ago = (hit.line < tail.first_line and num_told > 0) or num_told > enough
    return is_long_ago and death is None


def was_outlived(hit: LogHit, snapshot: TargetSnapshot, num_lines: int = 1) -> bool:
    """Whether a script went on after a shell's line, which ends no program by itself: more was printed, and
    no death."""
    tail = next((tail for tail in snapshot.log_tails if tail.file == hit.file), None)
    if tail is None or snapshot.state is not None:
        return False
    signs, start = _signs_of(tail.plain), _below(hit, tail)
    num_told = signs.num_told[-1] - signs.num_told[start]
    return num_told >= num_lines and signs.death_from(start) is None


def ended_well(hit: LogHit, tail: LogTail) -> bool:
    """Whether the log says further down that all was done, and of no death."""
    signs, start = _signs_of(tail.plain), _below(hit, tail)
    return bool(signs.good_ends) and signs.good_ends[-1] >= start and signs.death_from(start) is None


def has_good_end(tail: LogTail) -> bool:
    """True if a line that is kept says that all was done, or that all tests passed."""
    signs = _signs_of(tail.plain)
    return bool(signs.good_ends or signs.passed_tests)


def has_gone_well(snapshot: TargetSnapshot, history: History) -> bool:
    """True if it was seen to train, or to end well.

    A job that completed needs no more than something that was read of it.
    """
    has_trained = bool(history.ranks) or any(hit.rule == PROGRESS.rule for hit in snapshot.log_hits)
    if snapshot.state == "COMPLETED":
        return has_trained or bool(history.nodes or history.gpus or snapshot.log_tails)
    if snapshot.state == "RUNNING":
        return has_trained or bool(history.gpus)
    return snapshot.state is None and (has_trained or any(map(has_good_end, snapshot.log_tails)))


def is_monitor(hit: LogHit) -> bool:
    """Whether a shell tells of the end of something that only ran beside the program."""
    found = _SHELL_JOB.search(hit.text)
    return found is not None and bool(_MONITOR.search(found["command"]))


def lines_after(hit: LogHit, tail: LogTail) -> Sequence[str]:
    """What is kept of the lines below a hit."""
    return tail.plain[_below(hit, tail) :]


def _below(hit: LogHit, tail: LogTail) -> int:
    """Index of the first kept line below a hit; their number where none is."""
    return min(len(tail.plain), max(0, hit.line - tail.first_line + 1))


def above_traceback(hit: LogHit, tail: LogTail) -> Sequence[str]:
    """The two lines above the traceback that a hit stands in; empty lines aside, which some put between all
    lines."""
    above = [line for line in tail.plain[: max(0, hit.line - tail.first_line)] if line.strip()]
    end = len(above) - sum(1 for line in hit.traceback[:-1] if line.strip())
    return above[max(0, end - 2) : max(0, end)] if hit.traceback else ()


@lru_cache(maxsize=1024)
def _says_tried_again(line: str) -> bool:
    return bool(_TRIED_AGAIN.search(line)) and not _ADVICE.search(line)


def _is_ignored(hit: LogHit, tail: LogTail) -> bool:
    """Whether who printed the traceback went on: Python below "Exception ignored in", its logging below "---
    Logging error ---", torch.compile below "WON'T CONVERT … due to:", multiprocessing of what it could not
    tidy up, JAX of a plugin that it does without. A signal that came meanwhile is no fault of the logging."""
    if any(_TIDYING in line for line in hit.traceback):
        return True
    return _BY_A_SIGNAL not in hit.text and any(
        "Exception ignored in" in line
        or "--- Logging error ---" in line
        or line.strip() == "due to:"
        or _JAX_PLUGIN in line
        for line in above_traceback(hit, tail)
    )
