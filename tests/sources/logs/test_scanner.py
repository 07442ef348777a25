from __future__ import annotations

import random
import time
from collections import Counter

import pytest

from coach.model.training.log import FIRST_LINE, MARK, MAX_FIRST_HITS, LogHit, Signature
from coach.sources.logs.scanner import MAX_LAST_HITS, MAX_LINE_BYTES, LogScanner

OOM = Signature(
    "MEM001",
    "oom",
    ("CUDA out of memory",),
    r"CUDA out of memory\. Tried to allocate (?P<size>[\d.]+ \w+)",
)
LIMIT = Signature("JOB002", "limit", ("DUE TO TIME LIMIT",), r"JOB (?P<job>\d+) ON .* DUE TO TIME LIMIT")
KILLED = Signature("MEM007", "killed", ("Killed",), r"^Killed$")
FRAME = Signature("DAT001", "frame", ("loader.py",), r"loader\.py", reads_source=True)
ALL = (OOM, LIMIT, KILLED, FRAME)

TRACEBACK = b"""\
step 1 loss 2.3
Traceback (most recent call last):
  File "train.py", line 7, in <module>
    main()
    ^^^^^^
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has ...
srun: error: node1: task 0: Exited with exit code 1
"""

TWO_RANKS = b"""\
[rank0]: Traceback (most recent call last):
[rank1]: Traceback (most recent call last):
[rank1]:   File "train.py", line 9, in step
[rank0]:   File "train.py", line 7, in load
[rank1]:     loss.backward()
a line of nobody
[rank0]:     batch = next(it)
[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB.
[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB.
"""


def scan(data: bytes, wanted: tuple[Signature, ...] = ALL) -> list[LogHit]:
    scanner = LogScanner(wanted, "log")
    return scanner.feed(data) + scanner.flush()


def test_a_hit_has_file_line_fields_and_the_whole_traceback() -> None:
    (hit,) = scan(TRACEBACK)
    assert (hit.rule, hit.file, hit.line, hit.fields) == ("MEM001", "log", 6, {"size": "2.00 GiB"})
    assert hit.traceback[0] == "Traceback (most recent call last):"
    assert hit.traceback[-1].startswith("torch.OutOfMemoryError")
    assert len(hit.traceback) == 5


VERDICT = b"""\
coach: why: 17  FAILED: it ended with torch.OutOfMemoryError
coach: why:   critical MEM001: CUDA out of memory. Tried to allocate 2.00 GiB
"""


def test_a_job_s_own_verdict_is_read_by_no_rule_and_moves_no_line() -> None:
    (hit,) = scan(TRACEBACK + VERDICT)
    assert hit.line == 6
    first, second = scan(TRACEBACK + VERDICT + TRACEBACK)
    assert (first.line, second.line) == (6, 15)
    for cut in range(len(VERDICT)):
        scanner = LogScanner(ALL, "log")
        assert scanner.feed(VERDICT[:cut]) + scanner.feed(VERDICT[cut:]) + scanner.flush() == []
    scanner = LogScanner(ALL, "log")
    scanner.feed(TRACEBACK + VERDICT)
    assert not any("coach: why" in line for line in scanner.tail().lines)


def test_the_words_of_a_verdict_within_a_line_hide_nothing() -> None:
    (hit,) = scan(b"loader coach: why: CUDA out of memory. Tried to allocate 2.00 GiB\n")
    assert hit.rule == "MEM001"


def test_interleaved_ranks_keep_their_own_tracebacks() -> None:
    rank_1, rank_0 = scan(TWO_RANKS)
    assert (rank_1.rank, rank_1.line, rank_0.rank, rank_0.line) == (1, 8, 0, 9)
    assert rank_1.text.startswith("[rank1]: torch.OutOfMemoryError")
    assert [line.strip() for line in rank_1.traceback[1:3]] == [
        'File "train.py", line 9, in step',
        "loss.backward()",
    ]
    assert [line.strip() for line in rank_0.traceback[1:3]] == [
        'File "train.py", line 7, in load',
        "batch = next(it)",
    ]


