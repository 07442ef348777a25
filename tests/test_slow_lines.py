"""No line of another program can block coach: each pattern is tried on lines that are built to be slow for
it.

A search holds the interpreter, so one slow line stops a whole screen. CPU time counts, on a line of the
greatest length that the pattern ever sees. Patterns that are quick on short lines pass; only the others are
tried on long lines.
"""

from __future__ import annotations

import heapq
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from coach.model.training.log import MAX_LINE_BYTES, Signature
from coach.rules.registry import build, signatures
from coach.sources.logs.scanner import LogScanner
from tests.foreign_patterns import Pattern, all_patterns, calls_in_functions
from tests.slow_lines import SlowLine, slow_lines

LIMIT_S = 0.05
_SHORT = 256
_NUM_SUSPECTS = 12
_QUADRATIC = 2.5
"""A line twice as long takes twice the time of a linear pattern, and four times that of a quadratic one."""
_GIVE_UP_S = 0.5

OWN_TEXT = {
    "coach.analysis.query.language._COMMA": "what the user typed after -q",
    "coach.model.toml_lines._TOKEN": "the user's or the site's own configuration",
    "coach.launch.recipe_file._TRAINER": "matched whole, by a function that is handed it",
    "coach.node.telemetry_file._SERIES": "what the sampler wrote; it cuts each record to 900 bytes",
    "coach.sources.logs.line_filter._CLASS": "a pattern of the program",
    "coach.sources.logs.line_filter._NO_DIGIT_MEANT": "a pattern of the program",
    "coach.workflows.launching.relaunch._RUN_JSON": "a script that coach wrote",
}
"""Patterns that see no text of others, and what they see."""

PUT_TOGETHER = {
    "coach.launch.batch_file.faulty_line": "the words of sbatch, escaped, in a line of the user's own script",
    "coach.node.time_limit._is_told": "a job's number, escaped, behind a fixed text",
    "coach.launch.long_job._known_option": "the name of an option, and what follows without a loop in it",
    "coach.rules.wordings.rows._expression": "compiled only, to see that it can be",
    "coach.workflows.judging.rule_files.slow_text": "it measures how slow a pattern is",
    "coach.sources.logs.first_lines.learn": "a line of the log, escaped",
    "coach.sources.logs.scanner._pattern": "a signature: tried as such",
    "coach.sources.logs.scanner.search": "a signature's exception: tried as such",
    "coach.analysis.jobs.batch_script._assignments": "names of a fixed list, in a script of the user",
    "coach.analysis.jobs.batch_script._directives": "names of a fixed list, in a script of the user",
    "coach.analysis.jobs.batch_script._export": "names of variables, in the user's own script",
    "coach.analysis.jobs.batch_script._flags": "names of a fixed list, in a script of the user",
    "coach.analysis.jobs.batch_script._uses": "names of a fixed list, in a script of the user",
    "coach.analysis.query.kinds._name_test": "a glob of the user",
    "coach.launch.refusal._choices": "sentences of sbatch",
    "coach.launch.refusal._in_lists": "sentences of sbatch",
    "coach.launch.refusal._named": "a name, escaped",
    "coach.launch.refusal._said": "sentences of sbatch",
    "coach.launch.refusal.fields_in_question": "sentences of sbatch",
    "coach.node.telemetry_file._old_numbers": "a name, escaped",
    "coach.recorder.anonymize.striker": "names, escaped",
    "coach.sources.logs.scanner._learn_layout": "one of the shapes of log_layout",
    "coach.sources.slurm.conf_file._value_in": "a name of slurm.conf, in the site's own file",
    "coach.workflows.judging.job_files._step_log": "an output name of a script, as script_outputs makes it",
}
"""Functions that put a pattern together at run time, and from what."""


class _TooLong(Exception):
    pass


@contextmanager
def given_up_after(seconds: float) -> Iterator[None]:
    """`re` looks for signals while it searches."""

    def give_up(*_: object) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGVTALRM, give_up)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def use(pattern: re.Pattern[Any], method: str, line: str) -> None:
    text: Any = line.encode() if isinstance(pattern.pattern, bytes) else line
    if method in ("search", "match", "fullmatch"):
        getattr(pattern, method)(text)
    else:
        for _ in pattern.finditer(text):
            pass


def cpu_s(pattern: re.Pattern[Any], method: str, line: str, tries: int = 1) -> float:
    """The least of several tries: other processes only ever make it longer."""
    least = _GIVE_UP_S
    try:
        with given_up_after(_GIVE_UP_S):
            for _ in range(tries):
                start = time.thread_time()
                use(pattern, method, line)
                least = min(least, time.thread_time() - start)
    except _TooLong:
        pass
    return least


