from __future__ import annotations

import errno
import json
import math
from dataclasses import asdict, astuple
from pathlib import Path

import pytest

from coach.model.reading import MetricsChunk, TelemetryChunk
from coach.model.training.telemetry import GpuHealth, GpuLink, GpuSample, HostSample, ProcessSample, SensorGap
from coach.sources.follow import BITE_BYTES
from coach.sources.metrics import run_metrics as metrics
from coach.sources.metrics import telemetry_files as telemetry
from coach.sources.metrics.run_metrics import MetricsSource
from coach.sources.metrics.telemetry_files import TelemetrySource
from tests.sources.fake_io import FakeIo

RUN_DIR = Path("/runs/r")


def step(number: int, **fields: object) -> bytes:
    return json.dumps({"step": number, "time_s": 1000.0 + number, "loss": 2.0, **fields}).encode() + b"\n"


def host(time_s: float, node: str = "node1") -> bytes:
    return json.dumps({"kind": "host", "time_s": time_s, "node": node, "cpu_pct": 50}).encode() + b"\n"


def read_metrics(source: MetricsSource) -> MetricsChunk:
    (reading,) = source.poll()
    assert isinstance(reading.payload, MetricsChunk)
    return reading.payload


def read_times(source: TelemetrySource) -> list[float]:
    (reading,) = source.poll()
    assert isinstance(reading.payload, TelemetryChunk)
    return [sample.time_s for sample in reading.payload.samples if isinstance(sample, HostSample)]


def test_a_run_that_has_not_begun_has_no_metrics_and_no_error() -> None:
    assert read_metrics(MetricsSource(FakeIo(), "r", RUN_DIR)).steps == ()


def test_steps_come_once_a_torn_line_waits_and_new_ranks_appear() -> None:
    io = FakeIo()
    path = "/runs/r/metrics/rank-0.jsonl"
    io.write(path, step(1) + step(2)[:9])
    source = MetricsSource(io, "r", RUN_DIR)
    assert [item.step for item in read_metrics(source).steps] == [1]
    io.append(path, step(2)[9:])
    io.write("/runs/r/metrics/rank-1.jsonl", step(1))
    assert [(item.rank, item.step) for item in read_metrics(source).steps] == [(0, 2), (1, 1)]
    assert read_metrics(source).steps == ()


def test_values_that_are_not_finite_are_kept_as_measured() -> None:
    records = [{"step": 1, "loss": "NaN", "grad_norm": "Infinity", "accuracy": "NaN"}]
    (parsed,), events, num_bad = metrics.parse_records(records, 0)
    assert parsed.loss is not None
    assert math.isnan(parsed.loss)
    assert parsed.grad_norm == math.inf
    assert (parsed.accuracy, parsed.time_s, events, num_bad) == (None, None, [], 0)


def test_each_number_of_a_step_is_kept_under_its_own_name() -> None:
    whole = {"step": 7, "epoch": 2, "num_samples": 64, "num_samples_global": 128}
    parts = ("time_s", "loss", "lr", "data_time_s", "step_time_s", "grad_norm", "loss_scale", "accuracy")
    more = ("memory_allocated_mib", "memory_reserved_mib", "comm_time_s")
    told = {**whole, **{name: 100.5 + place for place, name in enumerate((*parts, *more))}}
    ((parsed,), _, _) = metrics.parse_records([told], 3)
    assert asdict(parsed) == {
        **told,
        "rank": 3,
        "samples_per_s": None,
        "tokens_per_s": None,
        "mfu": None,
        "counter": "step",
    }


@pytest.mark.parametrize("hostile", [None, "x", [], {}, True, 10**400, -1, 1.5, float("inf")])
def test_a_record_without_a_usable_step_is_counted_as_bad(hostile: object) -> None:
    assert metrics.parse_records([{"step": hostile, "loss": 1.0}], 0) == ([], [], 1)


def test_hostile_values_in_a_good_record_are_unknown() -> None:
    names = [
        "loss",
        "lr",
        "epoch",
        "num_samples",
        "num_samples_global",
        "data_time_s",
        "step_time_s",
        "grad_norm",
    ]
    (parsed,), _, num_bad = metrics.parse_records([{"step": 3, **{name: [10**400] for name in names}}], 0)
    assert (parsed.loss, parsed.lr, parsed.epoch, parsed.step_time_s, num_bad) == (None, None, None, None, 0)
    (parsed,), _, _ = metrics.parse_records([{"step": 3, **dict.fromkeys(names, 10**400)}], 0)
    assert parsed.loss is None


def test_events_keep_their_fields() -> None:
    _, (event,), num_bad = metrics.parse_records(
        [{"event": "start", "time_s": 5, "step": 0, "world_size": 2}, {"event": 7}], 1
    )
    assert (event.rank, event.event, event.time_s, event.fields["world_size"]) == (1, "start", 5.0, 2)
    assert num_bad == 1


