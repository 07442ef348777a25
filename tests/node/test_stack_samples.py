"""The sampler's bursts of stacks: their time, their counts, and the signalled processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest

from coach.node import stack_samples
from coach.node.stack_samples import (
    MAX_BURSTS,
    Due,
    Schedule,
    StackSampler,
    category_of,
    own_place,
    reduce_burst,
    take_burst,
)
from coach.node.stacks import Rank
from coach.runs import RunPaths, create_run_dir
from tests.node.conftest import Start
from tests.waiting import wait_until

TORCH = "/venv/lib/python3.12/site-packages/torch"
HOLDS_UP = """
import os, sys, time
def hold_up():
    with open(sys.argv[1] + ".new", "w") as file:
        file.write(str(os.getpid()))
    os.rename(sys.argv[1] + ".new", sys.argv[1])
    time.sleep(300)
hold_up()
"""


def frames(*rows: tuple[str, str]) -> list[Mapping[str, object]]:
    return [{"function": function, "file": file, "line": 7} for function, file in rows]


def test_a_program_that_tells_no_loss_is_sampled_after_a_minute() -> None:
    schedule = Schedule(100.0)
    assert schedule.look(159.0, False, 0) is None
    assert schedule.look(160.0, False, 0) == Due("warm_up", None)
    assert schedule.look(5000.0, False, 0) is None, "what never wrote has no stall"


def test_steps_end_the_warm_up_ten_seconds_later() -> None:
    schedule = Schedule(0.0)
    assert schedule.look(5.0, True, 10) is None
    assert schedule.look(14.0, True, 10) is None
    assert schedule.look(15.0, True, 20) == Due("warm_up", 0.0)


def test_a_stall_is_sampled_at_doubled_intervals_which_restart_after_progress() -> None:
    schedule = Schedule(0.0)
    schedule.look(0.0, True, 1)
    assert schedule.look(10.0, True, 2) is not None
    due = [now for now in range(15, 2000, 5) if schedule.look(float(now), True, 2)]
    assert due == [310, 610, 1210]
    assert schedule.look(2000.0, True, 3) is None


def test_a_run_that_writes_seldom_is_not_stalled_after_five_minutes() -> None:
    schedule = Schedule(0.0)
    for number in range(6):
        schedule.look(60.0 * number, True, number + 1)
    assert schedule.look(300.0 + 590.0, True, 6) is None
    assert schedule.look(300.0 + 600.0, True, 6) == Due("stalled", 600.0)


def test_a_run_has_a_limited_number_of_bursts() -> None:
    schedule = Schedule(0.0)
    # Three signs of progress one second apart, then a stall, and so on.
    times = [400.0 * stall + second for stall in range(200) for second in (0, 1, 2, 320)]
    sizes = [3 * stall + sign for stall in range(200) for sign in (1, 2, 3, 3)]
    bursts = [schedule.look(now_s, True, size) for now_s, size in zip(times, sizes, strict=True)]
    assert sum(burst is not None for burst in bursts) == MAX_BURSTS


@pytest.mark.parametrize(
    ("line", "is_found"),
    [
        ("step 3 loss 0.51", True),
        ("Train Epoch: 1 [0/60000 (0%)]\tLoss: 2.300039", True),
        ("{'loss': '2.137', 'epoch': 0.1}", True),
        ("train_loss=0.5 lr=1e-3", True),
        ("| loss 2.301 (2.4)", True),
        ("Loss: nan", True),
        ("using CrossEntropyLoss()", False),
        ("loss: cross_entropy", False),
        ("--loss_scale 128", False),
    ],
)
def test_a_log_that_names_a_loss_shows_that_steps_are_made(tmp_path: Path, line: str, is_found: bool) -> None:
    log = tmp_path / "out.txt"
    sampler = StackSampler(RunPaths(tmp_path / "run"), "node1", 1, 0.0)
    log.write_text("loading\n")
    assert not sampler._finds_loss({str(log): log.stat().st_size})
    with log.open("a") as file:
        file.write(f"{line}\n")
    assert sampler._finds_loss({str(log): log.stat().st_size}) is is_found


def test_the_logs_that_a_batch_file_names_itself_are_looked_at(tmp_path: Path) -> None:
    named = tmp_path / "slurm-7.out"
    (tmp_path / "run.json").write_text(json.dumps({"output": {"stdout": str(named), "stderr": str(named)}}))
    assert StackSampler(RunPaths(tmp_path), "node1", 1, 0.0)._logs() == [named]


def test_a_stack_belongs_to_the_category_of_its_library_and_the_place_is_the_users() -> None:
    train = ("fetch", "/home/ada/train.py")
    assert category_of(frames(train, ("__next__", f"{TORCH}/utils/data/dataloader.py"))) == "data"
    reduce = ("all_reduce", f"{TORCH}/distributed/distributed_c10d.py")
    backward = ("backward", f"{TORCH}/_tensor.py")
    assert category_of(frames(reduce, backward, train)) == "collective"
    assert category_of(frames(backward, train)) == "backward"
    assert category_of(frames(("step", f"{TORCH}/optim/adamw.py"), train)) == "optimizer"
    assert category_of(frames(("save", f"{TORCH}/serialization.py"), train)) == "save"
    assert category_of(frames(("all_reduce", "/home/ada/train.py"))) == "other", "the user's own function"
    assert own_place(frames(reduce, train)) == "train.py:7 fetch"


def test_a_burst_is_reduced_to_counts_of_the_main_thread() -> None:
    main = {"name": None, "is_main": True, "frames": frames(("fetch", "/home/ada/train.py"))}
    side = {"name": None, "is_main": False, "frames": frames(("pin", "/home/ada/train.py"))}
    assert reduce_burst([[side, main], [main], [side]]) == {
        "num_samples": 2,
        "categories": {"other": 2},
        "places": [["train.py:7 fetch", 2]],
    }


def test_a_rank_below_coach_run_is_counted_and_goes_on(start: Start, tmp_path: Path) -> None:
    there = tmp_path / "there"
    command = [sys.executable, "-c", HOLDS_UP, str(there)]
    training = start("run", "--run-dir", str(tmp_path / "run"), "--", *command)
    wait_until(there.exists, 20, "the training")
    found = take_burst(Rank(int(there.read_text()), 3, 8, ""), lambda _: None)
    assert found is not None
    assert (found["rank"], found["num_samples"], found["categories"]) == (3, 20, {"other": 20})
    assert found["places"][0][0].endswith(" hold_up")
    assert training.poll() is None
    training.send_signal(signal.SIGTERM)
    assert training.wait(timeout=20) == -signal.SIGTERM


def test_the_ranks_of_all_tasks_of_a_step_are_sampled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each task has a supervisor of its own, below the same step daemon; one of the supervisors samples."""
    shell = shutil.which("sh")
    assert shell is not None
    daemon = tmp_path / "slurmstepd"
    shutil.copy(shell, daemon)
    task = f"SLURM_PROCID={{0}} sh -c '{sys.executable} -c \"$HOLDS_UP\" {tmp_path}/{{0}}; true' &"
    env = {"PATH": os.defpath, "HOLDS_UP": HOLDS_UP, "SLURMD_NODENAME": "node1"}
    step = [str(daemon), "-c", f"{task.format(0)} {task.format(1)} wait"]
    monkeypatch.setattr(stack_samples, "take_burst", lambda rank, _: {"pid": rank.pid, "rank": rank.rank})
    with subprocess.Popen(step, env=env, start_new_session=True) as process:
        try:
            there = [tmp_path / number for number in "01"]
            wait_until(lambda: all(file.exists() for file in there), 20, "the ranks")
            ranks = [int(file.read_text()) for file in there]
            paths = create_run_dir(tmp_path / "runs", "20261121-142233-ddp-4f2a")
            StackSampler(paths, "node1", psutil.Process(ranks[0]).ppid(), 0.0).take(Due("warm_up", None))
            told = [json.loads(line) for line in paths.stack_samples_of("node1").read_text().splitlines()]
            assert sorted((each["rank"], each["pid"]) for each in told) == list(enumerate(ranks))
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def test_a_process_without_the_handler_gets_no_signal(tmp_path: Path) -> None:
    there = tmp_path / "there"
    with subprocess.Popen([sys.executable, "-c", HOLDS_UP, str(there)], env={"PATH": os.defpath}) as process:
        try:
            wait_until(there.exists, 20, "the process")
            assert take_burst(Rank(process.pid, 0, 1, ""), lambda _: None) is None
            assert process.poll() is None
        finally:
            process.kill()