@pytest.mark.parametrize(
    ("prefix", "rank"),
    [
        ("[rank3]: ", 3),
        ("[default5]:", 5),
        ("2: ", 2),
        (" 7: ", 7),
        ("[default1]:[rank9]: ", 9),
        ("[1,4]<stderr>:", 4),
        ("[6]<stdout>:", 6),
        ("Fri Sep 25 16:52:53 2020[8]<stderr>:", 8),
    ],
)
def test_rank_prefixes_of_all_launchers_are_taken_off_and_the_rank_is_kept(prefix: str, rank: int) -> None:
    (hit,) = scan(f"{prefix}Killed\n".encode())
    assert (hit.rank, hit.text) == (rank, f"{prefix}Killed")


def test_a_hit_inside_the_frames_waits_for_the_exception() -> None:
    data = (
        b'Traceback (most recent call last):\n  File "loader.py", line 1, in f\n    g()\nValueError: '
        b"no\nend\n"
    )
    scanner = LogScanner((FRAME,), "log")
    cut = data.index(b"    g()")
    assert scanner.feed(b"x" * 9000 + b"\n" + data[:cut]) == []
    (hit,) = scanner.feed(data[cut:])
    assert hit.traceback[-1] == "ValueError: no"
    assert hit.line == 3


def test_a_chained_traceback_is_kept_whole() -> None:
    first = b'Traceback (most recent call last):\n  File "a.py", line 1, in f\nKeyError: 1\n'
    between = b"\nDuring handling of the above exception, another exception occurred:\n\n"
    second = (
        b'Traceback (most recent call last):\n  File "b.py", line 2, in g\nRuntimeError: CUDA out of memory. '
        b"Tried to allocate 1 GiB\n"
    )
    (hit,) = scan(b"other words\n" + first + between + second)
    assert hit.traceback[0] == "Traceback (most recent call last):"
    assert "KeyError: 1" in hit.traceback
    assert hit.traceback[-1].startswith("RuntimeError")


def test_a_line_after_a_traceback_is_not_part_of_it() -> None:
    data = b'Traceback (most recent call last):\n  File "a.py", line 1, in f\nValueError: x\nKilled\n'
    (hit,) = scan(data)
    assert (hit.line, hit.traceback) == (4, ())


def test_progress_lines_count_as_one_line_but_each_piece_is_searched() -> None:
    data = b"start\n 10%|#   |\r 20%|##  |\rKilled\r 30%|### |\nend\nKilled\n"
    assert [hit.line for hit in scan(data)] == [2, 4]


def test_windows_line_ends_do_not_cut_a_traceback() -> None:
    (hit,) = scan(TRACEBACK.replace(b"\n", b"\r\n"))
    assert len(hit.traceback) == 5
    assert hit.line == 6


def test_colours_do_not_hide_the_words() -> None:
    data = b"\x1b[31mRuntimeError: \x1b[1mCUDA\x1b[0m out of memory. Tried to allocate 2.00 GiB\x1b[0m\n"
    (hit,) = scan(data)
    assert hit.text == "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB"


@pytest.mark.parametrize(
    ("stamp", "time_s"),
    [
        ("2026-11-21T12:00:00Z", 1795262400.0),
        ("[2026-11-21 12:00:00,250+00:00]", 1795262400.25),
        ("2026-11-21 14:00:00.5 +0200", 1795262400.5),
    ],
)
def test_a_time_stamp_gives_the_hit_its_time(stamp: str, time_s: float) -> None:
    signature = Signature("X", "x", ("Killed",), "Killed")
    (hit,) = scan(f"{stamp} INFO Killed\n".encode(), (signature,))
    assert hit.time_s == time_s


def test_slurmstepds_stamp_is_the_clusters_local_time() -> None:
    words = "slurmstepd: error: *** JOB 21 ON node1 CANCELLED AT 2026-11-21T03:04:05 DUE TO TIME LIMIT ***\n"
    (hit,) = scan(words.encode())
    assert hit.fields == {"job": "21"}
    assert hit.time_s == time.mktime((2026, 11, 21, 3, 4, 5, 0, 0, -1))


