"""An error block is read once, in every layout, for every split of the log into pieces."""

from __future__ import annotations

import random
import time

import pytest

from coach.model.error_block import ErrorBlock, ErrorKind
from coach.model.training.log import LogHit, Signature
from coach.sources.logs.error_reader import MAX_CHAIN
from coach.sources.logs.scanner import MAX_TAIL_BLOCKS, LogScanner

ANY = Signature("X", "any", ("Error", "timeout"), r"Error|timeout")
FRAME = '  File "/home/user/train.py", line 3, in main\n    step(batch)\n'
HEAD = "Traceback (most recent call last):\n"
PLAIN = f"{HEAD}{FRAME}ValueError: bad label\n"


def scan(text: str, *sizes: int) -> tuple[list[LogHit], tuple[ErrorBlock, ...]]:
    """The hits and the last blocks of a log that is fed in pieces of these sizes."""
    scanner, data, hits = LogScanner((ANY,), "log"), text.encode(), []
    for size in sizes:
        hits += scanner.feed(data[:size])
        data = data[size:]
    return hits + scanner.feed(data) + scanner.flush(), scanner.tail().blocks


def only(text: str) -> ErrorBlock:
    (block,) = scan(text)[1]
    return block


def test_a_traceback_has_its_frames_type_and_message() -> None:
    block = only(f"step 1\n{PLAIN}bye\n")
    (frame,) = block.frames
    assert (frame.file, frame.line, frame.function) == ("/home/user/train.py", 3, "main")
    assert (frame.source, frame.number) == ("step(batch)", 3)
    assert (block.kind, block.type, block.message) == (ErrorKind.PYTHON, "ValueError", "bad label")
    assert (block.first_line, block.error_line, block.last_line) == (2, 5, 5)


LOGGED = "W1121 03:00:01.123000 17 torch/_dynamo/convert_frame.py:1125] [0/0] "
BOXED = """\
╭──────── Traceback (most recent call last) ────────╮
│ /home/user/train.py:3 in main                     │
│ ❱ 3 │   raise KeyError("Error: no words")         │
╰───────────────────────────────────────────────────╯
ValueError: bad label
"""
NOTEBOOK = """\
---------------------------------------------------------------------------
ValueError                                Traceback (most recent call last)
Cell In[3], line 1
----> 1 raise ValueError(f"Error: {x}")

File ~/train.py:3, in main(x)
      2 # Error
----> 3 step(batch)

ValueError: bad label
"""
GROUP = """\
  + Exception Group Traceback (most recent call last):
  |   File "/home/user/train.py", line 9, in main
  |     raise group
  | ExceptionGroup: several (1 sub-exception)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/home/user/train.py", line 3, in main
    |     step(batch)
    | ValueError: bad label
    +------------------------------------
"""


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("".join(f"{LOGGED}{line}\n" for line in PLAIN.splitlines()), ErrorKind.PYTHON),
        ("".join(f"(Worker pid=17, ip=10.0.0.1) {line}\n" for line in PLAIN.splitlines()), ErrorKind.PYTHON),
        (
            "".join(f"ERROR 11-21 03:00:01 engine.py:7] {line}\n" for line in PLAIN.splitlines()),
            ErrorKind.PYTHON,
        ),
        (f"[ERROR] {HEAD}    {FRAME.strip()}\n    ValueError: bad label\n", ErrorKind.PYTHON),
        (f"Epoch 1: 5%{HEAD}{FRAME}ValueError: bad label\n", ErrorKind.PYTHON),
        (f" 5%| | 1/20 [00:01, 4.9it/s]{HEAD}{FRAME * 3}ValueError: bad label\n", ErrorKind.PYTHON),
        (f"Original {HEAD}{FRAME * 2}ValueError: bad label\n", ErrorKind.PYTHON),
        (
            f'{HEAD}  File "<stdin>", line 1\n    f((\n      ^\nstep 7 of a thread\nValueError: bad label\n',
            ErrorKind.PYTHON,
        ),
        (BOXED, ErrorKind.RICH),
        (NOTEBOOK, ErrorKind.NOTEBOOK),
        (GROUP, ErrorKind.PYTHON),
    ],
    ids=[
        "dynamo",
        "ray",
        "vllm",
        "logger",
        "bar",
        "bar-and-frames",
        "worker",
        "torn",
        "rich",
        "notebook",
        "group",
    ],
)
def test_every_layout_of_python_ends_in_type_and_message(text: str, kind: ErrorKind) -> None:
    block = scan(text)[1][-1]
    assert (block.kind, block.type, block.message) == (kind, "ValueError", "bad label")
    assert block.frames


