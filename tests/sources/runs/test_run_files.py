from __future__ import annotations

import errno
import json
import socket
from pathlib import Path

import pytest

from coach.model.errors import UserError
from coach.model.reading import RunFacts, RunList
from coach.sources.runs.run_files import RunFilesSource, parse_exit, parse_json, parse_run
from coach.sources.runs.run_list import RunListSource
from tests.sources.fake_io import FakeIo

RUN = "20261121-142233-ddp-4f2a"
OTHER = "20261121-150000-baseline-0001"


def test_an_empty_run_json_is_a_run_named_after_its_directory() -> None:
    run = parse_run({}, f"/runs/{RUN}")
    assert (run.run_id, run.recipe, run.backend, run.state, run.job_id) == (RUN, "ddp", "local", None, None)
    assert run.num_gpus is None


@pytest.mark.parametrize("hostile", [None, 17, "x", [], {}, True, float("nan"), 10**400])
def test_wrong_types_in_run_json_become_unknown_and_never_raise(hostile: object) -> None:
    keys = [
        "run_id",
        "recipe",
        "backend",
        "job_id",
        "state",
        "parameters",
        "resources",
        "launch",
        "created_time_s",
        "ended_time_s",
        "fix",
        "device",
    ]
    run = parse_run(dict.fromkeys(keys, hostile), f"/runs/{RUN}")
    assert run.created_time_s in (None, 17.0)
    assert run.fix is None
    assert isinstance(run.run_id, str)
    parse_exit(dict.fromkeys(("state", "exit_code", "ended_time_s", "ranks"), hostile))


def test_a_child_run_knows_its_parent_and_its_fix() -> None:
    value = {
        "job_id": 17,
        "parent_run_id": OTHER,
        "fix": {"rule": "NUM001", "title": "t", "changes": {"lr": 0.05}},
    }
    run = parse_run(value, f"/runs/{RUN}")
    assert (run.job_id, run.backend, run.parent_run_id) == ("17", "slurm", OTHER)
    assert run.fix is not None
    assert run.fix.changes == {"lr": 0.05}


def test_exit_json_keeps_ranks_that_have_a_number() -> None:
    ranks = [{"rank": 1, "signal": 9, "is_bystander": True}, {"rank": "x"}, 5]
    parsed = parse_exit({"state": "FAILED", "exit_code": 1, "ended_time_s": 5, "ranks": ranks})
    assert [(rank.rank, rank.signal, rank.is_bystander) for rank in parsed.ranks] == [(1, 9, True)]


@pytest.mark.parametrize("data", [b'{"run_id": "x', b"[1]", b"\xff\xfe", b"", b"[" * 100_000])
def test_a_torn_file_is_one_line_that_names_it(data: bytes) -> None:
    with pytest.raises(UserError) as caught:
        parse_json(data, Path("/r/run.json"))
    assert caught.value.message.startswith("/r/run.json: ")
    assert "\n" not in caught.value.message


def test_facts_of_a_run_come_with_its_complete_checkpoints_in_order() -> None:
    io = FakeIo()
    io.write(f"/runs/{RUN}/run.json", json.dumps({"state": "RUNNING"}).encode())
    whole = ("step-00000100.pt", "step-00000020.pt", "step-00000110")  # the last one: shares of all ranks
    for name in (*whole, ".step-00000120.pt.tmp", ".unfinished-step-00000130", "step-x.pt", "notes.txt"):
        io.write(f"/runs/{RUN}/checkpoints/{name}", b"x")
    source = RunFilesSource(io, RUN, Path(f"/runs/{RUN}"))
    (reading,) = source.poll()
    assert isinstance(reading.payload, RunFacts)
    assert [(item.step, item.time_s) for item in reading.payload.checkpoints] == [
        (20, 1000.0),
        (100, 1000.0),
        (110, 1000.0),
    ]
    assert reading.payload.exit is None
    live_interval_s = source.interval_s
    io.write(f"/runs/{RUN}/exit.json", b'{"state": "COMPLETED"}')
    list(source.poll())
    assert source.interval_s > live_interval_s


def test_a_run_without_run_json_is_an_error_with_its_path() -> None:
    (reading,) = RunFilesSource(FakeIo(), RUN, Path(f"/runs/{RUN}")).poll()
    assert reading.payload is None
    assert f"/runs/{RUN}/run.json" in (reading.error or "")


def listed(source: RunListSource) -> RunList:
    (reading,) = source.poll()
    assert isinstance(reading.payload, RunList)
    return reading.payload


def test_no_runs_root_means_no_runs_and_no_error() -> None:
    assert listed(RunListSource(FakeIo(), Path("/runs"))) == RunList((), ())