@pytest.mark.parametrize("stamp", ["2026-13-45 99:99:99", "0000-00-00 00:00:00"])
def test_an_impossible_time_is_no_time(stamp: str) -> None:
    signature = Signature("X", "x", ("Killed",), "Killed")
    assert scan(f"{stamp} Killed\n".encode(), (signature,))[0].time_s is None


def test_an_unfinished_line_counts_at_the_end_and_only_once() -> None:
    scanner = LogScanner(ALL, "log")
    assert scanner.feed(b"step 1\nKilled") == []
    assert [hit.line for hit in scanner.flush()] == [2]
    assert scanner.flush() == []
    assert scanner.feed(b"\nstep 2\n") + scanner.flush() == []


def test_bytes_that_are_not_utf_8_do_not_hide_a_hit() -> None:
    (hit,) = scan(b"caf\xe9 \xff\xfe\nRuntimeError \xe9: CUDA out of memory. Tried to allocate 1 GiB\n")
    assert hit.line == 2


def test_a_binary_file_is_named_as_binary_and_gives_no_hits() -> None:
    scanner = LogScanner(ALL, "log")
    data = b"Killed\n" + b"\0\x01" * 5000 + b"\nKilled\n"
    assert scanner.feed(data) + scanner.flush() == []
    tail = scanner.tail()
    assert tail.is_binary
    assert len(tail.lines) == 1


def test_a_nul_far_into_a_text_does_not_make_it_binary() -> None:
    data = b"fine\n" * 4000 + b"a\0b\nKilled\n"
    assert [hit.line for hit in scan(data)] == [4002]


def test_only_the_beginning_of_an_endless_line_is_searched() -> None:
    long = b"x" * MAX_LINE_BYTES
    loud = Signature("X", "x", ("Killed",), "Killed")
    assert scan(long + b"Killed\nKilled\n", (loud,)) == scan(long + b"......\nKilled\n", (loud,))
    assert len(scan(b"Killed" + long + b"\n", (loud,))) == 1


def test_the_tail_has_the_last_lines_with_their_numbers() -> None:
    scanner = LogScanner(ALL, "log")
    scanner.feed(b"".join(b"line %d\n" % number for number in range(1, 1001)) + b" 10%\r 20%\r\n")
    tail = scanner.tail()
    assert (tail.num_lines, tail.first_line, len(tail.lines)) == (1001, 602, 400)
    assert tail.lines[0] == "line 602"
    assert tail.lines[-1] == " 20%"
    scanner.feed(b"unfinished")
    assert scanner.tail().lines[-1] == "unfinished"


@pytest.mark.parametrize("seed", range(40))
def test_any_split_of_the_bytes_gives_the_same_hits(seed: int) -> None:
    choice = random.Random(seed)
    pieces = [
        TRACEBACK,
        TWO_RANKS,
        TRACEBACK.replace(b"\n", b"\r\n"),
        b" 10%|#|\r 20%|##|\rKilled\r 30%|###|\n",
        b"Killed\n",
        b"\x1b[31mCUDA\x1b[0m out of memory. Tried to allocate 9 GiB\n",
        "größer 日本語\n".encode(),
        b"\xff\xfe broken\r\n",
        b"y" * (MAX_LINE_BYTES + 5) + b" Killed\n",
        b'Traceback (most recent call last):\n  File "loader.py", line 1, in f\n    g()\nValueError: no\n',
        b"\n\r\n\r",
        b"healthy line\n" * 50,
    ]
    data = b"".join(choice.choices(pieces, k=25))
    whole = scan(data)
    scanner, hits, place = LogScanner(ALL, "log"), [], 0
    while place < len(data):
        size = choice.choice([1, 2, 7, 100, 4096, 70_000])
        hits += scanner.feed(data[place : place + size])
        place += size
    hits += scanner.flush()
    order = lambda hit: (hit.line, hit.rule, hit.text, hit.traceback)  # noqa: E731 (one key, used twice)
    assert sorted(hits, key=order) == sorted(whole, key=order)
    assert whole


