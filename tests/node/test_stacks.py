"""`coach/node stacks`: the current line of each rank of a node, by the best method that the node allows,
without harm to any rank."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from coach.analysis.measured.stack_groups import merge
from coach.model.training.stacks import Stacks
from coach.node.stacks import parse_faulthandler, parse_flight, parse_py_spy
from coach.sources.metrics.stack_dumps import parse_stacks
from coach.sources.runs.local_process import find_supervisor
from tests.node.conftest import Start
from tests.waiting import wait_until

CAPTURED = Path(__file__).parents[1] / "fixtures" / "stacks"
TRAINERS = Path(__file__).parents[2] / "trainers"
EMPTY = b'{"comm_lib_version":"","nccl_comm_state":{},"pg_config":{},"pg_status":{},"version":"2.10"}'

HOLDS_UP = """
import os, sys, time
def hold_up():
    open(sys.argv[1], "w").close()
    time.sleep(300)
hold_up()
"""
SPEAKS_OF_COLLECTIVES = f"""
import sys, types
torch_c = types.ModuleType("torch._C")
torch_c._distributed_c10d = types.ModuleType("torch._C._distributed_c10d")
sys.modules.update({{"torch": types.ModuleType("torch"), "torch._C": torch_c}})
num_asked = 0
def of_nccl(includeCollectives, onlyActive):
    global num_asked
    num_asked += 1
    if num_asked == 2:
        raise RuntimeError("no record today")
    return RECORDS[0]
torch_c._distributed_c10d._dump_nccl_trace_json = of_nccl
torch_c._distributed_c10d._dump_fr_trace_json = lambda includeCollectives, onlyActive: RECORDS[1]
sys.path.insert(0, {str(TRAINERS)!r})
from common import flight
flight.offer()
"""
"""The trainers' own offer, above a torch that has both recorders."""


@pytest.fixture
def foreign(clean_env: Mapping[str, str]) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that were not started below `coach run`, killed at the end."""
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        process.kill()
        process.wait()


def looked(start: Start, tmp_path: Path, pid: int, *more: str) -> list[dict[str, Any]]:
    """The node's report on this process and its children."""
    looking = start("stacks", "--out", str(tmp_path), "--pid", str(pid), *more, env={"PATH": "/usr/bin:/bin"})
    assert looking.communicate(timeout=30) == ("", "")
    assert looking.returncode == 0
    value: dict[str, Any] = json.loads((tmp_path / "node1.json").read_text())
    ranks: list[dict[str, Any]] = value["ranks"]
    return ranks


def looked_at(
    start: Start, tmp_path: Path, process: subprocess.Popen[bytes], *more: str
) -> list[dict[str, Any]]:
    """The node's report on this child of the suite."""
    return [rank for rank in looked(start, tmp_path, os.getpid(), *more) if rank["pid"] == process.pid]