def test_a_file_that_was_cut_is_read_from_its_start() -> None:
    io = FakeIo()
    io.write("/runs/r/metrics/rank-0.jsonl", step(1) + step(2) + step(3))
    source = MetricsSource(io, "r", RUN_DIR)
    read_metrics(source)
    io.write("/runs/r/metrics/rank-0.jsonl", step(7))
    assert [item.step for item in read_metrics(source).steps] == [7]


def test_a_file_replaced_by_a_longer_one_is_read_from_its_start() -> None:
    io = FakeIo()
    io.write("/runs/r/metrics/rank-0.jsonl", step(1))
    source = MetricsSource(io, "r", RUN_DIR)
    read_metrics(source)
    io.write("/runs/r/metrics/rank-0.jsonl", step(8) + step(9))
    assert [item.step for item in read_metrics(source).steps] == [8, 9]


def test_a_huge_file_is_read_in_bites_until_it_is_caught_up() -> None:
    io = FakeIo()
    num_steps = 3 * BITE_BYTES // len(step(1))
    io.write("/runs/r/metrics/rank-0.jsonl", b"".join(step(number) for number in range(num_steps)))
    source = MetricsSource(io, "r", RUN_DIR)
    seen: list[int] = []
    num_bites = 0
    while True:
        (reading,) = source.poll()
        assert isinstance(reading.payload, MetricsChunk)
        seen += [item.step for item in reading.payload.steps]
        num_bites += 1
        if reading.is_caught_up:
            break
    assert seen == list(range(num_steps))
    assert num_bites >= 3
    assert max(size for _, _, size in io.reads) <= BITE_BYTES


def test_bad_lines_are_counted_and_a_line_without_end_is_not_kept_in_memory() -> None:
    io = FakeIo()
    io.write(
        "/runs/r/metrics/rank-0.jsonl", b"rubbish\n" + step(1) + b"x" * (3 * BITE_BYTES) + b"\n" + step(2)
    )
    source = MetricsSource(io, "r", RUN_DIR)
    readings = [reading for _ in range(5) for reading in source.poll()]
    steps = [
        item.step
        for reading in readings
        if isinstance(reading.payload, MetricsChunk)
        for item in reading.payload.steps
    ]
    assert steps == [1, 2]
    assert sum(reading.num_bad_rows for reading in readings) == 2


def test_one_unreadable_rank_does_not_hide_the_others() -> None:
    io = FakeIo()
    for rank in (0, 1):
        io.write(f"/runs/r/metrics/rank-{rank}.jsonl", step(1))
    io.failing["/runs/r/metrics/rank-0.jsonl"] = errno.ESTALE
    chunk, failure = MetricsSource(io, "r", RUN_DIR).poll()
    assert isinstance(chunk.payload, MetricsChunk)
    assert [item.rank for item in chunk.payload.steps] == [1]
    assert "rank-0.jsonl" in (failure.error or "")


def test_every_kind_of_sample_is_understood() -> None:
    base = {"time_s": 1.0, "node": "node1"}
    gpu = {
        **base,
        "kind": "gpu",
        "gpu": 0,
        "uuid": "GPU-1",
        "utilization_pct": None,
        "clocks_event_reasons": ["idle"],
    }
    gap = {**base, "kind": "gap", "what": "gpu.utilization", "because": "no NVIDIA driver", "how": "h"}
    process = {**base, "kind": "process", "pid": 7, "name": "python", "rank": 1}
    newer = {**base, "kind": "network", "bytes": 1}
    broken = {"kind": "gpu", "gpu": 0}
    samples, num_bad = telemetry.parse_records([gpu, gap, process, newer, broken, {"kind": 5}])
    assert samples == [
        GpuSample("node1", 1.0, 0, "GPU-1", clocks_event_reasons=("idle",)),
        SensorGap("node1", "gpu.utilization", "no NVIDIA driver", "h"),
        ProcessSample("node1", 1.0, 7, "python", 1),
    ]
    assert num_bad == 2


def test_a_record_with_hostile_values_keeps_its_plausible_ones() -> None:
    base = {"time_s": 1.0, "node": "node1"}
    hostile: list[object] = [None, "x", [], {}, 1e400, "NaN", 2**70, True]
    for value in hostile:
        records = [
            {**base, "kind": "gpu", "gpu": 0, "uuid": value, "power_w": value, "clocks_event_reasons": 7},
            {**base, "kind": "gpu_link", "gpu": 0, "num_nvlinks": value, "pcie_width": 16},
            {**base, "kind": "gpu_health", "gpu": 0, "has_ecc": "yes", "compute_mode": value},
            {**base, "kind": "gpu_event", "gpu": 0, "xid": value},
            {**base, "kind": "process", "pid": 1, "gpus": [0, value]},
            {**base, "kind": "mount", "path": "/home", "wait_ms": value},
            {**base, "kind": "port", "name": value},
        ]
        samples, num_bad = telemetry.parse_records(records)
        assert len(samples) + num_bad == len(records)
        assert num_bad == (value != "x" and value != "NaN"), "a port without a name"
        link, health = samples[1:3]
        assert isinstance(link, GpuLink)
        assert link.pcie_width == 16
        assert isinstance(health, GpuHealth)
        assert health.has_ecc is None
        for sample in samples:
            for number in astuple(sample):
                assert not isinstance(number, float) or math.isfinite(number)


