"""The run directory under several writers and torn writes."""

from __future__ import annotations

import json
import math
import os
import resource
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from coach import runs
from coach.trusted import private_folder


def test_a_run_id_holds_its_time_and_recipe_and_sorts_by_time() -> None:
    first, second = runs.new_run_id("ddp", 1_795_000_000), runs.new_run_id("baseline", 1_795_000_061)
    assert runs.RUN_ID.match(first)
    assert "-ddp-" in first
    assert first < second


def test_a_hostile_recipe_name_cannot_leave_the_runs_root() -> None:
    run_id = runs.new_run_id("../../etc/passwd\n; rm", 0)
    assert "/" not in run_id
    assert "\n" not in run_id
    assert runs.RUN_ID.match(run_id)


def test_two_launches_in_one_second_get_different_directories(tmp_path: Path) -> None:
    ids = {runs.new_run_id("ddp", 0) for _ in range(50)}
    assert len(ids) > 40


def test_the_run_directory_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    paths = runs.create_run_dir(tmp_path / "a" / "runs", "20260101-000000-ddp-0000")
    assert stat.S_IMODE(paths.run_dir.stat().st_mode) == 0o700
    assert stat.S_IMODE(paths.run_dir.parent.stat().st_mode) == 0o700
    with pytest.raises(FileExistsError):
        runs.create_run_dir(tmp_path / "a" / "runs", "20260101-000000-ddp-0000")


@pytest.mark.parametrize(
    ("env", "root", "cache"),
    [
        ({"COACH_HOME": "/c", "SCRATCH": "/s", "HOME": "/h"}, "/c/runs", "/c/cache"),
        ({"SCRATCH": "/s", "XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/s/coach/runs", "/s/coach/cache"),
        ({"XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/h/coach/runs", "/x/coach"),
        ({"HOME": "/h"}, "/h/coach/runs", "/h/.cache/coach"),
    ],
)
def test_runs_and_data_lie_under_coach_home_else_scratch_else_home(
    env: dict[str, str], root: str, cache: str
) -> None:
    assert (str(runs.default_runs_root(env)), str(runs.default_cache_dir(env))) == (root, cache)


def test_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "exit.json"
    threads = [
        threading.Thread(target=runs.update_json, args=(path, {"nodes": {f"node{n}": {"exit_code": n}}}))
        for n in range(12)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(runs.read_json(path)["nodes"]) == 12
    assert [item.name for item in tmp_path.iterdir()] == ["exit.json"]


def test_a_lock_left_by_a_dead_writer_does_not_block_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    lock = tmp_path / ".run.json.lock"
    lock.touch()
    os.utime(lock, (0, 0))
    assert runs.update_json(path, {"state": "RUNNING"})["state"] == "RUNNING"
    assert [item.name for item in tmp_path.iterdir()] == ["run.json"]


_WRITER = """
import sys, time
from pathlib import Path
from coach import runs
real, skew_s = time.time, float(sys.argv[2])
time.time = lambda: real() + skew_s
print("ready", flush=True)
sys.stdin.readline()
for number in range(25):
    runs.update_json(Path(sys.argv[1]), {"nodes": {f"{sys.argv[3]}-{number}": True}})
"""


def test_nodes_whose_clocks_differ_by_hours_lose_nothing_of_each_other_behind_a_dead_writers_lock(
    tmp_path: Path,
) -> None:
    path, lock = tmp_path / "exit.json", tmp_path / ".exit.json.lock"
    lock.touch()
    os.utime(lock, (0, 0))
    pipe = subprocess.PIPE
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(path), skew_s, name], stdin=pipe, stdout=pipe, text=True
        )
        for name, skew_s in (("behind", "-7200"), ("right", "0"), ("ahead", "7200"), ("further", "9000"))
    ]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        writer.communicate(timeout=60)
    assert [writer.returncode for writer in writers] == [0, 0, 0, 0]
    assert len(runs.read_json(path)["nodes"]) == 4 * 25
    assert [item.name for item in tmp_path.iterdir()] == ["exit.json"]