def with_py_spy(tmp_path: Path, script: str = "echo 'Permission Denied' >&2; exit 1") -> dict[str, str]:
    """The environment of a job in which py-spy is this; another one may be installed beside the suite's
    interpreter."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "py-spy").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "bin" / "py-spy").chmod(0o755)
    return {**os.environ, "PATH": f"{tmp_path}/bin:/usr/bin:/bin"}


def functions(rank: Mapping[str, Any]) -> list[str]:
    (main,) = (thread for thread in rank["threads"] if thread["is_main"])
    return [frame["function"] for frame in main["frames"]]


def test_py_spy_and_faulthandler_give_the_same_stack_of_one_moment() -> None:
    (main,) = (t for t in parse_py_spy((CAPTURED / "py-spy.json").read_bytes()) if t["is_main"])
    dumped = parse_faulthandler((CAPTURED / "faulthandler.txt").read_text())
    assert [thread["is_main"] for thread in dumped] == [False, True]
    seen = [(f["function"].rpartition(".")[2], f["file"], f["line"]) for f in main["frames"]]
    assert seen == [(f["function"], f["file"], f["line"]) for f in dumped[1]["frames"]]
    assert seen[0] == ("__getitem__", "/home/ada/train.py", 6)


def test_py_spy_names_no_kernel_s_thread_before_python_3_11_and_the_main_thread_is_known_all_the_same() -> (
    None
):
    def thread(name: str | None, function: str) -> dict[str, Any]:
        frame = {"name": function, "filename": "/home/ada/train.py", "line": 6}
        return {"pid": 7, "thread_id": 1, "thread_name": name, "os_thread_id": None, "frames": [frame]}

    for main, other in (("MainThread", "helper"), (None, None)):
        told = json.dumps([thread(other, "wait"), thread(main, "train")]).encode()
        assert [each["is_main"] for each in parse_py_spy(told)] == [False, True]


def test_the_last_collective_is_read_from_the_flight_recorder() -> None:
    record = json.loads((CAPTURED / "flight-recorder.json").read_text())
    assert parse_flight(record) == {"operation": "gloo:all_reduce", "number": 3, "is_done": True}
    assert parse_flight({"entries": []}) is None
    assert parse_flight(json.loads(EMPTY)) is None


@pytest.mark.parametrize("text", [b"", b"[{}]", b'[{"pid": 1}]', b"[1]", b"7"])
def test_text_that_py_spy_did_not_write_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 (JSON's own words, or ours)
        parse_py_spy(text)


def test_a_training_below_coach_run_gives_its_stack_and_goes_on(start: Start, tmp_path: Path) -> None:
    there = tmp_path / "there"
    command = [sys.executable, "-c", HOLDS_UP, str(there)]
    training = start(
        "run",
        "--run-dir",
        str(tmp_path / "run"),
        "--",
        *command,
        env={"RANK": "3", "WORLD_SIZE": "8", "PATH": with_py_spy(tmp_path)["PATH"]},
    )
    wait_until(there.exists, 20, "the training")
    for _ in range(2):  # the second dump is distinguished from the first
        (rank,) = looked(start, tmp_path, training.pid)
        assert (rank["rank"], rank["world_size"], rank["rung"]) == (3, 8, "faulthandler")
        assert functions(rank) == ["hold_up", "<module>"]
        assert rank["missed"][0]["rung"] == "py-spy"
        assert rank["state"] == "S"
        assert rank["cpu_pct"] < 50  # it sleeps, but the dump before took a tick or two of processor time
    assert training.poll() is None
    training.send_signal(signal.SIGTERM)
    assert training.wait(timeout=20) == -signal.SIGTERM


def test_a_process_without_a_handler_gets_no_signal_and_each_rung_says_why_it_was_missed(
    start: Start, tmp_path: Path, foreign: list[subprocess.Popen[bytes]]
) -> None:
    there = tmp_path / "there"
    foreign.append(
        subprocess.Popen(
            [sys.executable, "-c", HOLDS_UP, str(there)],
            env=with_py_spy(tmp_path, "echo 'Error: Failed to find python version' >&2; exit 1"),
        )
    )
    wait_until(there.exists, 20, "the training")
    (rank,) = looked_at(start, tmp_path, foreign[0])
    assert rank["rung"] == "/proc"
    assert {each["rung"]: each["because"] for each in rank["missed"]} == {
        "py-spy": "Error: Failed to find python version",
        "faulthandler": "the process was not started below `coach run`",
        "flight recorder": "the process offers none (coach's trainers do, from torch 2.9)",
    }
    assert rank["state"] == "S"
    assert foreign[0].poll() is None


def test_a_py_spy_that_hangs_is_not_waited_for_longer_than_the_others_have_time(
    start: Start, tmp_path: Path, foreign: list[subprocess.Popen[bytes]]
) -> None:
    foreign.append(
        subprocess.Popen(
            [sys.executable, "-c", HOLDS_UP, str(tmp_path / "there")],
            env=with_py_spy(tmp_path, "exec sleep 300"),
        )
    )
    wait_until((tmp_path / "there").exists, 20, "the training")
    (rank,) = looked_at(start, tmp_path, foreign[0], "--timeout", "7.2")
    assert rank["missed"][0] == {"rung": "py-spy", "because": "no answer within 1 s"}


@pytest.mark.parametrize("is_of_nccl", [True, False])
def test_without_a_stack_the_collectives_are_still_read(
    start: Start, tmp_path: Path, foreign: list[subprocess.Popen[bytes]], is_of_nccl: bool
) -> None:
    there, said = tmp_path / "there", tmp_path / "said"
    record = (CAPTURED / "flight-recorder.json").read_bytes().strip()
    other = record.replace(b'"collective_seq_id":3', b'"collective_seq_id":2')
    offers = f"RECORDS = {(record, other) if is_of_nccl else (EMPTY, record)!r}\n" + SPEAKS_OF_COLLECTIVES
    with said.open("wb") as errors:
        command = [sys.executable, "-c", offers + HOLDS_UP, str(there)]
        foreign.append(subprocess.Popen(command, env=with_py_spy(tmp_path), stderr=errors))
    wait_until(there.exists, 20, "the training")
    fds = Path(f"/proc/{foreign[0].pid}/fd")
    (told,) = (fd for fd in fds.iterdir() if "coach-flight" in str(fd.readlink()))
    (bell,) = re.findall(r"coach-flight-(\d+)", str(told.readlink()))
    for _ in range(2):
        (rank,) = looked_at(start, tmp_path, foreign[0])
        assert (rank["rung"], rank["flight"]["number"]) == ("flight recorder", 3)
        assert [each["rung"] for each in rank["missed"]] == ["py-spy", "faulthandler"]
        assert told.stat().st_size == len(record) + 1, "an answer takes the place of the one before"
        (fds / bell).write_bytes(b"\n")  # the second dump, which fails, costs only itself
    assert said.read_bytes() == b""


TRAINS_ALONE = f"""
import os, sys, torch
import torch.distributed as dist
sys.path.insert(0, {str(TRAINERS)!r})
from common import flight
flight.offer()
backend, store = sys.argv[2:]
dist.init_process_group(backend, init_method=f"file://{{store}}", rank=0, world_size=1)
on = torch.ones(8, device="cuda" if backend == "nccl" else "cpu")
for _ in range(3):
    dist.all_reduce(on)
