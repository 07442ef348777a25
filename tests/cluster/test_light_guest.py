"""coach on a poor login node: 2 GB of memory and address space, a share of one core, a busy file server."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.processes import with_environment
from tests.cluster.slurm import SlurmCluster
from tests.cluster.test_politeness import wait_for_time
from tests.installed import InstalledCoach
from tests.processor import slowness
from tests.terminal.tmux import Terminal
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.terminal]

NUM_RANKS = 64
RUN = "20261121-142233-ddp-4f2a"
LIMIT_KB = 2_000_000
CPU_S_PER_HOUR = 72.0
OPS_PER_MIN = 600
TICKS_PER_S = os.sysconf("SC_CLK_TCK")

OpenTerminal = Callable[..., Terminal]


class WideRun:
    """A run of 64 ranks that goes on: each rank writes a step a second, its node a sample."""

    def __init__(self, coach: InstalledCoach, job_id: str) -> None:
        self.root = coach.user.home / "coach-runs"
        self._run_dir = self.root / RUN
        for folder in ("metrics", "telemetry"):
            (self._run_dir / folder).mkdir(parents=True)
        value = {
            "run_id": RUN,
            "recipe": "ddp",
            "backend": "slurm",
            "job_id": job_id,
            "user": coach.user.name,
        }
        times = {"created_time_s": time.time(), "started_time_s": time.time()}
        (self._run_dir / "run.json").write_text(json.dumps({**value, **times, "state": "RUNNING"}))
        for name in ("stdout.log", "stderr.log"):
            (self._run_dir / name).touch()
        shutil.chown(self.root, coach.user.uid)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._is_over.set()
        self._thread.join(10)

    def _write(self) -> None:
        step = 0
        while not self._is_over.wait(1.0):
            step += 1
            record = {"step": step, "epoch": 0, "loss": 2.0 / step, "time_s": time.time(), "step_time_s": 1.0}
            for rank in range(NUM_RANKS):
                with (self._run_dir / "metrics" / f"rank-{rank}.jsonl").open("a") as file:
                    file.write(json.dumps(record) + "\n")


@pytest.fixture
def wide_run(slurm: SlurmCluster, user_coach: InstalledCoach) -> Iterator[WideRun]:
    job_id = slurm.submit("sleep 900", "--job-name=ddp")
    slurm.wait_state(job_id, "RUNNING")
    run = WideRun(user_coach, job_id)
    yield run
    run.end()


@contextlib.contextmanager
def small_cgroup() -> Iterator[Path | None]:
    """A cgroup of 2 GB that a process can be put into; None where none can be made (then only the address
    space is limited)."""
    root, limit = Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"
    if not root.exists():
        root, limit = Path("/sys/fs/cgroup"), "memory.max"
    folder = root / f"coach-test-{os.getpid()}"
    try:
        folder.mkdir()
        (folder / limit).write_text(str(2 << 30))
    except OSError:
        yield None
        return
    try:
        yield folder
    finally:
        for pid in (folder / "cgroup.procs").read_text().split():
            (root / "cgroup.procs").write_text(pid)
        folder.rmdir()


def pid_of(coach: InstalledCoach) -> int:
    """The screens' own process: the oldest of that name, since a client has it too until it is executed."""
    found = wait_until(
        lambda: [each for each in with_environment(f"HOME={coach.user.home}") if _name(each.pid) == "coach"],
        what="coach is there",
    )
    return min(found, key=lambda each: each.start_ticks).pid


def open_run(terminal: Terminal) -> None:
    terminal.wait_for("ddp", timeout_s=60)
    terminal.wait_for("idle, free", timeout_s=60)
    terminal.send("Enter")
    terminal.wait_for("loss", timeout_s=30)
    terminal.wait_for("step", timeout_s=30)


