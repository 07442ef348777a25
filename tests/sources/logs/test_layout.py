"""Logs as collectors leave them: a prefix before every line, lines broken at a width, empty lines between."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from coach.lookback.history import History
from coach.model.judging.finding import Severity
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit, LogTail
from coach.rules.engine import Engine
from coach.rules.registry import build, signatures
from coach.sources.logs.layout import Layout, join_broken, layout_of
from coach.sources.logs.line_text import is_below_error
from coach.sources.logs.scanner import LogScanner

TESTS = Path(__file__).parents[2]
FAILED = """\
loading /scratch/user/projects/segmentation/data/cityscapes/leftImg8bit_trainvaltest/train, 2975 images in 18 cities
model unet with 31.0 M parameters, optimizer adamw, learning rate 0.0003, weight decay 0.01, on one device
epoch 1 step 100 loss 2.1134 lr 0.0003 121.4 images/s, waiting for data 2 % of the time, memory 11.2 GiB
epoch 1 step 200 loss 1.7042 lr 0.0003 122.0 images/s, waiting for data 2 % of the time, memory 11.2 GiB
Traceback (most recent call last):
  File "/home/user/projects/segmentation/train.py", line 214, in <module>
    main(parse_arguments())
  File "/home/user/projects/segmentation/segmentation/training/loop.py", line 88, in train_one_epoch
    raise ValueError(f"label {label} of {name} is none of the {num_classes} classes, look at the mapping")
