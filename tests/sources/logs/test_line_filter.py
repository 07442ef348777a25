"""The filter must never hide a line: its result is compared with every pattern tried on every line."""

from __future__ import annotations

import random
import re
import tracemalloc
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from coach.model.training.log import FIRST_LINE, MAX_FIRST_HITS, Signature
from coach.rules.registry import build, signatures
from coach.sources.logs import scanner as log_scanner
from coach.sources.logs.layout import join_messages
from coach.sources.logs.line_filter import is_digit_blind
from coach.sources.logs.line_text import ANSI, decode, split_prefix, with_signals_apart
from coach.sources.logs.scanner import LogScanner, search

TESTS = Path(__file__).parents[2]
LOGS = {".log", ".out", ".err", ".txt"}
LARGEST_BYTES = 1 << 20


def all_fixture_text() -> bytes:
    """Every third line of the logs among the fixtures and of the error lines in the tests of the rules: each
    takes all patterns."""
    files = [
        path for path in sorted(TESTS.rglob("*")) if path.is_file() and path.stat().st_size < LARGEST_BYTES
    ]
    logs = [path.read_bytes() for path in files if path.suffix in LOGS]
    spelled = [
        text
        for path in (TESTS / "rules").glob("*.py")
        for text in re.findall(rb'"((?:[^"\\\n]|\\.)*)"', path.read_bytes())
    ]
    lines = {line for text in logs for line in re.split(rb"[\r\n]+", text)}
    lines |= {line for text in spelled for line in text.split(rb"\n")}
    return b"".join(line + b"\n" for line in sorted(lines)[::3] if len(line) < 4096)


def everywhere(wanted: tuple[Signature, ...]) -> tuple[Signature, ...]:
    """The same signatures without the exception for tracebacks, because the lines are in another order."""
    return tuple(replace(signature, reads_source=True) for signature in wanted)


def found_by_hand(text: bytes, wanted: tuple[Signature, ...]) -> Counter[tuple[str, str, int]]:
    """Search every line with every pattern, without literals, kinds or other shortcuts."""
    found: Counter[tuple[str, str, int]] = Counter()
    patterns = [(signature, re.compile(signature.pattern)) for signature in wanted]
    for number, line in enumerate(join_messages(ANSI.sub(b"", text), is_end=True)[0].split(b"\n"), start=1):
        for part in with_signals_apart(line, is_in_bar=False).split(b"\r"):
            words = split_prefix(decode(part))[1]
            for signature, pattern in patterns:
                if search(signature, pattern, words):
                    found[signature.rule, signature.name, number] = 1
    return found


def found_by_scanner(
    text: bytes, wanted: tuple[Signature, ...], bite_bytes: int
) -> Counter[tuple[str, str, int]]:
    scanner = LogScanner(wanted)
    bites = [text[start : start + bite_bytes] for start in range(0, len(text), bite_bytes)]
    hits = [*(hit for bite in bites for hit in scanner.feed(bite)), *scanner.flush()]
    return Counter((hit.rule, hit.signature, hit.line) for hit in hits if hit.signature != FIRST_LINE)


@cache
def all_fixture_text_by_hand() -> tuple[bytes, tuple[Signature, ...], Counter[tuple[str, str, int]]]:
    """The text, all signatures, and their hits in it. It takes seconds, so the tests that use it share a
    process."""
    wanted, text = everywhere(signatures(build())), all_fixture_text()
    return text, wanted, found_by_hand(text, wanted)


@pytest.mark.xdist_group("line-filter")
@pytest.mark.parametrize("bite_bytes", [1 << 16, 1 << 30], ids=["in-pieces", "at-once"])
def test_no_line_that_any_rule_looks_for_is_hidden_by_the_filter(bite_bytes: int) -> None:
    text, wanted, by_hand = all_fixture_text_by_hand()
    kinds = {(signature.rule, signature.name) for signature in wanted}
    assert len({(rule, name) for rule, name, _ in by_hand}) > len(kinds) // 2
    frequent = Counter((rule, name) for rule, name, _ in by_hand)
    by_scanner = found_by_scanner(text, wanted, bite_bytes)
    # The middle hits of a very frequent signature are skipped on purpose.
    missed = {hit[:2] for hit in by_hand - by_scanner if frequent[hit[:2]] <= MAX_FIRST_HITS}
    assert not missed
    assert by_scanner - by_hand == Counter()