def test_it_opens_a_run_of_64_ranks_within_two_gigabytes_of_address_space_and_of_memory(
    user_coach: InstalledCoach, open_terminal: OpenTerminal, wide_run: WideRun
) -> None:
    env = user_coach.env({"COACH_RUNS_ROOT": str(wide_run.root)})
    limited = ["sh", "-c", f'ulimit -v {LIMIT_KB} && read -r _ && exec "$@"', "sh", *user_coach.argv()]
    with small_cgroup() as group:
        terminal = open_terminal(limited, columns=80, rows=24, env=env, as_user=user_coach.user)
        if group is not None:
            (waiting,) = wait_until(
                lambda: [
                    each.pid
                    for each in with_environment(f"HOME={user_coach.user.home}")
                    if _command(each.pid)[:3] == limited[:3]
                ],
                what="the shell that becomes coach waits for Enter",
            )
            (group / "cgroup.procs").write_text(str(waiting))
        terminal.send("Enter")
        open_run(terminal)
        peak_kb = _status_kb(pid_of(user_coach), "VmPeak")
        print(f"\n{peak_kb / 1e6:.2f} GB of address space at most")  # noqa: T201
        assert peak_kb < LIMIT_KB * 0.7, "room is left for the runs that were open before"
        if group is not None:
            assert str(pid_of(user_coach)) in (group / "cgroup.procs").read_text().split()
        terminal.send("C-q")
        terminal.wait_exit()


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_default_view_costs_two_percent_of_a_core_with_all_its_clients(
    slurm: SlurmCluster, user_coach: InstalledCoach, open_terminal: OpenTerminal
) -> None:
    """Four minutes, a key in each, so that it never idles."""
    for _ in range(3):
        slurm.submit("sleep 900")
    terminal = open_terminal(user_coach.argv(), env=user_coach.env(), as_user=user_coach.user)
    terminal.wait_for("idle, free", timeout_s=60)
    pid = pid_of(user_coach)
    first_s, spent = _cpu_s(pid), [_cpu_s(pid)]
    start_s = time.monotonic()
    for minute in range(1, 5):
        terminal.send("j")
        wait_for_time(start_s + 60.0 * minute)
        spent.append(_cpu_s(pid))
    per_hour = (spent[-1] - first_s) * 15.0
    rss_mb = _status_kb(pid, "VmHWM") / 1000
    slow = slowness()
    minutes = [round(after - before, 2) for before, after in itertools.pairwise(spent)]
    print(  # noqa: T201
        f"\n{first_s:.2f} CPU s to the first screen, then a minute {minutes}: {per_hour:.0f} CPU s an "
        f"hour; {rss_mb:.0f} MB; the processor is {slow:.1f} times as slow as that of the limit"
    )
    assert per_hour <= CPU_S_PER_HOUR * slow


@pytest.mark.long
@pytest.mark.strace
@pytest.mark.timeout(600)
def test_an_open_run_of_64_ranks_costs_the_file_server_at_most_600_questions_a_minute(
    user_coach: InstalledCoach, open_terminal: OpenTerminal, wide_run: WideRun
) -> None:
    """By strace: every open, stat and listing below the runs root, once all was read for the first time."""
    trace = user_coach.user.home / "trace"
    tracing = ["strace", "-f", "-qq", "-ttt", "-e", "trace=%file,getdents64", "-o", str(trace)]
    env = user_coach.env({"COACH_RUNS_ROOT": str(wide_run.root)})
    terminal = open_terminal([*tracing, *user_coach.argv()], env=env, as_user=user_coach.user)
    open_run(terminal)
    from_s = time.time() + 60.0
    wait_until(lambda: time.time() >= from_s + 120.0, 300, "two minutes", every_s=1.0)
    lines = [line.split(None, 2) for line in trace.read_text(errors="replace").splitlines()]
    times = [float(words[1]) for words in lines if len(words) == 3 and str(wide_run.root) in words[2]]
    per_min = sum(from_s <= time_s < from_s + 120.0 for time_s in times) / 2
    print(f"\n{per_min:.0f} questions a minute below the runs root with a run of {NUM_RANKS} ranks open")  # noqa: T201
    assert 0 < per_min <= OPS_PER_MIN


def _name(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def _command(pid: int) -> list[str]:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")[:-1]
    return []


def _status_kb(pid: int, key: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1])
    raise AssertionError(f"no {key}")


def _cpu_s(pid: int) -> float:
    """Own time and that of all children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / TICKS_PER_S
