"""Checks around a literal must never exclude a match, and must exclude most other lines."""

from __future__ import annotations

import re

import pytest

from coach.model.training.log import Signature
from coach.rules.registry import build, signatures
from coach.sources.logs.line_filter import is_digit_blind
from coach.sources.logs.literal_probe import probes_of


def passes(pattern: str, literals: tuple[str, ...], line: str) -> bool:
    """True if a line passes the checks at one of its literals."""
    probes = probes_of(Signature("X", "x", literals, pattern))
    data = line.encode()
    return any(
        re.compile(behind).match(data, place.end())
        for literal, behind in probes.behind.items()
        for place in re.finditer(re.escape(literal.encode()), data)
    )


@pytest.mark.parametrize(
    ("pattern", "literals", "matched", "let_go"),
    [
        (r"loss: (\d+)", ("loss",), "my loss: 12", "no loss here: 12"),
        (
            r"(?:CUDA error|CUDA failure): \w+",
            ("CUDA error", "CUDA failure"),
            "CUDA failure: é",
            "CUDA error 7",
        ),
        (r"(?i:lo(?P<kind>ss|st)) is", ("Loss", "lost"), "Loss is", "Loss was, lost too"),
        (r"errors?\.[A-Z]", ("error.", "errors."), "errors.X", "error.x"),
        (r"code (?:137|143)$", ("code ",), "exit code 143", "exit code 14"),
        (r"(?<!no )memory(?! left)[^a-z]{2,3}!", ("memory",), "a memory é !", "memory is fine"),
        (r"inf(?![\w.])(?=\s*,)", ("inf",), "inf ,", "information, inf."),
        (r"line \d+: +\d+ Killed\b", ("Killed",), "line 7:  123 Killed", "it was Killed"),
        (r"it/s\]Bus error|é: Bus error", ("Bus error",), "1 it/s]Bus error", "a Bus error"),
        (r"(?:é|[Oo]h?)!? Killed", ("Killed",), "é Killed", "he Killed"),
        (r"(?>.*?(?:Error: |failed ))with code", ("with code",), "Error: with code", "it goes on with code"),
        (
            r"^\w+ failed(?:, \d+ of \d+)?: .*disk",
            ("failed",),
            "it failed, 1 of 2: the disk",
            "it failed again: disk",
        ),
    ],
)
def test_a_line_that_cannot_match_is_rejected_at_its_literal(
    pattern: str, literals: tuple[str, ...], matched: str, let_go: str
) -> None:
    assert re.search(pattern, matched)
    assert passes(pattern, literals, matched)
    assert not passes(pattern, literals, let_go)


@pytest.mark.parametrize(
    ("pattern", "literal", "words"),
    [
        (r"(?>.*?(?:Error: |Exception: )).*?size \d+ is not", "size ", (b"rror: ", b"xception: ")),
        (r"WARN .{0,40}?(?:NET/\w+|socket).*?(?:fail|reset)", "WARN ", (b"NET/", b"socket")),
        (r"(?:Error|error)\b.*?in use", "in use", (b"Error", b"error")),
        (r"(?:.*?Error: |(?=Incompatible)).*?shapes", "shapes", (b"Error: ", b"Incompatible")),
    ],
)
def test_required_words_elsewhere_in_the_line_are_checked_too(
    pattern: str, literal: str, words: tuple[bytes, ...]
) -> None:
    assert probes_of(Signature("X", "x", (literal,), pattern)).elsewhere[literal] == words


def test_a_literal_that_the_pattern_takes_in_another_case_too_is_not_the_only_one_looked_at() -> None:
    assert passes(r"(?i:overflow).*?to \d", ("OVERFLOW", "verflow"), "an overflow: to 7")


def test_a_literal_may_be_inside_a_look_ahead() -> None:
    pattern = r"^(?:.*?(?=Check batch \d)|.*?Error: (?=.{0,20}?stage \d)).*"
    probes = probes_of(Signature("X", "x", ("Check batch", "stage"), pattern))
    assert not re.match(probes.behind["Check batch"], b" sizes")
    assert re.match(probes.behind["stage"], b" 3")
    assert probes.elsewhere == {"stage": (b"Error: ",)}


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        (r"(\w+) and \1 error", "x and x error"),
        (r"(?P<all>.*) error (?P=all)", "a error a"),
        (r"(?:[a-z]+ ){2}error$", "one two error"),
        (r"(?:er|ter)ror", "terror"),
        (r"(?>er)ror", "error"),
        ("é error: \u2502", "é error: \u2502"),
    ],
)
def test_a_pattern_that_is_too_complex_gets_fewer_checks(pattern: str, line: str) -> None:
    assert re.search(pattern, line)
    assert passes(pattern, ("error", "rror"), line)


def test_the_beginning_of_a_line_is_checked_for_an_anchored_pattern() -> None:
    probes = probes_of(Signature("X", "x", ("Error",), r"^(?:[A-Z]\w*)?Error: "))
    assert re.match(probes.begin, b"ValueError: x")
    assert not re.match(probes.begin, b"it said ValueError: x")
    assert not probes_of(Signature("X", "x", ("Error",), r"Error: ")).begin


@pytest.mark.parametrize(("rule", "name"), [("COD001", "exception"), ("NUM001", "not_finite")])
def test_frequent_literals_in_healthy_lines_are_rejected_cheaply(rule: str, name: str) -> None:
    (signature,) = (each for each in signatures(build()) if (each.rule, each.name) == (rule, name))
    assert is_digit_blind(signature.pattern)
    assert not any(
        passes(signature.pattern, signature.literals, f"an {word} of loss") for word in ("Error", "Invalid")
    )
