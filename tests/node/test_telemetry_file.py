"""The sampler's file stays small and its records short, and a full disk loses only the records that did not
fit."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path

import pytest

from coach import runs
from coach.node import telemetry_file
from coach.node.sample import Writer
from coach.node.sampler import Moment, Options, Sampler
from coach.node.telemetry_file import MAX_FILE_BYTES, MAX_OLD_FILES, TelemetryFile, encode_short


def test_a_record_with_long_hostile_texts_is_cut_below_the_limit() -> None:
    line = encode_short({"kind": "gap", "because": "\x1b\n" * 5000, "how": "é" * 5000, "pid": 7})
    assert len(line) < runs.MAX_TELEMETRY_RECORD_BYTES
    assert json.loads(line)["pid"] == 7


@pytest.mark.parametrize(
    "extra", [{"gpus": list(range(5000))}, {"how": "", "sizes": {"a": list(range(5000))}}, {"k" * 5000: 1}]
)
def test_a_record_that_is_long_without_long_texts_loses_its_largest_value(extra: dict[str, object]) -> None:
    record = {"kind": "process", "time_s": 1.5, "node": "node1", "name": "python", "rank": 3}
    kept = json.loads(encode_short({**record, **extra}))
    assert {**kept, "how": ""} == {**record, "how": ""}


def test_an_old_part_that_vanishes_costs_its_samples_and_the_file_goes_on(tmp_path: Path) -> None:
    paths = runs.RunPaths(tmp_path)
    old = paths.telemetry_dir / "old"
    old.mkdir(parents=True)
    for number in range(1, MAX_OLD_FILES + 1):
        (old / f"node1-{number}.jsonl").symlink_to(tmp_path / "gone")
    file = TelemetryFile(paths, "node1", max_bytes=100)
    for number in range(20):
        file.append(_second(number))
    assert len(_parts(paths)) == MAX_OLD_FILES + 1
    assert json.loads(_parts(paths)[-1].read_bytes().splitlines()[0])["time_s"] == 19


def _second(number: int) -> list[bytes]:
    """The records of one second: a host, two GPUs, sometimes a port, and the records that are written only
    once."""
    when = {"time_s": float(number), "node": "node1"}
    records: list[dict[str, object]] = [{"kind": "host", **when, "cpu_pct": 1}]
    records += [{"kind": "gpu", **when, "gpu": gpu, "uuid": f"GPU-{gpu}"} for gpu in (0, 1)]
    if number % 10 == 0:
        records.append({"kind": "port", **when, "name": "eth0", "num_errors": number})
    if number in (3, 5):
        records.append({"kind": "gap", **when, "what": "gpu.power", "because": "b", "how": "h"})
    if number == 7:
        records.append({"kind": "gpu_event", **when, "gpu": 1, "uuid": "GPU-1", "xid": 79})
    return [encode_short(record) for record in records]


def _parts(paths: runs.RunPaths) -> list[Path]:
    old = sorted((paths.telemetry_dir / "old").iterdir(), key=lambda path: int(path.stem.split("-")[1]))
    return [*old, paths.telemetry_of("node1")]


def test_a_long_run_is_kept_from_its_start_in_few_files_that_get_coarser_backwards(tmp_path: Path) -> None:
    paths = runs.RunPaths(tmp_path)
    paths.telemetry_dir.mkdir()
    file = TelemetryFile(paths, "node1", max_bytes=20_000)
    num_seconds = 3000
    new_files = sum(file.append(_second(number)) for number in range(num_seconds))
    parts = _parts(paths)
    assert new_files > 2 * len(parts)
    assert len(parts) == MAX_OLD_FILES + 1
    assert all(part.stat().st_size < 1.5 * 20_000 for part in parts)
    records = [record for part in parts for record in runs.decode_records(part.read_bytes())[0]]
    hosts = [record["time_s"] for record in records if record["kind"] == "host"]
    assert hosts == sorted(set(hosts))
    assert (hosts[0], hosts[-1]) == (0.0, num_seconds - 1)
    steps = [b - a for a, b in itertools.pairwise(hosts)]
    assert set(steps[-50:]) == {1}
    assert max(steps) <= 64
    gpus = [record["time_s"] for record in records if record["kind"] == "gpu" and record["gpu"] == 1]
    assert gpus == hosts, "what belongs together stays together"
    assert len([record for record in records if record["kind"] == "port"]) > len(parts)
    assert len([record for record in records if record["kind"] == "gap"]) <= 2
    assert [record["xid"] for record in records if record["kind"] == "gpu_event"] == [79]
    assert not [part for part in (paths.telemetry_dir / "old").iterdir() if part.name.startswith(".")]


def test_a_run_whose_telemetry_reached_the_cap_says_so_in_one_line(tmp_path: Path) -> None:
    paths = runs.RunPaths(tmp_path)
    writer = Writer(Sampler(Options("node1", os.getpid()), os.environ), paths, "node1", None)
    (paths.telemetry_dir / "old").mkdir(parents=True)
    found = []
    for second in range(13):
        if second % 2:
            os.truncate(paths.telemetry_of("node1"), MAX_FILE_BYTES)
        writer.tick(Moment(1000.0 + second, float(second)))
        records = runs.decode_records(paths.telemetry_of("node1").read_bytes())[0]
        found.append([each["because"] for each in records if each.get("what") == "older samples"])
    assert not any(found[: 2 * MAX_OLD_FILES])
    (line,) = found[-1]
    assert "cap of 5 files of 8 MiB" in line


def test_a_merge_that_finds_no_room_drops_the_oldest_part_and_the_file_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = runs.RunPaths(tmp_path)
    paths.telemetry_dir.mkdir()
    file = TelemetryFile(paths, "node1", max_bytes=2_000)

    def no_room(*_: object) -> list[bytes]:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(telemetry_file, "thinned", no_room)
    for number in range(100):
        file.append(_second(number))
    parts = _parts(paths)
    assert len(parts) == MAX_OLD_FILES + 1
    assert runs.decode_records(parts[-1].read_bytes())[0][-1]["time_s"] == 99
    assert not [part for part in (paths.telemetry_dir / "old").iterdir() if part.name.startswith(".")]


def test_a_full_disk_is_an_error_and_the_next_line_stands_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = runs.RunPaths(tmp_path)
    paths.telemetry_dir.mkdir()
    file = TelemetryFile(paths, "node1")
    whole_write = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda descriptor, data: whole_write(descriptor, data[:5]))
        with pytest.raises(OSError, match="No space left"):
            file.append([b'{"n":1}\n'])
    file.append([b'{"n":2}\n'])
    records, num_bad, _ = runs.decode_records(paths.telemetry_of("node1").read_bytes())
    assert (records, num_bad) == ([{"n": 2}], 1)


def test_a_restarted_sampler_writes_no_record_onto_a_torn_line(tmp_path: Path) -> None:
    paths = runs.RunPaths(tmp_path)
    paths.telemetry_dir.mkdir()
    path = paths.telemetry_of("node1")
    for before, bad in ((b'{"n":1}\n{"n', 1), (b'{"n":1}\n', 0), (b"", 0)):
        path.write_bytes(before)
        TelemetryFile(paths, "node1").append([b'{"n":2}\n'])
        records, num_bad, _ = runs.decode_records(path.read_bytes())
        assert (records[-1], num_bad) == ({"n": 2}, bad)


def test_a_file_that_follows_a_torn_one_begins_with_its_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = runs.RunPaths(tmp_path)
    paths.telemetry_dir.mkdir()
    file = TelemetryFile(paths, "node1", max_bytes=5)
    whole_write = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda descriptor, data: whole_write(descriptor, data[:5]))
        with pytest.raises(OSError, match="No space left"):
            file.append([b'{"n":1}\n'])
    assert file.append([b'{"n":2}\n'])
    assert paths.telemetry_of("node1").read_bytes() == b'{"n":2}\n'
