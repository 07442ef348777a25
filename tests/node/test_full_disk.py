"""A full disk takes no new record: the node notes it in a file made before, and the rule reads it."""

import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from coach import runs
from coach.analysis.spelling.sizes import format_bytes
from coach.lookback.history import History
from coach.model.snapshot import TargetSnapshot
from coach.node.full_disk import RECORD_BYTES, FullDisk, reserve
from coach.node.sample import Writer
from coach.node.sampler import Moment, Options, Sampler
from coach.rules.environment.env010_disk_full import DiskFull
from coach.sources.io import SystemIo
from coach.sources.machine.disk import Space
from coach.sources.machine.quota import Quota
from coach.sources.runs.run_files import parse_run, read_full_disks
from coach.workflows.judging.full_disk import room_words


@pytest.fixture
def paths(tmp_path: Path) -> runs.RunPaths:
    made = runs.RunPaths(tmp_path)
    made.telemetry_dir.mkdir()
    return made


def test_a_sampler_on_a_full_disk_notes_it_in_place_until_a_write_succeeds(paths: runs.RunPaths) -> None:
    reserve(paths, "node1")
    paths.telemetry_of("node1").symlink_to("/dev/full")
    writer = Writer(Sampler(Options("node1", os.getpid()), os.environ), paths, "node1", None)
    writer.tick(Moment(1000.0, 1.0))
    writer.tick(Moment(1001.0, 2.0))

    (noted,) = read_full_disks(SystemIo(os.environ), paths.run_dir)
    assert (noted.node, noted.is_quota) == ("node1", False)
    assert noted.free_bytes is not None
    assert paths.full_disk_of("node1").stat().st_size == RECORD_BYTES

    paths.telemetry_of("node1").unlink()
    writer.tick(Moment(1002.0, 3.0))
    assert read_full_disks(SystemIo(os.environ), paths.run_dir) == ()


def test_another_error_and_a_missing_reserve_leave_no_note(paths: runs.RunPaths) -> None:
    FullDisk(paths, "node1").failed(OSError(errno.ENOSPC, "No space left on device"))
    assert not paths.full_disk_of("node1").exists()
    reserve(paths, "node1")
    FullDisk(paths, "node1").failed(OSError(errno.EIO, "Input/output error"))
    assert json.loads(paths.full_disk_of("node1").read_bytes()) == {}


@pytest.mark.parametrize(("state", "num_hits"), [("FAILED", 1), ("CANCELLED", 0), ("COMPLETED", 0)])
def test_a_failed_run_without_a_word_is_explained_by_the_note(
    paths: runs.RunPaths, state: str, num_hits: int
) -> None:
    reserve(paths, "node1")
    FullDisk(paths, "node1").failed(OSError(errno.EDQUOT, "Disk quota exceeded"))
    run = parse_run({"state": state}, str(paths.run_dir))
    run = replace(run, full_disks=read_full_disks(SystemIo(os.environ), paths.run_dir))
    hits = list(DiskFull().check(TargetSnapshot("a", 0.0, run=run), History()))
    assert len(hits) == num_hits
    assert all("quota was used up" in hit.summary and hit.subject.node == "node1" for hit in hits)


def test_the_look_at_the_room_speaks_only_of_a_place_without_room() -> None:
    roomy = Space(10**12, 10**13, 10**6, 10**7)
    assert room_words(roomy, None) is None
    assert room_words(None, None) is None
    assert format_bytes(0) in (room_words(replace(roomy, free_bytes=0), None) or "")
    assert "3 more files" in (room_words(replace(roomy, free_inodes=3), None) or "")
    assert "your quota" in (room_words(roomy, Quota(10**9, 10**9, 5, None)) or "")
