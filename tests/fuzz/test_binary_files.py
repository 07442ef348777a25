"""Files that are read byte by byte: TensorBoard's events, dumps of the flight recorder, recordings, and logs
of any encoding. A few damaged bytes must neither stop a reader nor make it hold more than the file."""

from __future__ import annotations

import contextlib
import gzip
import itertools
import json
import tempfile
import tracemalloc
from pathlib import Path

from hypothesis import strategies as st

from coach.analysis.measured.trace_report import report as trace_report
from coach.model.errors import UserError
from coach.recorder.anonymize import Names, anonymize
from coach.recorder.recording import KIND, SCHEMA, open_recording
from coach.recorder.replay_io import ReplayIo
from coach.sources.logs.decoding import as_utf8, is_no_text, join_pieces, without_holes
from coach.sources.metrics.flight_recorder import parse_dump
from coach.sources.metrics.foreign_metrics import records_of
from coach.sources.metrics.quantities import Course
from coach.sources.metrics.tensorboard_events import EventsDecoder
from coach.sources.metrics.trace_file import read_trace
from tests.fuzz.harness import fuzzed
from tests.fuzz.mutation import all_of, as_json, damaged_bytes, damaged_value
from tests.sources.fake_io import FakeIo

EVENTS = all_of("foreign_metrics/*/events.out.tfevents.*")
DUMPS = all_of("flight/*/*trace_rank_*")
HUGE = 10**400


def pieces(data: bytes, ends: list[float]) -> list[bytes]:
    places = sorted({0, len(data), *(int(end * len(data)) for end in ends)})
    return [data[start:end] for start, end in itertools.pairwise(places)]


@fuzzed(damaged_bytes(*EVENTS, whole=True), st.lists(st.floats(0, 1), max_size=3))
def test_damaged_events_of_tensorboard_are_read_in_any_pieces(data: bytes, ends: list[float]) -> None:
    whole = EventsDecoder()
    told = whole.feed(data)
    decoder = EventsDecoder()
    in_pieces = [scalar for piece in pieces(data, ends) for scalar in decoder.feed(piece)]
    assert repr(in_pieces) == repr(told)
    course = Course()
    for record in records_of(told):
        json.dumps([repr(each) for each in course.take(record)])


def test_a_record_that_claims_gibibytes_is_not_waited_for_in_memory() -> None:
    data = (3 << 30).to_bytes(8, "little") + bytes(4)
    tracemalloc.start()
    decoder = EventsDecoder()
    decoder.feed(data)
    for _ in range(20):
        decoder.feed(bytes(1 << 20))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20


DEEP_PICKLE = b"\x80\x04" + b"]" * 2000 + b"a" * 1999 + b"."
HUGE_PICKLE = b"\x80\x04\x8d" + (1 << 40).to_bytes(8, "little") + b"."


@fuzzed(damaged_bytes(*DUMPS, whole=True), cases=(DEEP_PICKLE, HUGE_PICKLE, b'{"entries": [' * 5000))
def test_a_damaged_dump_of_the_flight_recorder_is_read_or_is_none(data: bytes) -> None:
    for record in parse_dump(data, Path("nccl_trace_rank_1")) or ():
        assert len(repr(record)) < 1 << 20


DUMP = {
    "version": "2.10",
    "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}},
    "entries": [
        {
            "process_group": ["0", "default_pg"],
            "collective_seq_id": 1,
            "is_p2p": False,
            "profiling_name": "nccl:all_reduce",
            "input_sizes": [[4, 4]],
            "state": "completed",
        }
    ],
}


@fuzzed(damaged_value(DUMP).map(as_json))
def test_a_dump_of_other_types_is_read_or_is_none(data: bytes) -> None:
    repr(parse_dump(data, Path("trace_rank_0")))


def test_a_dump_that_repeats_a_list_within_a_list_takes_no_more_memory_than_the_file() -> None:
    doubling = b"\x80\x04]\x94" + b"(h\x00h\x00l\x94" * 40 + b"."
    tracemalloc.start()
    parse_dump(doubling, Path("trace_rank_0"))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