"""
"""One rank of its own group: as small as a training gets, above the real torch."""


@pytest.mark.train
@pytest.mark.parametrize("backend", ["gloo", pytest.param("nccl", marks=pytest.mark.gpu)])
def test_the_collectives_of_a_real_training_are_shown_while_it_hangs(
    start: Start, tmp_path: Path, foreign: list[subprocess.Popen[bytes]], backend: str
) -> None:
    there, store = tmp_path / "there", tmp_path / "store"
    command = [sys.executable, "-c", TRAINS_ALONE + HOLDS_UP, str(there), backend, str(store)]
    foreign.append(subprocess.Popen(command, env=with_py_spy(tmp_path)))
    wait_until(there.exists, 60, "three collectives and a hang")

    def told() -> dict[str, Any] | None:
        (rank,) = looked_at(start, tmp_path, foreign[0])
        flight: dict[str, Any] | None = rank["flight"]
        # NCCL's watchdog notes a moment later that it is done.
        return flight if flight is not None and flight["is_done"] else None

    assert wait_until(told, 20, "the third is done") == {
        "operation": f"{backend}:all_reduce",
        "number": 3,
        "is_done": True,
    }


def test_the_collective_of_a_rank_without_records_is_unknown(
    start: Start, tmp_path: Path, foreign: list[subprocess.Popen[bytes]]
) -> None:
    offers = f"RECORDS = {(EMPTY, EMPTY)!r}\n" + SPEAKS_OF_COLLECTIVES
    command = [sys.executable, "-c", offers + HOLDS_UP, str(tmp_path / "there")]
    foreign.append(subprocess.Popen(command, env=with_py_spy(tmp_path)))
    wait_until((tmp_path / "there").exists, 20, "the training")
    (rank,) = looked_at(start, tmp_path, foreign[0])
    assert (rank["rung"], rank["flight"]) == ("/proc", None)
    assert rank["missed"][-1]["because"] == "it has recorded no collective"


@pytest.mark.parametrize("module", ["coach", "coach.node"])
def test_the_training_is_meant_and_not_the_supervisor_that_was_started_as_a_module(
    start: Start, tmp_path: Path, foreign: list[subprocess.Popen[bytes]], module: str
) -> None:
    there = tmp_path / "there"
    training = [sys.executable, "-c", HOLDS_UP, str(there)]
    supervisor = [sys.executable, "-m", module, "run", "--run-dir", str(tmp_path / "run"), "--", *training]
    home = {"COACH_HOME": str(tmp_path / "home"), "SLURMD_NODENAME": "node1", "RANK": "30017"}
    foreign.append(subprocess.Popen(supervisor, env={**with_py_spy(tmp_path), **home}, cwd=TRAINERS.parent))
    try:
        wait_until(there.exists, 20, "the training")
        ranks = looked(start, tmp_path, os.getpid())
        (rank,) = (rank for rank in ranks if rank["rank"] == 30017)
        assert functions(rank) == ["hold_up", "<module>"]
        (rank,) = looked(start, tmp_path, foreign[0].pid)
        assert functions(rank) == ["hold_up", "<module>"]
    finally:
        foreign[0].terminate()
        foreign[0].wait(timeout=20)


def test_the_process_above_the_ranks_is_not_counted_as_a_rank(
    start: Start, tmp_path: Path, foreign: list[subprocess.Popen[bytes]]
) -> None:
    there = tmp_path / "there"
    above = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {HOLDS_UP!r}, sys.argv[1]])"
    foreign.append(
        subprocess.Popen(
            [sys.executable, "-c", above, str(there)], env=with_py_spy(tmp_path), start_new_session=True
        )
    )
    try:
        wait_until(there.exists, 20, "the training")
        (rank,) = looked(start, tmp_path, foreign[0].pid)
        assert rank["pid"] != foreign[0].pid
    finally:
        os.killpg(foreign[0].pid, signal.SIGKILL)


def test_the_process_of_a_rank_is_its_topmost_python_not_its_shell_or_a_worker(
    start: Start, tmp_path: Path, foreign: list[subprocess.Popen[bytes]]
) -> None:
    worker = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {HOLDS_UP!r}, sys.argv[1]])"
    ranks = "; ".join(f'RANK={rank} WORLD_SIZE=2 "$0" -c "$1" {tmp_path}/there{rank} & ' for rank in (0, 1))
    script = ranks.replace("; ", "") + "wait"
    shell = ["/bin/sh", "-c", script, sys.executable, worker]
    foreign.append(subprocess.Popen(shell, start_new_session=True))
    try:
        wait_until(lambda: all((tmp_path / f"there{rank}").exists() for rank in (0, 1)), 20, "both ranks")
        found = looked(start, tmp_path, foreign[0].pid)
        assert sorted(each["rank"] for each in found) == [0, 1]
        parents = {
            Path(f"/proc/{each['pid']}/stat").read_text().rpartition(")")[2].split()[1] for each in found
        }
        assert parents == {str(foreign[0].pid)}
    finally:
        os.killpg(foreign[0].pid, signal.SIGKILL)


LOADS = """
import os, sys, time
from torch.utils.data import DataLoader, Dataset
class Samples(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        if index == 3:
            open(sys.argv[1], "w").close()
            time.sleep(300)
        return index
if os.fork() == 0:
    os._exit(0)  # a child that nobody collects
for batch in DataLoader(Samples(), num_workers=2, multiprocessing_context="fork"):
    pass
"""


@pytest.mark.train
@pytest.mark.parametrize("rung", ["py-spy", "faulthandler"])
def test_the_loader_worker_that_hangs_is_told_from_the_idle_one(
    start: Start, tmp_path: Path, rung: str
) -> None:
    there = tmp_path / "there"
    env = {"RANK": "0"}
    if rung == "faulthandler":
        env["PATH"] = with_py_spy(tmp_path)["PATH"]
    command = [sys.executable, "-c", LOADS, str(there)]
    run = ("run", "--run-dir", str(tmp_path / "run"), "--", *command)
    training = start(*run, env=env, start_new_session=True)
    wait_until(there.exists, 60, "the sample that hangs")

    def seen() -> dict[str, Any] | None:
        (rank,) = looked(start, tmp_path, training.pid)
        return (
            rank if all(worker["threads"] or worker["state"] == "Z" for worker in rank["workers"]) else None
        )

    try:
        rank = wait_until(seen, 30, "the stacks of both workers")
        assert (rank["rung"], rank["num_workers"]) == (rung, 3)
        innermost = [functions(worker)[0] for worker in rank["workers"] if worker["state"] != "Z"]
        assert sum(name.endswith("__getitem__") for name in innermost) == 1
        assert {worker["rung"] for worker in rank["workers"]} == {rung, "/proc"}
        assert [worker["state"] for worker in rank["workers"]].count("Z") == 1
        merged = merge(Stacks(parse_stacks({"node": "node1", "ranks": [rank]}), "", 1))
        assert "1 DataLoader worker of rank 0 is in __getitem__, at <string>:" in merged.sentence
        assert merged.sentence.endswith("1 child process of rank 0 has ended, and is still a zombie")
    finally:
        os.killpg(training.pid, signal.SIGKILL)  # the worker sleeps on without its rank


def test_a_run_of_ones_own_command_is_found_by_the_supervisor_in_its_run_json(
    start: Start, tmp_path: Path
) -> None:
    there = tmp_path / "there"
    training = start("run", "--", sys.executable, "-c", HOLDS_UP, str(there))
    wait_until(there.exists, 20, "the training")
    (run_json,) = (tmp_path / "home" / "runs").glob("*/run.json")
    supervisor = find_supervisor(json.loads(run_json.read_text()))
    assert supervisor is not None
    assert supervisor.pid == training.pid
    training.send_signal(signal.SIGTERM)
    training.wait(timeout=20)
    assert find_supervisor(json.loads(run_json.read_text())) is None


def test_the_sites_own_start_up_file_is_run_as_before(start: Start, tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("print('the site was here', flush=True)\n")
    command = [
        sys.executable,
        "-c",
        "import sitecustomize, sys; print(sitecustomize.__file__, 'startup' in str(sys.path))",
    ]
    training = start(
        "run", "--run-dir", str(tmp_path / "run"), "--", *command, env={"PYTHONPATH": str(tmp_path / "site")}
    )
    out, err = training.communicate(timeout=30)
    by_coach, by_training, place = out.splitlines()
    assert by_coach == by_training == "the site was here"
    assert place == f"{tmp_path}/site/sitecustomize.py False"
    assert err == ""
