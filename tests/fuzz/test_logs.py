"""Logs, as programs leave them and damaged: scanned in any pieces, judged, and shown."""

from __future__ import annotations

import itertools
from functools import cache
from pathlib import Path

from hypothesis import strategies as st

from coach.analysis.jobs.progress import progress_in_log
from coach.model.training.log import Signature
from coach.model.training.log_window import LogLook
from coach.rules import registry
from coach.sources.logs.layout import layout_of
from coach.sources.logs.line_text import (
    decode,
    is_below_error,
    last_state,
    parse_time_s,
    split_prefix,
    start_of_words,
    without_verdict,
)
from coach.sources.logs.log_windows import LogWindows
from coach.sources.logs.printed_metrics import PrintedMetrics
from coach.sources.logs.printed_numbers import LineNumbers, record_of_line
from coach.sources.logs.scanner import LogScanner
from tests.fuzz.harness import fuzzed
from tests.fuzz.mutation import RECORDINGS, all_of, damaged_bytes, damaged_text, words
from tests.sources.fake_io import FakeIo

LOGS = (
    all_of("ended/*.log", RECORDINGS)
    + all_of("trainer/*.log", RECORDINGS)
    + all_of("typed/*.log", RECORDINGS)
)
LINES = tuple(line for log in LOGS for line in log.splitlines()[:3])


@cache
def signatures() -> tuple[Signature, ...]:
    return registry.signatures(registry.build())


@fuzzed(damaged_bytes(*LOGS), st.lists(st.floats(0, 1), max_size=4))
def test_a_damaged_log_is_scanned_in_any_pieces(data: bytes, ends: list[float]) -> None:
    places = sorted({0, len(data), *(int(end * len(data)) for end in ends)})
    scanner = LogScanner(signatures(), "stdout.log")
    hits = [hit for start, end in itertools.pairwise(places) for hit in scanner.feed(data[start:end])]
    hits += scanner.flush()
    num_lines = data.count(b"\n") + 1
    assert all(1 <= hit.line <= num_lines for hit in hits)
    repr((scanner.tail(), hits, progress_in_log([scanner.tail()])))
    layout_of(data)


@fuzzed(
    damaged_text(*LINES),
    cases=("9999-99-99 99:99:99", "[rank" + "9" * 5000 + "]: x", "step 1 loss " + "9" * 5000, "0it/s loss 1"),
)
def test_any_line_is_taken_apart(line: str) -> None:
    split_prefix(line)
    parse_time_s(line)
    last_state(line)
    is_below_error(line)
    start_of_words(line)
    record = record_of_line(line)
    assert record is None or all(isinstance(value, float) for value in record.values())
    LineNumbers().records([line, line])
    data = line.encode("utf-8", "surrogateescape")
    decode(data)
    without_verdict(data)


_WORDS_OF_A_STEP = (
    *("[rank3]", "Rank 1,", "Epoch: 1/1,", "epoch 2", "Epoch: [0][ 10/5005]", "step 3", "it 6/50"),
    *("step 1000/4500 completed", "(loss: 1.5):", "loss nan", "val_loss=0.7", "Generator loss: 1", "train"),
    *(
        "eval:",
        "22%|██▏  | 1001/4500 [9:19<23:46, 24s/it]",
        "| 0/4 [00:00<00:01]",
        "50/50 [====]",
        "2.5 it/s",
    ),
)
"""Words with which trainings print a step. Their combinations are what parsers disagree about."""


@fuzzed(
    st.lists(st.lists(st.sampled_from(_WORDS_OF_A_STEP), max_size=6).map(" ".join), max_size=6),
)
def test_a_step_printed_with_any_words_is_read(lines: list[str]) -> None:
    world = FakeIo()
    world.write("/w/out.log", "\n".join([*lines, ""]).encode())
    steps, _ = PrintedMetrics(world, lambda: (Path("/w/out.log"),), lambda path: 0).read()
    assert all(step.step >= 0 for step in steps)


@fuzzed(damaged_bytes(*LOGS), st.integers(-5, 4000), words("Error", "loss"))
def test_any_part_of_a_damaged_log_is_shown_and_its_numbers_are_read(
    data: bytes, line: int, text: str
) -> None:
    world = FakeIo()
    world.write("/w/out.log", data)
    windows = LogWindows(world, Path("/w/out.log"))
    file = ("/w/out.log",)
    for look in (
        LogLook(file),
        LogLook(file, line=line),
        LogLook(file, offset=line),
        LogLook(file, words=text),
        LogLook(file, is_for_error=True, is_backwards=line % 2 == 0),
    ):
        repr(windows.look(look))
    printed = PrintedMetrics(world, lambda: (Path("/w/out.log"),), lambda path: 0)
    for _ in range(2):
        repr(printed.read())
