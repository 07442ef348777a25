"""Real dumps of torch's flight recorder are read, and a forged one has no effect."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import pytest

from coach.model.reading import FlightRecords
from coach.model.training.flight import Call
from coach.sources.io import SystemIo
from coach.sources.metrics.flight_recorder import FlightRecorderSource, parse_dump
from coach.sources.metrics.stack_dumps import parse_py_spy

DUMPS = Path(__file__).parents[2] / "fixtures" / "flight"


@pytest.mark.parametrize("name", ["operation/nccl_trace_rank_1", "json/trace_rank_1"])
def test_the_calls_of_a_rank_are_read_from_a_real_dump(name: str) -> None:
    records = parse_dump((DUMPS / name).read_bytes(), DUMPS / name)
    assert records is not None
    (record,) = records
    assert (record.rank, record.group, record.members) == (1, "0", (0, 1, 2))
    assert record.calls[0] == Call(1, "gloo:all_reduce", ((4,),))
    assert record.calls[-1] == Call(4, "gloo:broadcast", ((4,),))


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("evil",)


@pytest.mark.parametrize(
    "data",
    [
        pickle.dumps(Evil()),
        pickle.dumps({"entries": [Evil()]}),
        b"\x80\x02}r\xff\xff\xff\x7f.",
        b"\x80\x02\x96\xff\xff\xff\xff\xff\xff\xff\x7f.",
        (DUMPS / "operation/nccl_trace_rank_1").read_bytes()[:700],
        pickle.dumps({"entries": 3}),
        pickle.dumps([1]),
        b"{" * 100_000,
        b"",
    ],
    ids=["calls", "calls-inside", "memo", "length", "cut", "no-entries", "a-list", "deep", "empty"],
)
def test_a_forged_dump_is_refused_without_running_its_code(
    data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert not parse_dump(data, Path("nccl_trace_rank_0"))
    assert list(tmp_path.iterdir()) == []


def test_malformed_entries_of_a_dump_are_left_out() -> None:
    good = {
        "collective_seq_id": 7,
        "profiling_name": "nccl:all_reduce",
        "input_sizes": [[2, "x"], 3],
        "pg_id": 5,
    }
    entries = [
        good,
        3,
        {},
        {**good, "collective_seq_id": "8"},
        {**good, "is_p2p": True},
        {**good, "profiling_name": 1},
    ]
    dump = {"entries": entries, "pg_config": {"5": {"ranks": "[0, 1"}, "6": {}}}
    records = parse_dump(json.dumps(dump).encode(), Path("nccl_trace_rank_12"))
    assert records is not None
    (record,) = records
    assert (record.rank, record.members, record.calls) == (12, (), (Call(7, "nccl:all_reduce", ((2,),)),))


def test_the_place_of_a_call_is_the_innermost_line_of_the_program() -> None:
    call = {"collective_seq_id": 7, "profiling_name": "nccl:all_reduce"}
    own = {"name": "main", "filename": "/home/ada/code/train.py", "line": 41}
    library = {"name": "all_reduce", "filename": "/env/lib/python3.11/site-packages/torch/x.py", "line": 2}
    for frames, place in (
        ([library, own, {**own, "line": 90}], "train.py:41 main()"),
        ([{**own, "line": 10**6000}], "train.py main()"),
        ([library], ""),
        ([3, {}, {"name": 1, "filename": "x"}], ""),
        ("train.py", ""),
    ):
        data = pickle.dumps({"entries": [{**call, "frames": frames}]})
        (record,) = parse_dump(data, Path("nccl_trace_rank_0")) or ()
        assert record.calls[0].place == place


def test_a_nested_name_that_would_fill_the_memory_is_ignored() -> None:
    nested: list[object] = ["a"]
    for _ in range(200):
        nested = [nested, nested]
    entry = {
        "process_group": (nested, "default"),
        "collective_seq_id": 7,
        "profiling_name": "nccl:all_reduce",
        "input_sizes": [[10**6000, 4]],
    }
    huge = {**entry, "collective_seq_id": 10**6000}
    (record,) = parse_dump(pickle.dumps({"entries": [entry, huge]}), Path("nccl_trace_rank_0")) or ()
    assert record.group == ""
    assert record.calls == (Call(7, "nccl:all_reduce", ((4,),)),)


def test_dumps_are_read_as_they_come_and_again_when_they_are_rewritten(tmp_path: Path) -> None:
    paths = [tmp_path / "nccl_trace_rank_0", tmp_path / "nccl_trace_rank_1"]
    source = FlightRecorderSource(SystemIo(os.environ), "17", lambda: paths)

    def ranks() -> list[tuple[int, int]]:
        (reading,) = source.poll()
        assert isinstance(reading.payload, FlightRecords)
        return [(record.rank, record.calls[-1].number) for record in reading.payload.records]

    assert ranks() == []
    paths[0].write_bytes((DUMPS / "behind/nccl_trace_rank_0").read_bytes()[:300])
    assert ranks() == []
    paths[0].write_bytes((DUMPS / "behind/nccl_trace_rank_0").read_bytes())
    paths[1].write_bytes((DUMPS / "behind/nccl_trace_rank_1").read_bytes())
    assert ranks() == [(0, 4), (1, 3)]


def test_each_rank_counts_once_with_its_newest_stop(tmp_path: Path) -> None:
    dump = (DUMPS / "behind/nccl_trace_rank_0").read_bytes()

    def write(name: str, time_s: float) -> Path:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(dump)
        os.utime(path, (time_s, time_s))
        return path

    old = [write(f"first/_dump_{rank}", 1000.0) for rank in (0, 1, 2)]
    new = [write(f"second/_dump_{rank}", 2000.0 + rank) for rank in (0, 1)]
    apart = write("node7/_dump_7", 1500.0)
    source = FlightRecorderSource(SystemIo(os.environ), "17", lambda: [*old, *new, apart])
    (reading,) = source.poll()
    assert isinstance(reading.payload, FlightRecords)
    assert [(record.rank, record.written_s) for record in reading.payload.records] == [
        (0, 2000.0),
        (1, 2001.0),
        (7, 1500.0),
    ]


def dumps_of(folder: Path, num_ranks: int) -> list[Path]:
    """Dumps of that many ranks, the highest rank's the newest."""
    paths = [folder / f"nccl_trace_rank_{rank}" for rank in range(num_ranks)]
    for rank, path in enumerate(paths):
        path.write_bytes((DUMPS / "behind/nccl_trace_rank_0").read_bytes())
        os.utime(path, (1000.0 + rank, 1000.0 + rank))
    return paths


