"""Read and test the files of wordings and thresholds that a site or a user adds to the project's.

Each row is tested as it will be used: its example passes through the log scanner, and the rules judge the
result.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from coach.lookback.history import History
from coach.model.errors import UserError
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogTail, Signature
from coach.rules import registry, thresholds
from coach.rules.base import Rule
from coach.rules.engine import Engine
from coach.rules.wordings.rows import Wording, parse_file, shipped
from coach.sources.logs.scanner import LogScanner
from coach.sources.named_file import read_named

MAX_FILE_BYTES = 1 << 20
LIMIT_S = 0.05
"""Seconds. A pattern that takes longer on a line made to be slow for it would hold up the screens."""
_FILE = "example"
_LENGTHS = (8, 12, 16, 20, 24, 32, 128, 512, 2048)
"""Short lengths first: a pattern may take twice the time for each character."""
_HOSTILE = (" ", "a", "0", "/", "_", "Error: ", "a.", "(", "'")


@dataclass(frozen=True, slots=True)
class Added:
    """The wordings and thresholds of all files together."""

    signatures: tuple[Signature, ...] = ()
    thresholds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


def read(paths: Iterable[Path]) -> Added:
    """Read all files. Raises UserError if a file cannot be read or has a mistake."""
    signatures: list[Signature] = []
    numbers: dict[str, dict[str, float]] = {}
    for path in paths:
        wordings, found = read_file(path)
        signatures += [wording.signature for wording in wordings]
        for code, values in found.items():
            numbers.setdefault(code, {}).update(values)
    return Added(tuple(signatures), numbers)


def read_file(path: Path) -> tuple[tuple[Wording, ...], Mapping[str, Mapping[str, float]]]:
    """The rows of one file, and its thresholds. Raises UserError."""
    text = read_named(path, "rules.files names TOML files with [[group]] tables", limit=MAX_FILE_BYTES)
    found = parse_file(text, str(path))
    rules = {rule.code: rule for rule in registry.rule_classes()}
    for wording in found.wordings:
        _check_kind(wording.signature, rules, str(path))
    for code, values in found.thresholds.items():
        thresholds.check_codes([code], rules, f"thresholds.{code}", str(path))
        for name, value in values.items():
            thresholds.check_threshold(rules[code], name, value, str(path))
    return found.wordings, found.thresholds


def _check_kind(row: Signature, rules: Mapping[str, type[Rule]], place: str) -> None:
    thresholds.check_codes([row.rule], rules, "rule", place)
    kinds = sorted({each.name for each in shipped().get(row.rule, ())})
    if row.name not in kinds:
        hint = f"its kinds: {', '.join(kinds)}" if kinds else "it judges numbers, and reads no wordings"
        raise UserError(f"{place}: {row.rule} has no kind {row.name!r}", hint)


def wrong_rows(paths: Iterable[Path]) -> Iterator[str]:
    """The problems of the rows of all files. Each row is tested on its own example, with all rules and all
    rows of its file active. Raises UserError if a file cannot be read or has a mistake."""
    for path in paths:
        rows, _ = read_file(path)
        rules = registry.build(added=[row.signature for row in rows])
        signatures = registry.signatures(rules)
        for row in rows:
            own = row.signature
            for problem in _problems(row, rules, signatures):
                yield f"{path}: {own.rule} {own.name} {own.pattern!r}: {problem}"


def _problems(row: Wording, rules: Sequence[Rule], signatures: Sequence[Signature]) -> Iterable[str]:
    own = row.signature
    scanner = LogScanner(signatures, _FILE)
    lines = row.example.splitlines()
    hits = [*scanner.feed(("\n".join(lines) + "\n").encode()), *scanner.flush()]
    if not any((hit.rule, hit.signature) == (own.rule, own.name) for hit in hits):
        yield "its example does not match its pattern"
        return
    slow = slow_text(own)
    if slow is not None:
        yield f"it takes more than {LIMIT_S * 1000:.0f} ms on a line of {slow!r} again and again"
    tail = LogTail(_FILE, 1, tuple(lines), len(row.example), len(lines))
    snapshot = TargetSnapshot(_FILE, None, log_hits=tuple(hits), log_tails=(tail,))
    diagnosis = Engine(rules).diagnose(snapshot, History())
    failed = next((told for told in diagnosis.not_measured if told.what == f"rule {own.rule}"), None)
    if failed is not None:
        yield f"{failed.because}: name that group in the pattern, (?P<name>…)"
        return
    causes = {rule.code: rule.cause for rule in rules}
    first = next(iter(diagnosis.findings), None)
    if first is not None and first.cause != causes[own.rule] and first.rule != own.rule:
        yield f"its example is diagnosed as {first.cause} ({first.rule}), not as {causes[own.rule]}"


def slow_text(row: Signature) -> str | None:
    """A text whose repetition makes the pattern slow; None if none of the tested texts does."""
    pattern = re.compile(row.pattern)
    for before in ("", *row.literals):
        for text in (*_HOSTILE, *row.literals):
            for length in _LENGTHS:
                start = time.thread_time()
                pattern.search(before + text * (1 + length // len(text)), 0, row.max_chars)
                if time.thread_time() - start > LIMIT_S:
                    return text
    return None