ValueError: label 34 of aachen_000012_000019_gtFine_labelIds is none of the 19 classes, look at the mapping
srun: error: node1: task 0: Exited with exit code 1
"""
NUMBER = 10
"""Number of the line with the exception."""


def read(text: str, bite: int = 1 << 20) -> tuple[list[LogHit], LogTail]:
    scanner, data = LogScanner(signatures(build()), "train.log"), text.encode()
    hits = [hit for at in range(0, len(data), bite) for hit in scanner.feed(data[at : at + bite])]
    return hits + scanner.flush(), scanner.tail()


def told(text: str) -> list[tuple[str, int | None]]:
    """Cause and first line of each finding at warning or above."""
    hits, tail = read(text)
    snapshot = TargetSnapshot("train.log", None, log_hits=tuple(hits), log_tails=(tail,))
    findings = Engine(build()).diagnose(snapshot, History()).findings
    return [(f.cause, f.evidence[0].line) for f in findings if f.severity >= Severity.WARNING]


def folded(text: str, width: int) -> str:
    lines = [line[at : at + width] for line in text.splitlines() for at in range(0, max(1, len(line)), width)]
    return "".join(f"{line}\n" for line in lines)


PREFIXES = {
    "a mail": "> ",
    "indented": "    ",
    "an address": "10.0.3.{n}: ",
    "a node and its task": "[node{n}:0] ",
    "docker compose": "worker-{n} | ",
    "a logger": "2024-01-02 03:04:{n:02d},678 - root - ERROR - ",
    "a pod": "2024-01-02T03:04:{n:02d}.123Z [trainer-{n}] ",
    "journal": "Jan  2 03:04:{n:02d} node1 train[421{n}]: ",
}


@pytest.mark.parametrize("prefix", PREFIXES.values(), ids=list(PREFIXES))
def test_no_prefix_before_all_lines_hides_an_error(prefix: str) -> None:
    lines = [prefix.format(n=n) + line for n, line in enumerate(FAILED.splitlines(), 1)]
    text = "".join(f"{line}\n" for line in lines)
    assert told(FAILED) == told(text) == [("code_error", NUMBER)]
    (hit,) = (hit for hit in read(text)[0] if hit.rule == "COD001")
    assert len(hit.traceback) == 6
    assert hit.traceback[-1] == FAILED.splitlines()[NUMBER - 1]


@pytest.mark.parametrize("level", ["[W socket.cpp:601]", "[W1121 13:21:12.5 socket.cpp:752]"])
def test_torchs_own_level_is_part_of_a_line_though_all_lines_bear_it(level: str) -> None:
    line = (
        f"{level} [c10d] The IPv6 network addresses of (node1, 29500) cannot be retrieved (gai error: -2)\n"
    )
    assert not told(line * 8)
    assert told(line.replace("[W", "[E") * 8)


def test_a_program_whose_output_all_goes_through_a_logger_ends_with_the_error_it_logged() -> None:
    levels = ["INFO"] * 4 + ["ERROR"] * 6 + ["WARNING"]
    text = "".join(
        f"2024-01-02 03:04:05,678 - train - {level} - {line}\n"
        for level, line in zip(levels, FAILED.splitlines(), strict=True)
    )
    assert told(text) == [("code_error", NUMBER)]


def test_a_stripped_prefix_still_gives_the_line_s_time_and_the_shown_log_keeps_it() -> None:
    lines = [f"2024-01-02T03:04:{n:02d}Z [pod-7] {line}" for n, line in enumerate(FAILED.splitlines())]
    hits, tail = read("".join(f"{line}\n" for line in lines))
    (hit,) = (hit for hit in hits if hit.rule == "COD001")
    assert hit.time_s == 1704164640.0 + NUMBER - 1
    assert tail.lines == tuple(lines)
    assert tail.plain == tuple(FAILED.splitlines())


@pytest.mark.parametrize("level", ["WARNING", "INFO", "DEBUG"])
def test_a_level_below_an_error_stays_with_its_line(level: str) -> None:
    lines = [f"2024-01-02 03:04:05,678 - root - {level} - CUDA out of memory, step {n}" for n in range(9)]
    assert layout_of("".join(f"{line}\n" for line in lines).encode()).prefix.find(level) == -1
    assert read("".join(f"{line}\n" for line in lines))[1].plain[0].startswith(f"root - {level} - ")


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("bite", [1, 7, 1000, 1 << 20])
def test_a_log_that_a_terminal_broke_at_its_width_is_read_as_it_was_printed(width: int, bite: int) -> None:
    text = folded(FAILED * 3, width)
    hits = [hit for hit in read(text, bite)[0] if hit.rule == "COD001"]
    begins = [number for number, line in enumerate(text.splitlines(), 1) if line.startswith("ValueError: ")]
    assert hits[-1].line == begins[-1]
    assert hits[-1].text == FAILED.splitlines()[NUMBER - 1]
    assert len(hits[-1].traceback) == 6
    assert read(text, bite)[1].num_lines == len(text.splitlines())


@pytest.mark.parametrize("width", [80, 100])
def test_a_broken_log_has_the_cause_of_the_whole_one(width: int) -> None:
    (cause, line), *others = told(folded(FAILED, width))
    assert (cause, others) == ("code_error", [])
    assert folded(FAILED, width).splitlines()[(line or 0) - 1].startswith("ValueError: ")


def test_the_last_line_of_a_broken_log_is_read_before_it_is_complete() -> None:
    text = folded(FAILED, 80).partition("srun: ")[0].rstrip("\n")
    (hit,) = (hit for hit in read(text)[0] if hit.rule == "COD001")
    assert hit.text == FAILED.splitlines()[NUMBER - 1]


def test_an_empty_line_between_any_two_hides_no_error() -> None:
    text = FAILED.replace("\n", "\n\n")
    assert told(text) == [("code_error", 2 * NUMBER - 1)]


CAUGHT = (
    "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='huggingface.co', port=443): Max retries "
    "exceeded with url: "
    "/x (Caused by NameResolutionError(\"Failed to resolve 'huggingface.co' ([Errno -3] Temporary failure in "
    'name resolution)"))\n'
    "Using cached model\nepoch 1 accuracy 0.3\nDone\n"
)


def test_an_error_that_was_caught_stays_caught_however_the_log_was_broken() -> None:
    assert told(CAUGHT) == told(folded(CAUGHT, 80)) == told(CAUGHT.replace("\n", "\n\n")) == []


def test_unbroken_lines_of_equal_length_are_not_joined() -> None:
    steps = [
        f"step {n:06d} loss {2.0 / n:.6f} with a learning rate of 0.000300 and no overflow"
        for n in range(100, 400)
    ]
    rules = ["=" * 80, "the configuration of this run", "=" * 80, "is complete", "-" * 80] * 20
    wrapped = ["  --learning-rate RATE  how far each step goes, a number that is larger than"] * 2
    wrapped += ["  zero and most often far below one; the schedule multiplies it with a factor"] * 2
    for lines in (steps, rules, wrapped):
        assert layout_of("".join(f"{line}\n" for line in lines).encode()).width is None


def test_no_log_among_the_fixtures_was_broken_or_spaced() -> None:
    layouts = {path: layout_of(path.read_bytes()[: 64 << 10]) for path in TESTS.rglob("*.log")}
    assert len(layouts) > 50
    assert not {path: layout for path, layout in layouts.items() if layout.width or layout.is_spaced}


def test_a_log_of_a_few_lines_has_no_layout() -> None:
    assert layout_of(b"> a\n> b\n") == layout_of(b"") == Layout()


@pytest.mark.parametrize("seed", range(10))
def test_joining_keeps_every_byte_and_the_number_of_lines(seed: int) -> None:
    draw = random.Random(seed)
    lines = [b"x" * draw.choice([0, 3, 79, 80, 80, 80, 81]) for _ in range(200)]
    data = b"\n".join(lines)
    joined, rest = join_broken(data, 80)
    assert (joined + rest).count(b"\n") == data.count(b"\n")
    assert (joined + rest).replace(b"\n", b"") == data.replace(b"\n", b"")


@pytest.mark.parametrize(
    ("line", "is_below"),
    [
        (
            "2024-12-27 13:58:40.396007: W external/xla/service/platform_util.cc:206] unable to create it",
            True,
        ),
        (
            "2024-12-27 13:58:40.396007: E external/xla/service/platform_util.cc:206] unable to create it",
            False,
        ),
        ("[W1121 13:21:12.5 socket.cpp:752] it was refused", True),
        ("[E1121 13:21:12.5 socket.cpp:752] it was refused", False),
    ],
)
def test_the_level_of_tensorflow_s_and_of_c10d_s_lines_is_known(line: str, is_below: bool) -> None:
    assert is_below_error(line) is is_below
