"""The rank that caused the end, and the ranks that only lost their peer: from torchrun's files and table,
real and hostile."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from coach import runs
from coach.node import ended, rank_ends
from tests.node.conftest import Start

_LOST = (
    "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer "
    "[127.0.0.1]:49542."
)

_TABLE = """
[1]:
  time      : 2026-11-21_03:57:03
  host      : localhost
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 17998)  (SIGTERM)
  error_file: /run/ranks/node1/x_y/attempt_0/0/error.json
  traceback : Traceback (most recent call last):
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-21_03:57:03
  host      : localhost
  rank      : 1 (local_rank: 1)
  exitcode  : -9 (pid: 17999)  (SIGKILL)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 17999
"""

_TRAINER = """
import os, sys
import torch, torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

@record
def main():
    dist.init_process_group("gloo")
    if dist.get_rank() == 1:
        if sys.argv[1] == "raise":
            raise ValueError("no such label: 11\\nmore of it")
        os.kill(os.getpid(), 9)
    dist.all_reduce(torch.zeros(2))

main()
"""


def _entry(rank: int, **fields: Any) -> dict[str, Any]:
    return {"rank": rank, "exit_code": None, "signal": None, "message": None, "is_bystander": False, **fields}


def _bystanders(*ranks: dict[str, Any]) -> list[int]:
    entries = list(ranks)
    rank_ends.mark_bystanders(entries)
    return [entry["rank"] for entry in entries if entry["is_bystander"]]


def test_the_table_of_failures_gives_exit_codes_and_signals() -> None:
    assert rank_ends.parse_failures(_TABLE) == [
        (0, -15, "/run/ranks/node1/x_y/attempt_0/0/error.json"),
        (1, -9, "<N/A>"),
    ]


def test_a_rank_that_lost_its_peer_is_a_bystander_only_beside_a_cause() -> None:
    assert _bystanders(_entry(0, message=_LOST), _entry(1, message="ValueError: boom")) == [0]
    assert _bystanders(_entry(0, message=_LOST), _entry(1, signal=9)) == [0]
    assert _bystanders(_entry(0, signal=15), _entry(1, exit_code=3)) == [0]
    assert _bystanders(_entry(0, message=_LOST), _entry(1, message=_LOST)) == []
    assert _bystanders(_entry(0, exit_code=0), _entry(1, message="ValueError: boom")) == []


def test_only_the_last_attempt_counts_and_a_torn_error_file_is_passed_over(tmp_path: Path) -> None:
    for attempt, rank, text in (
        (2, 0, json.dumps({"message": {"message": "old"}})),
        (10, 0, json.dumps({"message": {"message": "x" * 600 + "\nsecond line"}})),
        (10, 1, '{"message": {"mess'),
        (10, 2, json.dumps({"message": "the older format"})),
        (10, 3, json.dumps(["not an object"])),
    ):
        path = tmp_path / f"attempt_{attempt}" / str(rank) / "error.json"
        path.parent.mkdir(parents=True)
        path.write_text(text)
    found = {path.parent.name: message for path, message in rank_ends.read_error_files(tmp_path).items()}
    assert found == {"0": "x" * 500, "2": "the older format"}


def test_nodes_write_their_parts_and_the_ranks_of_all_come_together(tmp_path: Path) -> None:
    paths = runs.RunPaths(tmp_path)
    ended.record_node(paths, "node2", 1, [_entry(2, message=_LOST), _entry(3, message=_LOST)])
    ended.record_node(paths, "node1", -9, [_entry(0, message="ValueError: boom"), _entry(1, message=_LOST)])
    value = runs.read_json(paths.exit_json)
    assert [(rank["rank"], rank["is_bystander"]) for rank in value["ranks"]] == [
        (0, False),
        (1, True),
        (2, True),
        (3, True),
    ]
    assert value["nodes"]["node1"]["signal"] == 9
    assert value["nodes"]["node2"]["exit_code"] == 1


@pytest.mark.parametrize(
    ("arguments", "state"),
    [
        (["--exit-code", "0"], "COMPLETED"),
        (["--exit-code", "1"], "FAILED"),
        (["--exit-code", "1", "--state", "TIMEOUT"], "TIMEOUT"),
    ],
)
def test_the_batch_script_records_how_the_run_ended(
    start: Start, tmp_path: Path, arguments: list[str], state: str
) -> None:
    paths = runs.RunPaths(tmp_path)
    runs.write_json(paths.run_json, {"schema": 1, "recipe": "ddp"})
    assert start("ended", "--run-dir", str(tmp_path), *arguments).wait(30) == 0
    run, end = runs.read_json(paths.run_json), runs.read_json(paths.exit_json)
    assert (run["recipe"], run["state"], end["state"]) == ("ddp", state, state)
    assert end["exit_code"] == int(arguments[1])
    assert run["ended_time_s"] == end["ended_time_s"] > 0


def test_the_end_of_a_run_that_is_gone_is_one_line(start: Start, tmp_path: Path) -> None:
    process = start("ended", "--run-dir", str(tmp_path / "gone"), "--exit-code", "0")
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 1
    assert len(stderr.splitlines()) == 1


@pytest.mark.train
@pytest.mark.parametrize(
    ("how", "num_signal", "message"),
    [
        ("raise", None, "ValueError: no such label: 11"),
        pytest.param("kill", 9, None, marks=pytest.mark.long),  # _TABLE is torchrun's report of it
    ],
)
def test_torchrun_tells_the_rank_that_failed_from_ranks_that_lost_their_peer(
    start: Start, tmp_path: Path, how: str, num_signal: int | None, message: str | None
) -> None:
    trainer = tmp_path / "fails.py"
    trainer.write_text(_TRAINER)
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    torchrun = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        str(trainer),
        how,
    ]
    command = ["sh", "-c", 'exec "$@" 2>>"$0"', str(run_dir / "stderr.log"), *torchrun]
    training = start("run", "--run-dir", str(run_dir), "--", *command, env={"OMP_NUM_THREADS": "1"})
    training.communicate(timeout=120)
    assert training.returncode == 1
    first, second = runs.read_json(run_dir / "exit.json")["ranks"]
    assert (first["rank"], first["is_bystander"]) == (0, True)
    assert (second["rank"], second["is_bystander"]) == (1, False)
    assert (second["signal"], second["message"]) == (num_signal, message)
