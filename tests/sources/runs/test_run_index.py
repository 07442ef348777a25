from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from coach.model.reading import RunList
from coach.sources.io import SystemIo
from coach.sources.runs.run_index import MIN_RUNS, RunIndex
from coach.sources.runs.run_list import NUM_RECHECKED, RECHECK_INTERVAL_S, RunListSource


class CountingIo(SystemIo):
    """The real files, with a count of requests and a clock that the test moves."""

    def __init__(self) -> None:
        super().__init__({}, on_file_op=self._count)
        self.num_ops = 0
        self.late_s = 0.0

    def now(self) -> float:
        return super().now() + self.late_s

    def _count(self, path: Path | None) -> None:
        self.num_ops += path is not None


def make_runs(root: Path, count: int) -> None:
    for number in range(count):
        run_dir = root / f"20261121-{number:06d}-ddp-0000"
        run_dir.mkdir(parents=True)
        value = {
            "run_id": run_dir.name,
            "state": "COMPLETED",
            "ended_time_s": 2.0,
            "created_time_s": 1.0 + number,
        }
        value |= {"backend": "local", "supervisor": {"node": "login1"}, "uneven_by_design": False}
        value |= {"parameters": {"lr": 0.05}, "fix": {"rule": "MEM001", "title": "halve it", "changes": {}}}
        (run_dir / "run.json").write_text(json.dumps(value))
    long_ago_s = root.stat().st_mtime - 3600
    os.utime(root, (long_ago_s, long_ago_s))


def listed(source: RunListSource) -> RunList:
    (reading,) = source.poll()
    assert reading.error is None
    assert isinstance(reading.payload, RunList)
    return reading.payload


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def test_a_coach_that_starts_over_ten_thousand_ended_runs_reads_one_file(root: Path, tmp_path: Path) -> None:
    make_runs(root, 10_000)
    index = RunIndex(tmp_path / "cache", root)
    first = CountingIo()
    whole = listed(RunListSource(first, root, index=index))
    assert len(whole.runs) == 10_000
    assert first.num_ops > 20_000
    second = CountingIo()
    source = RunListSource(second, root, index=index)
    assert listed(source) == whole
    assert second.num_ops <= 2 + NUM_RECHECKED
    second.num_ops, second.late_s = 0, RECHECK_INTERVAL_S + 1
    listed(source)
    assert second.num_ops <= 1 + 2 * NUM_RECHECKED


def test_the_newest_runs_are_on_the_screen_while_the_others_are_still_read(root: Path) -> None:
    make_runs(root, 60)
    source = RunListSource(CountingIo(), root, bite_runs=25)
    readings = [next(iter(source.poll())) for _ in range(3)]
    shown = [reading.payload.runs for reading in readings if isinstance(reading.payload, RunList)]
    assert [len(runs) for runs in shown] == [25, 50, 60]
    assert shown[0][0].run_id == "20261121-000059-ddp-0000"
    assert [reading.is_caught_up for reading in readings] == [False, False, True]


@pytest.mark.parametrize("damage", [b"", b"{", b"[1]\n", b'{"schema":99}\n', b"\xff\xfe\n" * 50])
def test_a_damaged_index_is_ignored_completely(root: Path, tmp_path: Path, damage: bytes) -> None:
    make_runs(root, MIN_RUNS)
    index = RunIndex(tmp_path, root)
    whole = listed(RunListSource(CountingIo(), root, index=index))
    (file,) = tmp_path.glob("run-index-*.jsonl")
    file.write_bytes(damage)
    assert listed(RunListSource(CountingIo(), root, index=index)) == whole


def test_a_torn_or_hostile_line_of_the_index_hides_no_run(root: Path, tmp_path: Path) -> None:
    make_runs(root, MIN_RUNS)
    index = RunIndex(tmp_path, root)
    whole = listed(RunListSource(CountingIo(), root, index=index))
    (file,) = tmp_path.glob("run-index-*.jsonl")
    lines = file.read_bytes().splitlines(keepends=True)
    lines[3] = lines[3][:40] + b"\n"
    lines[4] = b'{"name": "../../etc", "run": {"state": "COMPLETED"}}\n'
    lines[5] = b'{"name": "20261121-000007-ddp-0000", "run": {"state": "RUNNING"}}\n'
    file.write_bytes(b"".join(lines))
    assert listed(RunListSource(CountingIo(), root, index=index)) == whole


def test_a_run_that_went_on_after_its_end_is_read_again(root: Path, tmp_path: Path) -> None:
    make_runs(root, MIN_RUNS)
    index = RunIndex(tmp_path, root)
    listed(RunListSource(CountingIo(), root, index=index))
    newest = root / f"20261121-{MIN_RUNS - 1:06d}-ddp-0000" / "run.json"
    newest.write_text('{"state": "RUNNING", "backend": "slurm"}')
    os.utime(newest, (7, 7))
    states = {run.state for run in listed(RunListSource(CountingIo(), root, index=index)).runs}
    assert states == {"COMPLETED", "RUNNING"}


def test_a_run_that_was_removed_is_not_listed_from_the_index(root: Path, tmp_path: Path) -> None:
    make_runs(root, MIN_RUNS)
    index = RunIndex(tmp_path, root)
    listed(RunListSource(CountingIo(), root, index=index))
    gone = root / "20261121-000003-ddp-0000"
    (gone / "run.json").unlink()
    gone.rmdir()
    assert len(listed(RunListSource(CountingIo(), root, index=index)).runs) == MIN_RUNS - 1


def test_a_drill_is_read_again_because_its_answer_comes_after_its_end(tmp_path: Path) -> None:
    make_runs(tmp_path / "runs", MIN_RUNS)
    name = "20261121-000003-ddp-0000"
    path = tmp_path / "runs" / name / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "drill": "idle_hands"}))
    list(RunListSource.indexed(CountingIo(), tmp_path / "runs", tmp_path / "cache").poll())
    index = RunIndex(tmp_path / "cache", tmp_path / "runs")
    assert len(index.load()) == MIN_RUNS - 1
    assert name not in index.load()
    assert set(index.ends().values()) == {2.0}
