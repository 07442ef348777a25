"""Sizes of run directories: correct, stored for ended runs, and with few requests to the file server."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from coach import runs
from coach.sources.runs.run_sizes import RunSizes


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    paths = runs.create_run_dir(tmp_path / "runs", "20261121-142233-ddp-4f2a")
    runs.link_scheduler_logs(paths)
    (tmp_path / "runs" / ".logs" / "20261121-142233-ddp-4f2a.out").write_bytes(b"x" * 300)
    paths.checkpoints_dir.mkdir()
    (paths.checkpoints_dir / "step-00000040.pt").write_bytes(b"x" * 5000)
    paths.run_json.write_bytes(b"x" * 70)
    return paths.run_dir


def test_a_run_s_size_counts_its_checkpoints_and_its_logs_and_follows_no_link(
    run_dir: Path, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").write_bytes(b"x" * 10**6)
    (run_dir / "data").symlink_to(tmp_path)
    (run_dir / "elsewhere").symlink_to(tmp_path / "elsewhere")
    assert RunSizes(tmp_path / "sizes.json").size_of(run_dir, has_ended=True) == 5370


def test_an_ended_run_is_walked_once_and_again_when_its_checkpoints_go(run_dir: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache" / "sizes.json"
    first = RunSizes(cache)
    first.size_of(run_dir, has_ended=True)
    first.save()
    kept = RunSizes(cache, max_operations=0)  # nothing may be walked
    assert kept.size_of(run_dir, has_ended=True) == 5370
    (run_dir / "checkpoints" / "step-00000040.pt").unlink()
    os.utime(run_dir / "checkpoints", (1, 1))
    assert RunSizes(cache, max_operations=0).size_of(run_dir, has_ended=True) is None
    assert RunSizes(cache).size_of(run_dir, has_ended=True) == 370


def test_a_running_run_grows_and_is_never_remembered(run_dir: Path, tmp_path: Path) -> None:
    cache = tmp_path / "sizes.json"
    sizes = RunSizes(cache)
    assert sizes.size_of(run_dir, has_ended=False) == 5370
    (run_dir / "run.json").write_bytes(b"x" * 71)
    assert sizes.size_of(run_dir, has_ended=False) == 5371
    sizes.save()
    assert not cache.exists()


def test_beyond_the_limit_of_requests_sizes_are_unknown(run_dir: Path, tmp_path: Path) -> None:
    for number in range(20):
        (run_dir / f"file{number}").touch()
    sizes = RunSizes(tmp_path / "sizes.json", max_operations=10)
    assert sizes.size_of(run_dir, has_ended=False) is None
    assert RunSizes(tmp_path / "sizes.json", max_operations=100).size_of(run_dir, has_ended=False) == 5370


@pytest.mark.parametrize(
    "text", ["torn", '{"sizes": [1]}', '{"sizes": {"RUN": [1, 2]}}', '{"sizes": {"RUN": "x"}}']
)
def test_a_damaged_file_of_sizes_is_ignored(run_dir: Path, tmp_path: Path, text: str) -> None:
    (tmp_path / "sizes.json").write_text(text.replace("RUN", str(run_dir)))
    assert RunSizes(tmp_path / "sizes.json").size_of(run_dir, has_ended=True) == 5370


def test_a_run_that_is_gone_has_no_size_and_is_forgotten(run_dir: Path, tmp_path: Path) -> None:
    sizes = RunSizes(tmp_path / "sizes.json")
    assert sizes.size_of(run_dir.with_name("gone"), has_ended=True) is None
    sizes.size_of(run_dir, has_ended=True)
    sizes.save()
    assert list(runs.read_json(tmp_path / "sizes.json")["sizes"]) == [str(run_dir)]