def test_the_rank_of_a_traceback_is_found_behind_a_progress_bar() -> None:
    """tqdm leaves its line open, and torch writes the rank before each line of the traceback."""
    ranked = "".join(f"[rank3]: {line}\n" for line in f"{HEAD}{FRAME * 2}ValueError: bad label".splitlines())
    bar = " 5%| | 1/20 [00:01, 4.9it/s]"
    block = only(f"{bar}{ranked}")
    assert block == only("".join(f"[default1]:{line}\n" for line in f"{bar}{ranked}".splitlines()))
    assert (block.rank, block.type, block.message, len(block.frames)) == (3, "ValueError", "bad label", 2)


@pytest.mark.parametrize("time", ["", "Fri Sep 25 16:52:53 2020"])
def test_the_tracebacks_of_ranks_below_horovodrun_are_told_apart(time: str) -> None:
    lines = ["step 1", "step 2", *PLAIN.splitlines()]
    text = "".join(f"{time}[{rank}]<stderr>:{line}\n" for line in lines for rank in (0, 1))
    assert [(block.rank, block.type) for block in scan(text)[1]] == [(0, "ValueError"), (1, "ValueError")]


def test_source_lines_are_no_hits_in_any_layout() -> None:
    for text in (
        BOXED,
        NOTEBOOK,
        f'{HEAD}{FRAME}    raise KeyError(f"Error: {{x}}")\nValueError: bad label\n',
    ):
        assert [hit.text.split(":")[0] for hit in scan(text)[0] if hit.block and hit.line > 2] == [
            "ValueError"
        ]


def test_the_line_above_a_block_names_the_process_that_printed_it() -> None:
    above = {
        "Process SpawnProcess-1:": "SpawnProcess-1",
        "-- Process 1 terminated with the following error:": "Process 1",
        "Exception in thread Thread-3 (run):": "Thread-3 (run)",
        "ValueError: Caught ValueError in DataLoader worker process 0.": "DataLoader worker process 0",
    }
    for line, process in above.items():
        assert only(f"{line}\n{PLAIN}").process == process
    assert only(f"Exception ignored in: <function f>\n{PLAIN}").is_ignored
    assert not only(f"ignored\n{PLAIN}").is_ignored
    logged = only("".join(f"{LOGGED}{line}\n" for line in PLAIN.splitlines()))
    assert (logged.level, logged.frames[0].source) == ("W", "step(batch)")


def test_a_chain_keeps_the_blocks_above_and_is_bounded() -> None:
    between = "\nDuring handling of the above exception, another exception occurred:\n\n"
    first, last = scan(f"{PLAIN.replace('Value', 'Key')}{between}{PLAIN}")[1]
    assert last.chain == (first,)
    assert [line for line in last.lines if "Error" in line] == [
        "KeyError: bad label",
        "ValueError: bad label",
    ]
    assert len(last.all_frames) == 2
    assert len(scan(between.join([PLAIN] * 60))[1][-1].chain) == MAX_CHAIN


def test_the_lines_of_a_message_belong_to_it() -> None:
    missing = "RuntimeError: Error(s) in loading state_dict for Net:\n\tMissing key(s): Error\n"
    for before in ("", " 5%| | 1/20 [00:01, 4.9it/s]"):
        hits, (block,) = scan(f"{before}{HEAD}{FRAME}{missing}\tsize: Error\nstep 2 without an Error\n")
        assert block.message.splitlines()[1:] == ["\tMissing key(s): Error", "\tsize: Error"]
        assert [hit.block == block for hit in hits] == [True, True, True, False]


def test_native_errors_and_the_fault_handlers_are_blocks_as_well() -> None:
    thrown = only(
        "terminate called after throwing an instance of 'c10::Error'\n  what():  CUDA error: x\n"
        "Exception raised from f at /a.cpp:3 (most recent call first):\n"
        "frame #0: c10::Error::Error() + 0x57 (0x7f12 in /lib/libc10.so)\n\nstep 1\n"
    )
    assert (thrown.kind, thrown.type, thrown.frames[0].file) == (
        ErrorKind.NATIVE,
        "c10::Error",
        "/lib/libc10.so",
    )
    assert thrown.message.startswith("CUDA error: x")
    fatal = only(
        "Fatal Python error: Segmentation fault\n\nCurrent thread 0x1 (most recent call first):\n"
        '  File "/b/nn.py", line 4 in forward\n  File "/home/user/train.py", line 3 in main\n'
    )
    assert (fatal.kind, fatal.message) == (ErrorKind.FATAL, "Segmentation fault")
    assert [frame.function for frame in fatal.frames] == ["main", "forward"]


