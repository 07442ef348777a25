"""The project's own rows: each matches its example, is quick, names its origin, and matches no example of
another rule."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from itertools import combinations
from pathlib import Path

import pytest

import coach.rules.wordings
from coach.rules.registry import build, rule_classes, signatures
from coach.rules.wordings.compile import compiled
from coach.rules.wordings.rows import COMPILED, Wording, parse, shipped, shipped_files
from coach.sources.logs.scanner import LogScanner
from coach.workflows.judging.rule_files import slow_text

TESTS = Path(__file__).parents[2]
TABLES = [table.name for table in shipped_files()]

SHARED = {
    frozenset({"ENV021", "DST021"}): "a host without an address: the rules tell it by the host's name",
    frozenset({"DST003", "DST021"}): "a rendezvous that fails at the name of its host",
    frozenset({"DST004", "ENV004"}): "NCCL finds no GPU",
    frozenset({"DST004", "MEM011"}): "NCCL finds too little of /dev/shm",
    frozenset({"DST004", "DST019"}): "NCCL's error names its network",
    frozenset({"DST006", "DST019"}): "a mismatch that was seen as bytes left on a socket",
    frozenset({"DST006", "DST020"}): "the same in gloo",
    frozenset({"DST006", "DST003"}): "the same in the store",
    frozenset({"DST019", "DST021"}): "NCCL cannot resolve a host of its network",
    frozenset({"HDW002", "ENV004"}): "a driver that is not ready: the words of either",
    frozenset({"ENV012", "DST019"}): "NCCL has no file descriptor left for its sockets",
    frozenset({"DAT005", "MEM007"}): "a worker that the kernel killed for memory",
    frozenset({"DAT011", "ENV025"}): "a program whose name ends in a Windows line end",
    frozenset({"DAT010", "DAT011"}): "a file that is missing in part of a checkpoint",
    frozenset({"JOB005", "MEM007"}): "a step that Slurm cancelled for its memory",
    frozenset({"JOB005", "MEM011"}): "a task that a bus error ended, and that srun tells of",
    frozenset({"JOB005", "JOB014"}): "a cancelled step says its signal",
    frozenset({"JOB005", "COD002"}): "the same of a crash",
    **{
        frozenset(pair): "an exit code of torchrun: each rule counts its own"
        for pair in combinations(("COD002", "JOB014", "MEM008", "MEM011"), 2)
    },
    frozenset({"NUM001", "NUM004"}): "a loss scale that NaN brought to its end",
    frozenset({"TOR001", "TOR002"}): "a shape that differs between a model and its weights",
}
"""Rules whose wordings may stand in one line, and why."""


@cache
def rows(table: str) -> tuple[Wording, ...]:
    return parse(files(coach.rules.wordings).joinpath(table).read_text("utf-8"), table)


def test_the_compiled_rows_are_those_of_the_tables() -> None:
    assert files(coach.rules.wordings).joinpath(COMPILED).read_text("utf-8") == compiled(), (
        "run: python -m coach.rules.wordings.compile"
    )
    told = [row.signature for table in TABLES for row in rows(table)]
    assert sorted(told, key=repr) == sorted((row for each in shipped().values() for row in each), key=repr)


@pytest.mark.parametrize("table", TABLES)
def test_an_example_matches_its_row_and_no_row_of_another_cause(table: str) -> None:
    causes = {rule.code: rule.cause for rule in rule_classes()}
    found = signatures(build())
    wrong = []
    for row in rows(table):
        scanner = LogScanner(found, "log")
        hits = [*scanner.feed(f"{row.example}\n".encode()), *scanner.flush()]
        own = row.signature
        if (own.rule, own.name) not in {(hit.rule, hit.signature) for hit in hits}:
            wrong.append(f"{own.rule} does not match its example: {row.example}")
        for other in {hit.rule for hit in hits if hit.rule in causes} - {own.rule, "COD001"}:
            if causes[other] != causes[own.rule] and frozenset({own.rule, other}) not in SHARED:
                wrong.append(f"{own.rule}'s example is also {other}'s: {row.example}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("table", TABLES)
def test_each_row_is_of_a_rule_and_no_row_is_there_twice(table: str) -> None:
    codes = {rule.code for rule in rule_classes()}
    keys = [(row.signature.rule, row.signature.name, row.signature.pattern) for row in rows(table)]
    assert {rule for rule, _, _ in keys} <= codes
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize("table", TABLES)
def test_each_row_says_where_it_was_met(table: str) -> None:
    for row in rows(table):
        if row.seen is not None and not row.seen.startswith("https://"):
            path, _, line = row.seen.rpartition(":")
            lines = (TESTS / path).read_text("utf-8", errors="replace").splitlines()
            assert re.search(row.signature.pattern, lines[int(line) - 1]), row.seen
        if row.source is not None:
            assert re.match(r"[\w.+ -]+ v?\d[\w.+]*, \S", row.source), row.source


@pytest.mark.parametrize("table", TABLES)
def test_no_row_is_slow_on_a_line_made_to_be_slow(table: str) -> None:
    assert {row.signature.pattern: slow for row in rows(table) if (slow := slow_text(row.signature))} == {}