HEADER = {
    "kind": KIND,
    "schema": SCHEMA,
    "time_s": 1.8e9,
    "backend": "slurm",
    "user": "root",
    "runs_root": "/r",
    "targets": ["17"],
    "machine": None,
}
_RUN = {"k": "run", "t": 1.8e9, "id": 1, "kind": "jobs", "argv": ["squeue"], "sep": "|S", "end": "|E"}
ENTRIES = [
    {**_RUN, "rc": 0, "out": "", "err": "", "error": None, "dur": 0.1},
    {"k": "again", "t": 1.8e9 + 1, "of": 1, "dur": 0.1},
    {"k": "bytes", "t": 1.8e9 + 1, "path": "/r/a", "data": "abc"},
    {"k": "new", "t": 1.8e9 + 2, "path": "/r/a"},
    {"k": "size", "t": 1.8e9 + 2, "path": "/r/a", "n": 5},
    {"k": "mtime", "t": 1.8e9 + 2, "path": "/r/a", "s": 1.8e9},
    {"k": "dir", "t": 1.8e9 + 2, "path": "/r", "names": ["a"]},
    {"k": "miss", "t": 1.8e9 + 3, "path": "/r/b", "op": "dir", "errno": 2},
]
PLAIN = b"".join(as_json(each) + b"\n" for each in (HEADER, *ENTRIES))


def play(data: bytes) -> None:
    """A recording is refused in one line, or played and anonymized."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.coach")
        path.write_bytes(data)
        try:
            recording = open_recording(path)
        except UserError as error:
            said = str(error)
            assert "\n" not in said
            return
        io = ReplayIo(recording, clock=lambda: 100.0, speed=1.0)
        for name in ("/r/a", "/r", "/r/b"):
            for ask in (io.size, io.modified_s, io.list_dir, lambda where: io.read(where, 0, 100)):
                with contextlib.suppress(OSError):
                    ask(Path(name))
        anonymize(recording, Names(), Path(folder, "b.coach"))


@fuzzed(damaged_bytes(PLAIN, whole=True))
def test_a_recording_with_damaged_lines_is_played_or_refused(data: bytes) -> None:
    play(gzip.compress(data, 1))


@fuzzed(damaged_bytes(gzip.compress(PLAIN, 1, mtime=0), whole=True))
def test_a_recording_whose_packing_is_damaged_is_played_or_refused(data: bytes) -> None:
    play(data)


@fuzzed(
    damaged_value([HEADER, *ENTRIES]),
    cases=(
        [{**HEADER, "time_s": HUGE}],
        [{**HEADER, "time_s": float("nan")}, *ENTRIES],
        [HEADER, {"k": "miss", "t": 1.8e9, "path": "/r/b", "op": "dir"}],
    ),
)
def test_a_recording_of_other_types_is_played_or_refused(value: object) -> None:
    lines = value if isinstance(value, list) else [value]
    play(gzip.compress(b"".join(as_json(line) + b"\n" for line in lines), 1))


LOG = 'Traceback (most recent call last):\n  File "a.py", line 1\nRuntimeError: caf\u00e9 NaN\n'
ENCODED = (
    LOG.encode(),
    LOG.encode("utf-16"),
    LOG.encode("utf-16-be"),
    LOG.encode("latin-1"),
    b"\xef\xbb\xbf" + LOG.encode() + b"\0" * 400 + LOG.encode("utf-16-le"),
)


@fuzzed(damaged_bytes(*ENCODED), st.floats(0, 1))
def test_a_log_of_any_bytes_is_decoded_line_by_line(data: bytes, end: float) -> None:
    lines, _ = as_utf8(data)
    assert len(lines) <= 3 * len(data)
    is_no_text(data)
    at = int(end * len(data))
    assert join_pieces(without_holes(data[:at]), data[at:]) == without_holes(data)
    first = data.rfind(b"\n", 0, at) + 1
    before, order = as_utf8(data[:first])
    behind, _ = as_utf8(data[first:], order)
    assert before + behind == lines


TRACE = {
    "deviceProperties": [{"id": 0, "name": "NVIDIA A100-SXM4-40GB"}],
    "distributedInfo": {"backend": "nccl", "rank": 1, "world_size": 2},
    "traceEvents": [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 7, "tid": 7, "ts": 1.5, "dur": 2.5},
        {
            "ph": "X",
            "cat": "gpu_memcpy",
            "name": "Memcpy HtoD (Pageable -> Device)",
            "pid": 0,
            "tid": 7,
            "ts": 3,
            "dur": 1,
            "args": {"bytes": 4096, "memory bandwidth (GB/s)": 3.5},
        },
        {"ph": "i", "name": "Record Window End", "ts": 9},
    ],
}


@fuzzed(damaged_value(TRACE).map(as_json) | damaged_bytes(as_json(TRACE), gzip.compress(as_json(TRACE))))
def test_a_damaged_trace_of_the_profiler_is_read_or_refused_in_words(data: bytes) -> None:
    io = FakeIo()
    io.write("/trace.json", data)
    with contextlib.suppress(UserError):
        trace_report(read_trace(io, Path("/trace.json")))