@pytest.mark.parametrize("limit", ["MAX_DUMPS", "MAX_BYTES"])
def test_where_dumps_are_left_out_no_rank_is_known_to_have_written_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    paths = dumps_of(tmp_path, 5)
    most = 3 if limit == "MAX_DUMPS" else sum(path.stat().st_size for path in paths[:3])
    monkeypatch.setattr(f"coach.sources.metrics.flight_recorder.{limit}", most)
    for files, members, num_left_out in ((paths[:3], (0, 1, 2), 0), (paths, (), 2)):
        (reading,) = FlightRecorderSource(SystemIo(os.environ), "17", lambda files=files: files).poll()
        assert isinstance(reading.payload, FlightRecords)
        assert {record.members for record in reading.payload.records} == {members}
        assert [record.rank for record in reading.payload.records] == [*range(num_left_out, len(files))]
        assert reading.payload.num_left_out == num_left_out


def test_many_dumps_are_looked_at_less_often_once_they_are_read(tmp_path: Path) -> None:
    for num_ranks, intervals in ((60, [10.0, 10.0]), (150, [10.0, 10.0, 30.0])):
        paths = dumps_of(tmp_path, num_ranks)
        source = FlightRecorderSource(SystemIo(os.environ), "17", lambda paths=paths: paths)
        found = []
        for _ in intervals:
            list(source.poll())
            found.append(source.interval_s)
        assert found == intervals


def test_a_forged_py_spy_dump_is_read_in_part() -> None:
    head = b'Process 7: python\nThread 7 (idle): "MainThread"\n'
    frame = b"    f (a.py:1)\n"
    stack = parse_py_spy(head + frame * 200_000, Path("pyspy_rank3.txt"), 5.0)
    assert stack is not None
    assert (stack.rank, len(stack.frames)) == (3, ((1 << 20) - len(head)) // len(frame))


def test_many_dumps_are_read_in_several_polls_and_equal_calls_are_kept_once(tmp_path: Path) -> None:
    paths = dumps_of(tmp_path, 150)
    source = FlightRecorderSource(SystemIo(os.environ), "17", lambda: paths)
    readings = [reading for _ in range(3) for reading in source.poll()]
    payloads = [each.payload for each in readings if isinstance(each.payload, FlightRecords)]
    assert [each.is_caught_up for each in readings] == [False, False, True]
    assert [len(each.records) for each in payloads] == [64, 128, 150]
    assert {record.members for record in payloads[1].records} == {()}
    assert {record.members for record in payloads[2].records} == {(0, 1, 2)}
    first, last = payloads[2].records[0], payloads[2].records[-1]
    assert first.calls[0] is last.calls[0]
