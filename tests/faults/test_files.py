"""Files that cannot be written, read or waited for: a launch reports it and gives no order twice, a training
goes on, and `coach check` names the file that it reads."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from coach import runs
from coach.cli.reading_io import ReadingIo
from coach.trusted import private_folder
from tests.faults import programs
from tests.faults.kill_points import FILE_CALLS, forked, spread
from tests.faults.programs import VICTIMS, Victim
from tests.faults.test_kills import all_moments
from tests.faults.world import World, Worlds
from tests.waiting import PATIENCE

pytestmark = pytest.mark.real

ERRORS = ("ENOSPC", "EDQUOT", "EROFS", "ESTALE", "EIO", "EACCES")


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Worlds:
    return Worlds(tmp_path_factory.mktemp("files"))


@pytest.fixture
def world(worlds: Worlds) -> Iterator[World]:
    made = worlds.make()
    yield made
    made.end()


@pytest.mark.strace
def test_a_file_error_at_any_step_of_a_launch_is_one_line_and_loses_no_job(
    worlds: Worlds, tmp_path: Path
) -> None:
    assert tried(VICTIMS["launch"], worlds, tmp_path, 6)


@pytest.mark.long
@pytest.mark.strace
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", ["launch", "local launch", "sweep", "fix", "coach run"])
def test_each_error_at_each_step(name: str, worlds: Worlds, tmp_path: Path) -> None:
    for shift in range(len(ERRORS)):
        assert tried(VICTIMS[name], worlds, tmp_path, 200, shift)


def tried(victim: Victim, worlds: Worlds, folder: Path, number: int, shift: int = 0) -> int:
    """Let one call of a program fail, a different one each time. Returns the number of calls tried."""
    calls = [each for each in all_moments(victim, worlds, folder) if each.call in FILE_CALLS]
    for index, moment in enumerate(spread(calls, number)):
        world = worlds.make(victim.has_code)
        try:
            victim.prepare(world)
            program = forked(victim.body(world))
            error = ERRORS[(index + shift) % len(ERRORS)]
            inject = f"inject={moment.call}:error={error}:when={moment.nth}"
            tracer = program.trace(folder / "failed", "-e", f"trace={moment.call}", "-e", inject)
            status = program.wait()
            tracer.wait()
            place = f"{victim.name}, {error} at {moment.what}"
            assert "Traceback" not in world.output, f"{place}: {world.output}"
            assert status in (0, 2), f"{place}: {status}"
            victim.check(world)
        finally:
            world.end()
    return len(calls)


@pytest.fixture
def small_disk(world: World) -> Iterator[Path]:
    """The runs root on a disk of its own, of 8 MB."""
    world.root.mkdir(exist_ok=True)
    shutil.rmtree(world.runs_root, ignore_errors=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m,mode=700", "none", world.root], check=True)
    yield world.root
    subprocess.run(["umount", "-l", world.root], check=True)


def fill(folder: Path) -> None:
    with open(folder / "filling", "wb", buffering=0) as file:
        try:
            while file.write(bytes(65536)) == 65536:
                continue
        except OSError:
            return


@pytest.mark.root
@pytest.mark.parametrize("fault", ["full", "read-only"])
def test_a_disk_that_takes_nothing_refuses_launches_in_one_line_and_everything_else_answers(
    world: World, small_disk: Path, fault: str
) -> None:
    private_folder(world.runs_root)
    if fault == "full":
        fill(small_disk)
    else:
        subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    for words in (programs.SLEEP, (*programs.LAUNCH, "--backend", "local", "--", "true")):
        lines = world.coach(*words, status=2).stderr.decode().splitlines()
        assert len(lines) == 2, lines
        assert ("nothing can be launched" if fault == "full" else "read-only") in lines[0]
    assert world.clients.jobs == []
    assert world.folders() == []
    for words in (("runs",), ("check",), ("jobs",)):
        world.coach(*words)


@pytest.mark.root
@pytest.mark.parametrize("is_full_before", [True, False], ids=["before", "meanwhile"])
def test_on_a_full_disk_coach_run_lets_the_training_end_and_says_once_that_it_is_not_recorded(
    world: World, small_disk: Path, is_full_before: bool
) -> None:
    if is_full_before:
        fill(small_disk)
    log_files = str(world.runs_root / "*" / "stdout.log")
    training = (
        "import glob, os, sys, time\n"
        "print('first', flush=True)\n"
        f"while {not is_full_before} and not any(os.path.getsize(log) for log in glob.glob({log_files!r})):\n"
        "    time.sleep(0.01)\n"
        f"try:\n    open({str(small_disk / 'more')!r}, 'wb', buffering=0).write(bytes(1 << 24))\n"
        "except OSError: pass\n"
        "for step in range(2000): print('step', step, 'of a line that is long enough', flush=True)\n"
        "time.sleep(0.3)\n"
        f"open({str(world.home / 'done')!r}, 'w').close()\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "coach", "run", "--interval", "0.1", "--", sys.executable, "-c", training],
        env=world.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert (world.home / "done").exists()
    steps = [f"step {step} of a line that is long enough" for step in range(2000)]
    assert done.stdout.splitlines() == ["first", *steps]
    said = [line for line in done.stderr.splitlines() if "No space left" in line]
    assert len(said) == 1, done.stderr
    assert ("no record" if is_full_before else "nothing is recorded") in said[0]
    if not is_full_before:
        (log,) = world.runs_root.glob("*/stdout.log")
        assert log.read_text().startswith("first\n"), "what came before the disk was full is kept"


def test_a_pipe_or_a_device_as_a_log_is_one_line_at_once(world: World) -> None:
    os.mkfifo(world.home / "fifo")
    for path, what in ((world.home / "fifo", "a pipe"), (Path("/dev/zero"), "a device")):
        (line,) = world.coach("check", str(path), status=2).stderr.decode().splitlines()
        assert line == f"coach: {path}: {what}, not a file"


@pytest.mark.long
def test_check_shows_its_progress_through_five_gigabytes_and_ctrl_c_ends_it(world: World) -> None:
    log = world.home / "large.log"
    with open(log, "wb") as file:
        file.write(b"step 1 loss 0.5\n")
        file.truncate(5 << 30)
    start_s = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "coach", "check", str(log)],
        env=world.env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    line = process.stderr.readline()
    assert time.monotonic() - start_s < 2.0 * PATIENCE
    process.send_signal(signal.SIGINT)
    assert process.wait(10 * PATIENCE) == 130
    assert line.startswith(f"coach: reading {log}: ")
    assert line.endswith(" of 5.37 GB so far\n")


def test_a_long_read_shows_its_position(tmp_path: Path) -> None:
    log, told = tmp_path / "log", list[str]()
    log.write_bytes(bytes(3000))
    io = ReadingIo({}, timeout_s=1.0, tell=told.append, after_s=0.0, every_s=1000.0)
    assert len(io.read(log, 0, 1000)) == 1000
    assert told == [], "a file that is read in one piece"
    io.read(log, 1000, 1000)
    io.read(log, 2000, 1000)
    assert told == [f"reading {log}: 1 kB of 3 kB so far"]


def test_a_record_of_a_newer_version_is_read_as_far_as_it_is_known(world: World) -> None:
    programs.prepare_ended(world)
    path = runs.RunPaths(world.runs_root / programs.OLD).run_json
    strange = {"schema": 99, "state": {"a": 1}, "parameters": [1], "sweep": 3, "launch": "no", "new": [{}]}
    path.write_text(json.dumps({**runs.read_json(path), **strange}))
    (run,) = world.listed()
    assert (run["run_id"], run["state"]) == (programs.OLD, "FAILED"), "exit.json tells the state"
    told = json.loads(world.coach("check", programs.OLD, "--format", "json", status=1).stdout)
    assert told["findings"][0]["rule"] == "MEM001"


def test_twenty_launches_at_once_are_twenty_runs_with_a_job_each(world: World) -> None:
    together = [forked(world.body(programs.SLEEP)) for _ in range(20)]
    for each in together:
        each.go()
    assert [each.wait() for each in together] == [0] * 20, world.output
    assert len(programs.check_queue(world)) == len(world.clients.jobs) == 20
    assert len({run["job_id"] for run in world.listed()}) == 20