def test_runs_are_listed_newest_first_and_torn_ones_are_problems() -> None:
    io = FakeIo()
    io.write(f"/runs/{RUN}/run.json", b'{"created_time_s": 1}')
    io.write(f"/runs/{OTHER}/run.json", b'{"created_time_s": 2}')
    io.write("/runs/20261121-160000-ddp-0002/run.json", b'{"created')
    io.write("/runs/20261121-170000-ddp-0003/job.sh", b"printed only")
    io.write("/runs/.code/1234/coach/__init__.py", b"")
    io.write("/runs/notes.txt", b"")
    result = listed(RunListSource(io, Path("/runs")))
    assert [run.run_id for run in result.runs] == [OTHER, RUN]
    assert len(result.problems) == 1
    assert "ddp-0002/run.json" in result.problems[0]


def test_only_runs_that_can_change_are_read_again_and_exit_json_tells_the_end() -> None:
    io = FakeIo()
    io.write(f"/runs/{RUN}/run.json", b'{"state": "RUNNING"}')
    io.write(f"/runs/{OTHER}/run.json", b'{"state": "COMPLETED"}')
    source = RunListSource(io, Path("/runs"))
    assert {run.state for run in listed(source).runs} == {"RUNNING", "COMPLETED"}
    io.reads.clear()
    io.write(f"/runs/{RUN}/exit.json", b'{"state": "FAILED", "ended_time_s": 7}')
    ended = {run.run_id: run for run in listed(source).runs}
    assert (ended[RUN].state, ended[RUN].ended_time_s) == ("FAILED", 7.0)
    assert not any(OTHER in path for path, _, _ in io.reads)
    io.reads.clear()
    listed(source)
    assert io.reads == []


def test_a_requeued_run_is_listed_with_its_second_end_after_slurm_has_forgotten_the_job() -> None:
    io = FakeIo()
    io.write(f"/runs/{RUN}/run.json", b'{"backend": "slurm", "state": "TIMEOUT", "ended_time_s": 990}')
    source = RunListSource(io, Path("/runs"))
    assert [run.state for run in listed(source).runs] == ["TIMEOUT"]
    io.now_s += 200.0
    io.write(f"/runs/{RUN}/run.json", b'{"backend": "slurm", "state": "RUNNING", "ended_time_s": 990}')
    io.write(f"/runs/{RUN}/exit.json", b'{"state": "COMPLETED", "ended_time_s": 1100}')
    (run,) = listed(source).runs
    assert (run.state, run.ended_time_s) == ("COMPLETED", 1100.0)


def test_a_local_run_without_a_process_is_listed_as_ended() -> None:
    io = FakeIo()
    supervisor = {"pid": 2**22 - 3, "create_time_s": 1.0, "node": socket.gethostname()}
    value = {"backend": "local", "state": "RUNNING", "supervisor": supervisor}
    io.write(f"/runs/{RUN}/run.json", json.dumps(value).encode())
    source = RunListSource(io, Path("/runs"))
    assert [run.state for run in listed(source).runs] == ["NODE_FAIL"], "how it ended was not recorded"
    for status, state in ((b"", "NODE_FAIL"), (b"0\n", "COMPLETED"), (b"3\n", "FAILED")):
        io.write(f"/runs/{RUN}/exit_status", status)
        assert [run.state for run in listed(RunListSource(io, Path("/runs"))).runs] == [state]
    io.write(f"/runs/{OTHER}/run.json", json.dumps(value).encode())
    io.write(f"/runs/{OTHER}/exit.json", b'{"state": "COMPLETED", "ended_time_s": 7}')
    assert {run.run_id: run.state for run in listed(source).runs} == {RUN: "NODE_FAIL", OTHER: "COMPLETED"}


def test_a_run_of_another_login_node_is_listed_with_its_last_state_and_time() -> None:
    io = FakeIo()
    value = {"backend": "local", "state": "RUNNING", "supervisor": {"pid": 7, "node": "login2"}}
    io.write(f"/runs/{RUN}/run.json", json.dumps(value).encode())
    io.now_s += 50.0
    io.write(f"/runs/{RUN}/telemetry/login2.jsonl", b"{}")
    io.now_s += 50.0
    source = RunListSource(io, Path("/runs"))
    (run,) = listed(source).runs
    assert (run.state, run.host, run.is_visible, run.last_word_time_s) == ("RUNNING", "login2", False, 1050.0)
    io.write(f"/runs/{RUN}/exit.json", b'{"state": "COMPLETED", "ended_time_s": 7}')
    (run,) = listed(source).runs
    assert (run.state, run.is_visible, run.last_word_time_s) == ("COMPLETED", True, None)


def test_a_runs_root_that_cannot_be_read_is_an_error() -> None:
    io = FakeIo()
    io.failing["/runs"] = errno.EACCES
    (reading,) = RunListSource(io, Path("/runs")).poll()
    assert reading.error == "/runs: Permission denied"