def test_a_waiter_who_catches_a_living_writers_lock_gives_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, lock = tmp_path / "run.json", tmp_path / ".run.json.lock"
    lock.touch()
    os.utime(lock, (0, 0))
    rename = Path.rename
    caught: list[str] = []

    def late(self: Path, target: Path) -> Path:
        # Another waiter was quicker: it broke the old lock, and holds its own.
        self.unlink()
        self.write_text("the quicker one's")
        moved = rename(self, target)
        monkeypatch.setattr(Path, "rename", rename)
        return moved

    def sleep(_: float) -> None:
        if not caught and Path.rename is rename:
            caught.append(lock.read_text())
            lock.unlink()  # the quicker one is done

    monkeypatch.setattr(Path, "rename", late)
    monkeypatch.setattr(time, "sleep", sleep)
    runs.update_json(path, {"state": "RUNNING"})
    assert caught == ["the quicker one's"]
    assert [item.name for item in tmp_path.iterdir()] == ["run.json"]


def test_a_writer_that_was_stopped_while_others_took_it_for_dead_writes_on_top_of_their_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, lock = tmp_path / "run.json", tmp_path / ".run.json.lock"
    fsync = os.fsync

    def hang(descriptor: int) -> None:
        monkeypatch.setattr(os, "fsync", fsync)
        lock.unlink()
        runs.update_json(path, {"job_id": "17"})

    monkeypatch.setattr(os, "fsync", hang)
    runs.update_json(path, {"state": "RUNNING"})
    assert runs.read_json(path) == {"schema": 1, "job_id": "17", "state": "RUNNING"}


def test_a_full_disk_fails_the_update_and_leaves_no_lock_for_others_to_wait_on(tmp_path: Path) -> None:
    path = tmp_path / "exit.json"
    runs.update_json(path, {"state": "RUNNING"})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        with pytest.raises(OSError, match="too large"):
            runs.update_json(path, {"state": "FAILED"})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert runs.read_json(path)["state"] == "RUNNING"
    assert [item.name for item in tmp_path.iterdir()] == ["exit.json"]


@pytest.mark.parametrize("text", ["", '{"schema": 1, "run_', "[1]", "\x00\x01", "[" * 100_000])
def test_a_torn_file_is_named_with_its_problem(tmp_path: Path, text: str) -> None:
    path = tmp_path / "run.json"
    path.write_text(text)
    with pytest.raises(runs.RunFileError) as caught:
        runs.read_json(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    runs.write_json(path, {"state": "RUNNING"})
    with pytest.raises(TypeError):
        runs.write_json(path, {"state": object()})
    assert runs.read_json(path) == {"state": "RUNNING"}
    assert len(list(tmp_path.iterdir())) == 1


def test_numbers_that_are_not_finite_travel_as_strings() -> None:
    line = runs.encode_record(
        {"step": 2, "loss": math.nan, "lr": math.inf, "grad_norm": -math.inf, "accuracy": None}
    )
    assert json.loads(line) == {
        "step": 2,
        "loss": "NaN",
        "lr": "Infinity",
        "grad_norm": "-Infinity",
        "accuracy": None,
    }
    assert math.isnan(runs.decode_number("NaN") or 0.0)
    assert runs.decode_number("Infinity") == math.inf
    assert runs.decode_number("-Infinity") == -math.inf
    assert runs.decode_number("fast") is None
    assert runs.decode_number(True) is None


def test_a_torn_last_line_waits_for_its_rest_and_bad_lines_are_counted() -> None:
    data = b'{"step": 1}\nnot json\n[2]\n\xff\xfe\n{"step": 2}\n{"step'
    records, num_bad, consumed = runs.decode_records(data)
    assert [record["step"] for record in records] == [1, 2]
    assert num_bad == 3
    assert data[consumed:] == b'{"step'


def test_no_folder_of_the_runs_can_be_listed_by_others_whichever_is_made_first(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir(mode=0o755)
    private_folder(tmp_path / "mine" / "coach" / "runs" / runs.CODE_FOLDER)
    made = [tmp_path / "mine" / "coach", tmp_path / "mine" / "coach" / "runs"]
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in made] == [0o700, 0o700]
    assert stat.S_IMODE((tmp_path / "mine").stat().st_mode) == 0o755
