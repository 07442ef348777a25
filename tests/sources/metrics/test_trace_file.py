"""A trace is read in pieces, which end anywhere: within an event, a number, a character."""

from __future__ import annotations

import gzip
import json
import math
import os
from pathlib import Path

import pytest

from coach.model.errors import UserError
from coach.model.training.trace import Work
from coach.sources.io import SystemIo
from coach.sources.metrics import trace_file
from coach.sources.metrics.trace_file import event_of, read_trace

IO = SystemIo(dict(os.environ))
EVENTS = [
    {"ph": "X", "cat": "cpu_op", "name": f"größer {number} ☃", "pid": 1, "tid": 2, "ts": number, "dur": 0.5}
    for number in range(50)
]
WHOLE = {
    "schemaVersion": 1,
    "deviceProperties": [{"id": 0, "name": "NVIDIA H100"}],
    "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8},
    "traceEvents": EVENTS,
    "traceName": "x.json",
}


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 1 << 20])
@pytest.mark.parametrize("is_packed", [True, False])
def test_the_events_are_the_same_wherever_the_pieces_end(
    piece: int, is_packed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_file, "_PIECE_BYTES", piece)
    path = tmp_path / "trace.json"
    text = json.dumps(WHOLE, ensure_ascii=False, indent=1).encode()
    path.write_bytes(gzip.compress(text) if is_packed else text)
    trace = read_trace(IO, path)
    assert [event.name for event in trace.events] == [event["name"] for event in EVENTS]
    assert (trace.rank, trace.world_size, trace.device) == (3, 8, "NVIDIA H100")


def test_a_trace_that_is_too_large_is_refused_before_it_fills_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps(WHOLE).encode() + b" " * 100_000))
    for name, most, said in (
        ("MAX_EVENTS", 10, "more than 10 events"),
        ("MAX_TEXT_BYTES", 5_000, "MiB of text"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(trace_file, name, most)
            with pytest.raises(UserError, match=said):
                read_trace(IO, path)


def test_a_trace_entry_without_a_time_or_of_another_kind_is_no_event() -> None:
    sound = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 2}
    assert event_of(sound) is not None
    for change in (
        {"ph": "i"},
        {"cat": "gpu_user_annotation"},
        {"dur": -1},
        {"ts": "now"},
        {"ts": math.inf},
        {"dur": True},
    ):
        assert event_of({**sound, **change}) is None, change
    assert event_of([]) is None


def test_collectives_are_known_on_the_device_and_on_the_host() -> None:
    def kind(category: str, name: str, **args: object) -> Work:
        made = event_of({"ph": "X", "cat": category, "name": name, "ts": 0, "dur": 1, "args": args})
        assert made is not None
        return made.work

    assert kind("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL") is Work.COMMUNICATION
    assert kind("kernel", "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t") is Work.COMMUNICATION
    assert kind("kernel", "other", **{"Collective name": "allreduce"}) is Work.COMMUNICATION
    assert kind("user_annotation", "gloo:all_reduce") is Work.HOST_COMMUNICATION
    assert kind("user_annotation", "nccl:all_reduce") is Work.ANNOTATION  # only its kernel counts


def test_a_trace_without_a_gpu_names_no_device(tmp_path: Path) -> None:
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 2, "pid": 1, "tid": 1}
    path = tmp_path / "trace.json"
    path.write_text(
        json.dumps({"deviceProperties": [], "traceEvents": [{"name": "process_name", "ph": "M"}, event]})
    )
    assert read_trace(SystemIo({}), path).device is None