def test_an_endlessly_repeated_error_keeps_its_first_and_last_hits() -> None:
    hits = scan(TRACEBACK * 20_000)
    assert [hit.line for hit in hits[:100]] == [6 + 7 * number for number in range(100)]
    assert [hit.line for hit in hits[100:]] == [6 + 7 * number for number in range(19_900, 20_000)]
    assert {len(hit.traceback) for hit in hits} == {5}


def test_a_repeated_first_line_is_a_mark_but_a_line_of_every_step_is_not() -> None:
    start = "12:30:01 Namespace of tra1ning: seed 7\nsaved the weights to disk\n"
    often = "saved the weights to disk\n" * 200
    log = start + "step 1\n" * 9 + often + start.replace("7", "42") + "step 1\n"
    hits = scan(log.encode(), ())
    assert [(hit.rule, hit.signature, hit.line) for hit in hits] == [(MARK, FIRST_LINE, 212)]
    pieces = [log[i : i + 7].encode() for i in range(0, len(log), 7)]
    scanner = LogScanner((), "log")
    fed = [hit for piece in pieces for hit in scanner.feed(piece)]
    assert 212 in [hit.line for hit in (*fed, *scanner.flush())]


@pytest.mark.parametrize(
    "log",
    [
        # Four ranks print it.
        "the world has four ranks\n" * 4 + "step\n" * 9 + "the world has four ranks\n",
        "epoch 1 of 90 has begun now\n" + "step\n" * 9 + "epoch 2 of 90 has begun now\n",
        "Traceback (most recent call last):\n" + "step\n" * 9 + "Traceback (most recent call last):\n",
    ],
)
def test_a_line_of_several_ranks_a_counter_and_an_error_begin_no_run(log: str) -> None:
    assert scan(log.encode(), ()) == []


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        ("caf\xe9 geöffnet: Killed\n".encode("latin-1"), "caf\xe9 geöffnet: Killed"),
        ("日本 caf\xe9: Killed\n".encode(), "日本 caf\xe9: Killed"),
        ("日本".encode() + b"\xff: Killed\n", "日本\ufffd: Killed"),
        ("token \ufffd: Killed\n".encode(), "token \ufffd: Killed"),
        ("日本 Killed\n".encode("utf-16"), "日本 Killed"),
        (b"\xfe\xff" + "日本 Killed\n".encode("utf-16-be"), "日本 Killed"),
        (b"\xef\xbb\xbfKilled\n", "Killed"),
        (bytes(5000) + b"Killed\n", "Killed"),
    ],
    ids=[
        "latin-1",
        "utf-8",
        "torn utf-8",
        "a replacement",
        "utf-16",
        "utf-16, big end first",
        "utf-8 with a mark",
        "hole",
    ],
)
@pytest.mark.parametrize("size", [11, 100_000])
def test_a_log_is_read_in_the_encoding_it_was_written_in(data: bytes, shown: str, size: int) -> None:
    scanner = LogScanner((Signature("MEM007", "killed", ("Killed",), "Killed$"),), "log")
    hits = [hit for at in range(0, len(data), size) for hit in scanner.feed(data[at : at + size])]
    (hit,) = hits + scanner.flush()
    assert (hit.text, hit.line) == (shown, 1)
    tail = scanner.tail()
    assert (tail.lines, tail.is_binary, tail.size_bytes) == ((shown,), False, len(data))


def test_the_middle_hits_of_a_frequent_signature_are_skipped_except_for_a_curve() -> None:
    curve = Signature("METRICS", "loss", ("loss",), r"loss (?P<value>[\d.]+)")
    scanner = LogScanner((KILLED, curve))
    piece = b"Killed\nloss 0.5\n" * 1000

    def counted(is_more: bool) -> Counter[str]:
        return Counter(hit.signature for hit in scanner.feed(piece, is_more))

    assert counted(True) == {"killed": MAX_FIRST_HITS + 5, "loss": MAX_FIRST_HITS + MAX_LAST_HITS}
    assert counted(True) == {"killed": 5, "loss": MAX_LAST_HITS}
    assert counted(False) == {"killed": MAX_LAST_HITS, "loss": MAX_LAST_HITS}