def is_slow_on(pattern: re.Pattern[Any], method: str, line: SlowLine, length: int) -> bool:
    whole = cpu_s(pattern, method, line.of_length(length), tries=3)
    if whole < LIMIT_S:
        return False
    half = cpu_s(pattern, method, line.of_length(length // 2), tries=3)
    return whole >= _GIVE_UP_S or whole / half > _QUADRATIC


def first_look(pattern: re.Pattern[Any], method: str, lines: list[str]) -> list[tuple[float, int]]:
    """(CPU time, number) of each line, up to one that takes very long."""
    taken: list[tuple[float, int]] = []
    start = time.thread_time()
    try:
        with given_up_after(_GIVE_UP_S + len(lines) * _SHORT * 1e-6):
            for number, line in enumerate(lines):
                start = time.thread_time()
                use(pattern, method, line)
                taken.append((time.thread_time() - start, number))
    except _TooLong:
        taken.append((time.thread_time() - start, len(taken)))
    return taken


def slowest_line(pattern: Pattern) -> str | None:
    """A line on which a pattern is too slow."""
    lines = slow_lines(pattern.compiled, sorted(pattern.literals))
    for method in _methods(pattern.methods):
        at_first = first_look(pattern.compiled, method, [line.of_length(_SHORT) for line in lines])
        for _, number in heapq.nlargest(_NUM_SUSPECTS, at_first):
            line, quarter = lines[number], pattern.max_chars // 4
            # Of a quadratic pattern a quarter of the line takes a sixteenth of the time.
            if cpu_s(
                pattern.compiled, method, line.of_length(quarter), tries=2
            ) > LIMIT_S / 16 and is_slow_on(pattern.compiled, method, line, pattern.max_chars):
                return f"{pattern.name} ({method}): {line}"
    return None


def _methods(used: set[str]) -> list[str]:
    """The methods to try, for all that are used: `finditer` also for findall, sub, subn and split; `search`
    also for match."""
    if used & {"finditer", "findall", "sub", "subn", "split"}:
        return ["finditer"]
    return ["search"] if "search" in used else sorted(used)


def test_every_pattern_is_quick_on_every_line_made_to_be_slow_for_it() -> None:
    patterns = [pattern for pattern in all_patterns() if pattern.name not in OWN_TEXT]
    assert len(patterns) > 300
    assert "\n".join(filter(None, map(slowest_line, patterns))) == ""


def test_every_list_of_exceptions_names_existing_patterns() -> None:
    assert OWN_TEXT.keys() <= {pattern.name for pattern in all_patterns()}
    put_together = {call.place for call in calls_in_functions() if call.text is None}
    assert put_together == PUT_TOGETHER.keys()


def test_patterns_written_inside_functions_are_quick() -> None:
    patterns = [
        Pattern(call.place, re.compile(call.text), {call.method}, max_chars=MAX_LINE_BYTES)
        for call in calls_in_functions()
        if call.text and call.method != "compile"
    ]
    assert len(patterns) > 20
    assert "\n".join(filter(None, map(slowest_line, patterns))) == ""


@pytest.mark.parametrize(
    ("pattern", "method"),
    [
        (r"loss\s*(?:[:=]\s*|\s+is\s+|\s)\s*\d", "search"),
        (r"(?:-+> ?)?\s*\d+ ", "search"),
        (r"(?:\w+\.)*[A-Z]\w+(?:Error|Exception)$", "search"),
        (r"\s{2,}\S|[╰└]", "search"),
        (r"(?:a|b|ab)*c", "match"),
        (r"Error: .*?(?:not found|no such)", "search"),
    ],
)
def test_a_pattern_that_takes_the_square_of_a_line_is_found(pattern: str, method: str) -> None:
    assert slowest_line(Pattern("made up", re.compile(pattern), {method}, max_chars=MAX_LINE_BYTES))


LOSS = "Loss" + " " * 15_000


@pytest.mark.parametrize(
    "line",
    [
        LOSS,
        "val_loss nan" + "\t" * 15_000,
        "Loss\u00a0" * 3000,
        "Error: " * 2300,
        "loss nan " * 1800,
        "KeyError: '" + "_" * 15_000,
    ],
    ids=lambda line: line[:9],
)
def test_a_whole_log_of_such_lines_is_scanned_in_time(line: str) -> None:
    """A whole log costs more than its patterns: literals are searched, and each line is decoded."""
    found = tuple(signatures(build()))
    LogScanner(found).feed(b"loss: 1.0\n" * 1000)
    num_lines, least = 8, float("inf")
    for _ in range(3):
        scanner = LogScanner(found)
        scanner.feed(b"Epoch 1\n" * 2000)
        start = time.thread_time()
        scanner.feed((line + "\n").encode() * num_lines)
        scanner.flush()
        least = min(least, time.thread_time() - start)
    assert least < num_lines * 4 * LIMIT_S


def test_a_signature_sees_the_beginning_of_a_long_line() -> None:
    signature = Signature("X", "x", ("gone",), "gone", max_chars=100)
    assert len(LogScanner((signature,)).feed(b"x" * 96 + b"gone\n" + b"ok\n" * 9999)) == 1
    assert LogScanner((signature,)).feed(b"x" * 97 + b"gone\n" + b"ok\n" * 9999) == []
