"""Stack samples as the nodes write them, and malformed ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coach.model.reading import Reading, StackChunk
from coach.monitor.monitor import Monitor
from coach.sources.metrics.stack_samples import StackSamplesSource, parse_burst
from tests.sources.fake_io import FakeIo

RECORD = {
    "kind": "stack_samples",
    "time_s": 5.0,
    "node": "node1",
    "why": "warm_up",
    "has_steps": True,
    "pid": 7,
    "rank": 1,
    "num_samples": 20,
    "categories": {"data": 19, "forward": 1},
    "places": [["train.py:4 load", 19], ["train.py:9 main", 1]],
    "cpu_pct": 3.5,
}
FILE = "/runs/x/stacks/samples-node1.jsonl"


def bursts_of(source: StackSamplesSource) -> list[tuple[int | None, float]]:
    (reading,) = source.poll()
    assert isinstance(reading.payload, StackChunk), reading.error
    return [(burst.rank, burst.time_s) for burst in reading.payload.bursts]


def test_a_record_is_a_burst_with_its_shares_and_places() -> None:
    burst = parse_burst(RECORD)
    assert burst is not None
    assert (burst.label, burst.share("data"), burst.share("data", "forward")) == ("rank 1", 0.95, 1.0)
    assert burst.places[0] == ("train.py:4 load", 19)
    assert (burst.is_stall, burst.has_steps, burst.silent_s) == (False, True, None)


@pytest.mark.parametrize(
    "changed",
    [
        *({name: value} for name in ("node", "pid", "time_s", "num_samples") for value in (None, [], {})),
        {"num_samples": 0},
        {"num_samples": -3},
        {"time_s": "soon"},
    ],
)
def test_a_record_without_required_fields_is_no_burst(changed: dict[str, object]) -> None:
    assert parse_burst({**RECORD, **changed}) is None


@pytest.mark.parametrize("value", [None, 3, "x", [["a"]], [[1, 2, 3]], {"a": "b"}, {"a": -1}, [[None, 1]]])
def test_counts_and_places_of_another_form_are_left_out(value: object) -> None:
    burst = parse_burst({**RECORD, "categories": value, "places": value})
    assert burst is not None
    assert (burst.share("data"), burst.places) == (0.0, ())


def test_the_files_of_all_nodes_are_followed_and_a_run_without_any_is_no_error() -> None:
    io = FakeIo()
    source = StackSamplesSource(io, "x", Path("/runs/x"))
    assert bursts_of(source) == []
    io.write(FILE, json.dumps(RECORD).encode() + b"\n")
    io.write("/runs/x/stacks/samples-node2.jsonl", json.dumps({**RECORD, "rank": 2}).encode() + b"\n")
    io.write("/runs/x/stacks/20261124-1.json", b"{}")
    assert bursts_of(source) == [(1, 5.0), (2, 5.0)]
    io.append(FILE, json.dumps({**RECORD, "time_s": 9.0}).encode() + b"\n{broken\n")
    assert bursts_of(source) == [(1, 9.0)]


def test_the_newest_two_bursts_of_each_rank_are_kept() -> None:
    monitor = Monitor("me", None)
    monitor.watch({"x": ()})
    for second in range(5):
        for rank in (1, 0):
            burst = parse_burst({**RECORD, "rank": rank, "time_s": float(second)})
            assert burst is not None
            monitor.apply(Reading("stacks", 1.0, 0.1, StackChunk("x", (burst,)), target="x"))
    kept = monitor.target("x", 9.0).bursts
    assert [(burst.rank, burst.time_s) for burst in kept] == [(0, 3.0), (0, 4.0), (1, 3.0), (1, 4.0)]