def test_a_fatal_error_has_the_frames_of_the_thread_that_crashed() -> None:
    waiting = 'Thread 0x{} (most recent call first):\n  File "/home/user/wait.py", line 3 in wait\n\n'
    fatal = only(
        f"Fatal Python error: Segmentation fault\n\n{waiting.format(1)}"
        'Current thread 0x2 (most recent call first):\n  File "/home/user/train.py", line 3 in main\n\n'
        f"{waiting.format(3)}"
    )
    assert [frame.function for frame in fatal.frames] == ["main"]


def test_torchruns_first_failure_names_rank_node_and_exit_code() -> None:
    block = only(
        "Root Cause (first observed failure):\n[0]:\n  time      : 2026-11-21_03:00:01\n  host      : node2\n"
        "  rank      : 1 (local_rank: 1)\n  exitcode  : -9 (pid: 17)\n  error_file: <N/A>\n"
        "  traceback : Signal 9 (SIGKILL) received by PID 17\n=====\n"
    )
    assert (block.kind, block.rank, block.exit_code, block.node) == (ErrorKind.ELASTIC, 1, -9, "node2")


def test_frames_whose_head_is_not_in_the_log_are_a_block() -> None:
    (hit,) = scan(f"{FRAME}ValueError: bad label\n")[0]
    assert hit.block is not None
    assert (hit.block.kind, hit.block.frames[0].line) == (ErrorKind.HEADLESS, 3)
    assert scan("  indented\nValueError: bad label\n")[0][0].block is None


@pytest.mark.parametrize("seed", range(20))
def test_a_block_is_the_same_for_every_split_into_pieces(seed: int) -> None:
    choice = random.Random(seed)
    ranks = [f"[rank{rank}]: {line}" for line in PLAIN.splitlines() for rank in (0, 1)]
    text = (
        "step 1\n" * 1500 + "\n".join(ranks) + "\n" + choice.choice((PLAIN, BOXED, NOTEBOOK, GROUP)) + "end\n"
    )
    start = len("step 1\n" * 1500)
    sizes = [start, *(choice.choice((1, 5, 40, 200)) for _ in range(12))]
    assert scan(text, *sizes) == scan(text)


def test_a_log_that_repeats_its_errors_forever_costs_little() -> None:
    began_s = time.process_time()
    hits, blocks = scan(PLAIN * 30_000)
    assert (len(hits), len(blocks)) == (200, MAX_TAIL_BLOCKS)
    for piece in (
        "Traceback (most recent call last):",
        "[",
        "a.",
        "A(",
        'File "',
        "frame #1: ",
        "│ ",
        "Thread ",
    ):
        scan(f"{HEAD}{piece * 400}\n" * 20)
    assert time.process_time() - began_s < 8.0


def test_the_message_of_a_native_error_ends_where_its_frames_begin() -> None:
    block = only(
        "terminate called after throwing an instance of 'c10::Error'\n  what():  NCCL error in: a.cpp:3\n"
        "Exception raised from f at /a.cpp:3 (most recent call first):\n"
        "frame #0: f() + 0x57 (0x7f12 in /lib/a.so)\nframe #1: g() + 0x1 (0x7f1 in /lib/b.so)\n\nstep 1\n"
    )
    first, *more = block.message.splitlines()
    assert (first, [line for line in more if "frame #" in line]) == ("NCCL error in: a.cpp:3", [])
    assert more[0].startswith("Exception raised from f")
    assert [(frame.file, frame.source) for frame in block.frames] == [
        ("/lib/b.so", None),
        ("/lib/a.so", None),
    ]


def test_marks_below_a_frame_are_not_taken_for_its_source_line() -> None:
    block = only(f'{HEAD}  File "<string>", line 1, in <module>\n    ^^^^^^\n{FRAME}ValueError: bad label\n')
    assert [frame.source for frame in block.frames] == [None, "step(batch)"]
