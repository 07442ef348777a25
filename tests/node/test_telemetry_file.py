"""The sampler's file stays small, its records short, and a full disk costs no more than what did not fit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coach import runs
from coach.node.telemetry_file import MAX_OLD_FILES, TelemetryFile, encode_short


def test_a_record_with_long_hostile_texts_is_cut_below_the_limit() -> None:
    line = encode_short({"kind": "gap", "because": "\x1b\n" * 5000, "how": "é" * 5000, "pid": 7})
    assert len(line) < runs.MAX_TELEMETRY_RECORD_BYTES
    assert json.loads(line)["pid"] == 7


def test_a_full_file_moves_aside_and_only_the_newest_are_kept(tmp_path: Path) -> None:
    paths = runs.RunPaths(tmp_path)
    paths.telemetry_dir.mkdir()
    file = TelemetryFile(paths, "node1", max_bytes=100)
    started_anew = [file.append([b'{"n":%d}\n' % n * 10]) for n in range(20)]
    old = sorted((paths.telemetry_dir / "old").iterdir(), key=lambda path: int(path.stem.split("-")[1]))
    assert len(old) == MAX_OLD_FILES
    assert started_anew.count(True) == 1 + int(old[-1].stem.split("-")[1])
    last = old[-1].read_text().splitlines() + paths.telemetry_of("node1").read_text().splitlines()
    assert last[-1] == '{"n":19}'
    assert paths.telemetry_of("node1").stat().st_size < 200


def test_a_full_disk_is_an_error_and_the_next_line_stands_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

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