def test_a_rotated_file_goes_on_where_it_was_read_and_nothing_comes_twice() -> None:
    io = FakeIo()
    live, old = "/runs/r/telemetry/node1.jsonl", "/runs/r/telemetry/old/node1-1.jsonl"
    io.write(live, host(1) + host(2))
    source = TelemetrySource(io, "r", RUN_DIR)
    assert read_times(source) == [1, 2]
    io.append(live, host(3))
    io.write(old, io.files.pop(live))
    io.write(live, host(4))
    assert read_times(source) == [3, 4]
    io.append(live, host(5))
    assert read_times(source) == [5]


def test_a_rotation_seen_too_late_is_not_read_twice() -> None:
    io = FakeIo()
    live, old = "/runs/r/telemetry/node1.jsonl", "/runs/r/telemetry/old/node1-1.jsonl"
    io.write(live, host(1) + host(2))
    source = TelemetrySource(io, "r", RUN_DIR)
    read_times(source)
    rotated = io.files[live] + host(3)
    io.write(live, host(4))  # the listing of old/ was taken before the file got there
    assert read_times(source) == [4]
    io.write(old, rotated)
    assert read_times(source) == [3]


def test_rotated_parts_of_a_finished_run_are_read_in_the_order_of_their_time() -> None:
    io = FakeIo()
    io.write("/runs/r/telemetry/old/node1-10.jsonl", host(1) + host(2))
    io.write("/runs/r/telemetry/old/node1-9.jsonl", host(3) + host(4))
    io.write("/runs/r/telemetry/node1.jsonl", host(5))
    source = TelemetrySource(io, "r", RUN_DIR)
    assert read_times(source) == [1, 2, 3, 4, 5]
    io.reads.clear()
    assert read_times(source) == []
    assert not any("/old/" in path for path, _, _ in io.reads)


def test_a_rotated_part_that_is_merged_into_the_next_while_it_is_read_holds_up_nothing() -> None:
    io = FakeIo()
    first, live = "/runs/r/telemetry/old/node1-1.jsonl", "/runs/r/telemetry/node1.jsonl"
    io.write(first, host(1) * (BITE_BYTES // len(host(1)) + 10))
    io.write(live, host(2))
    source = TelemetrySource(io, "r", RUN_DIR)
    assert set(read_times(source)) == {1}
    del io.files[first]
    io.append(live, host(3))
    assert read_times(source) == [2, 3]


def test_long_parts_are_read_one_after_the_other_so_that_the_newest_sample_comes_last() -> None:
    """A sampler rotates its file at 8 MiB, and a poll reads 1 MiB of a file."""
    names = ("old/node1-1.jsonl", "old/node1-2.jsonl", "node1.jsonl")
    io = FakeIo()
    for index, name in enumerate(names):
        count = 10 if index == len(names) - 1 else BITE_BYTES // len(host(100_000)) + 10
        io.write(
            f"/runs/r/telemetry/{name}",
            b"".join(host(100_000 * (1 + index) + number) for number in range(count)),
        )
    io.write("/runs/r/telemetry/node2.jsonl", host(7, "node2"))
    source, times = TelemetrySource(io, "r", RUN_DIR), []
    for _ in range(9):
        times += read_times(source)
    of_node1 = [time_s for time_s in times if time_s != 7]
    assert of_node1 == sorted(of_node1)
    assert of_node1[-1] == 100_000 * len(names) + 9
    assert times.count(7) == 1


def test_unreadable_telemetry_is_an_error_and_the_samples_before_it_count() -> None:
    io = FakeIo()
    io.write("/runs/r/telemetry/node1.jsonl", host(1) + b"{torn}\n" + host(2))
    io.write("/runs/r/telemetry/node2.jsonl", host(1, "node2"))
    io.failing["/runs/r/telemetry/node2.jsonl"] = errno.ESTALE
    source = TelemetrySource(io, "r", RUN_DIR)
    told, failed = source.poll()
    assert isinstance(told.payload, TelemetryChunk)
    assert (len(told.payload.samples), told.num_bad_rows, told.error) == (2, 1, None)
    assert (failed.payload, "Stale file handle" in (failed.error or "")) == (None, True)
    io.write("/runs/r/telemetry/node1.jsonl", b"")
    io.failing["/runs/r/telemetry/node1.jsonl"] = errno.EACCES
    (only,) = source.poll()
    assert (only.payload, "Permission denied" in (only.error or "")) == (None, True)