def test_a_literal_that_reaches_into_its_next_place_is_found_at_both() -> None:
    found = found_by_scanner(b"aXaXab\n" * 4, (Signature("X", "x", ("aXa", "aXab"), "aXab"),), 1 << 16)
    assert sorted(line for _, _, line in found) == [1, 2, 3, 4]


def test_a_number_that_means_something_is_found_among_lines_that_differ_in_numbers_alone() -> None:
    killed = Signature("X", "killed", ("exit code ",), r"exit code 137\b")
    number = Signature("X", "number", ("139", "Errno 98]"), r"code 139$|Errno 98\]")
    text = (
        b"".join(b"rank 0: exit code %d\n" % code for code in range(1000, 9000))
        + b"exit code 137\nexit code 139\n[Errno 98]\n"
    )
    scanner = LogScanner((killed, number))
    hits = scanner.feed(text) + scanner.flush()
    assert [(hit.signature, hit.line) for hit in hits] == [
        ("killed", 8001),
        ("number", 8002),
        ("number", 8003),
    ]


@pytest.mark.parametrize(
    ("pattern", "is_blind"),
    [
        (r"loss: (?P<value0>\d{1,3}\.\d+)", True),
        (r"[A-Za-z0-9_]+Error", True),
        (r"\d+ \u2502", True),
        (r"exit code 137", False),
        (r"[1-9]\d*", False),
        (r"(\d+) of \1", False),
        (r"(?P<a>\d+)/(?P=a)", False),
        (r"a{2}b\{2\}", False),
        (r"page 0-9", False),
    ],
)
def test_a_pattern_for_one_digit_is_distinguished_from_one_for_any_digit(
    pattern: str, is_blind: bool
) -> None:
    assert is_digit_blind(pattern) is is_blind


def test_a_failed_search_of_one_kind_holds_only_for_the_same_kind() -> None:
    loss = Signature("X", "loss", ("loss",), r"loss \d")
    text = b"no loss here 12\nloss 7\nno loss here 99\rloss 8\nno loss at all\nloss 9"
    assert sorted(found_by_scanner(text, (loss,), 1 << 16)) == [("X", "loss", line) for line in (2, 3, 5)]


def test_the_memory_for_lines_is_bounded_when_no_line_is_like_another() -> None:
    scanner = LogScanner((Signature("X", "loss", ("loss",), r"loss \d"),))
    draw = random.Random(5)
    letters = {48 + n: 103 + n for n in range(10)}
    tracemalloc.start()
    try:
        for _ in range(20):
            scanner.feed(
                b"".join(
                    f"no loss in {draw.randbytes(40).hex().translate(letters)}\n".encode()
                    for _ in range(4_000)
                )
            )
        assert tracemalloc.get_traced_memory()[0] < 4 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "line",
    [
        b"step %d Error: none so far, loss is fine, seed %d, info\n",
        b"\r 12%%|##   | %d/10000 [00:59<01:00, 12.3it/s, loss=0.%d]",
        b"3: step %d scale 65536 loss 2.%d lr 0.1\n",
    ],
    ids=["error-and-loss", "progress-without-newline", "ranks"],
)
def test_few_of_many_lines_that_differ_only_in_digits_are_decoded(
    line: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    num_lines = 60_000
    decoded: list[bytes] = []

    def counted(data: bytes) -> str:
        decoded.append(data)
        return decode(data)

    monkeypatch.setattr(log_scanner, "decode", counted)
    scanner = LogScanner(signatures(build()))
    scanner.feed(b"".join(line % (step, step) for step in range(20_000, 20_000 + num_lines)))
    assert 0 < len(decoded) < num_lines / 100


def test_a_line_with_many_literals_is_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    draw, num_lines = random.Random(7), 5_000
    searched: list[str] = []

    def counted(signature: Signature, pattern: re.Pattern[str], words: str) -> re.Match[str] | None:
        searched.append(words)
        return search(signature, pattern, words)

    monkeypatch.setattr(log_scanner, "search", counted)
    wanted = (Signature("X", "x", ("unable to mmap", "mmap"), "Error.*?unable to mmap"),)
    lines = [
        "".join(draw.choices("abcdefgh", k=draw.randint(15, 25))) + " unable to mmap" * 9
        for _ in range(num_lines)
    ]
    text = "\n".join([*lines, "Error: unable to mmap"]).encode() + b"\n"
    assert [*found_by_scanner(text, wanted, 1 << 30)] == [("X", "x", num_lines + 1)]
    assert len(searched) == num_lines + 1
