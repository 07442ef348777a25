"""Open coach for forty users on one login node: measure the cost of all coaches together, and check that
forty launches make forty jobs.

    sudo PYTHON benchmarks/forty.py [--coaches 40] [--seconds 120]

PYTHON has coach and torch, and every user can reach it. The program boots a real Slurm. The forty users exist
only in its own mount namespace, so the machine does not change. Each coach runs in its own terminal under its
own uid, and is left alone until it counts as idle. CPU time is that of the coaches and of every Slurm command
that they ran. Memory is the proportional set size, which counts shared memory once. Budget: 0.8 of a core and
3 GB for forty. Printed on two shared, busy cores, Python 3.11, Slurm 22.05:

    40 of 40 coaches idle: 0.19 of a core, 1.32 GB
    40 of 40 launches within 10 s succeeded: 40 jobs, at most 1 of a user
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import pty
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from coach.model.politeness import ACTIVE_S  # noqa: E402 (the repository is on the path only now)
from tests.cluster.slurm import SlurmCluster, why_not  # noqa: E402
from tests.ordinary_user import User, is_reachable, make_open_directory  # noqa: E402

FIRST_UID = 42_001
MAX_CORES = 0.8
MAX_GB = 3.0
LAUNCH_WITHIN_S = 10.0
LAUNCH_TIMEOUT_S = 300.0
_IN_NAMESPACE = "COACH_FORTY_NAMESPACE"
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class OpenCoach:
    """One coach in its terminal."""

    user: User
    pid: int
    terminal: int


def main() -> int:
    parser = argparse.ArgumentParser(description="Forty coaches under forty uids.")
    parser.add_argument("--coaches", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=120.0, help="how long the idle coaches are measured")
    args = parser.parse_args()
    reason = why_not()
    if reason is None and not is_reachable(Path(sys.executable)):
        reason = f"an ordinary user cannot reach {sys.executable}"
    if reason is not None:
        print(f"cannot be measured here: {reason}", file=sys.stderr)
        return 2
    if os.environ.get(_IN_NAMESPACE) is None:
        os.environ[_IN_NAMESPACE] = "1"
        os.execvp("unshare", ["unshare", "--mount", sys.executable, __file__, *sys.argv[1:]])
    directory = make_open_directory("coach-forty")
    cluster = SlurmCluster(directory)
    try:
        users = make_users(directory, args.coaches)
        cluster.start()
        return measure(cluster, users, args.seconds)
    finally:
        cluster.stop()
        subprocess.run(["umount", "/etc/passwd"], check=False)
        shutil.rmtree(directory, ignore_errors=True)


def make_users(directory: Path, count: int) -> list[User]:
    """Users that only this mount namespace knows, each with a home of his own."""
    users, lines = [], Path("/etc/passwd").read_text().rstrip("\n").split("\n")
    for uid in range(FIRST_UID, FIRST_UID + count):
        home = directory / f"home-{uid}"
        home.mkdir(mode=0o700)
        os.chown(home, uid, uid)
        users.append(User(uid, uid, f"coach{uid}", home))
        lines.append(f"coach{uid}:x:{uid}:{uid}::{home}:/bin/sh")
    passwd = directory / "passwd"
    passwd.write_text("\n".join(lines) + "\n")
    passwd.chmod(0o644)
    subprocess.run(["mount", "--bind", str(passwd), "/etc/passwd"], check=True)
    return users


def measure(cluster: SlurmCluster, users: list[User], seconds: float) -> int:
    """Open all, leave them alone, count; then launch from all of them. Exit status 1 if a figure is over its
    budget or could not be measured. Each figure is printed as soon as it is known."""
    coaches: list[OpenCoach] = []
    try:
        is_idle_kept = part("coaches idle", lambda: print_idle(cluster, users, coaches, seconds))
        are_jobs_right = part("launches", lambda: print_launches(cluster, users))
    finally:
        for coach in coaches:
            with contextlib.suppress(ProcessLookupError):
                os.kill(coach.pid, signal.SIGKILL)
            os.waitpid(coach.pid, 0)
    is_kept = is_idle_kept and are_jobs_right
    print(
        f"{'within' if is_kept else 'OVER'} the budget of {MAX_CORES:g} core, {MAX_GB:g} GB, and as many "
        "jobs as launches"
    )
    return 0 if is_kept else 1


def part(name: str, measured: Callable[[], bool]) -> bool:
    """Whether a part kept its budget. A part that fails is named with its reason, and the others go on."""
    try:
        return measured()
    except Exception as problem:
        words = " ".join(f"{type(problem).__name__}: {problem}".split())
        print(f"NOT MEASURED, {name}: {words[:500]}", flush=True)
        return False


def print_idle(cluster: SlurmCluster, users: list[User], coaches: list[OpenCoach], seconds: float) -> bool:
    """The cost of open coaches without a key. Each coach is in `coaches` as soon as it is open."""
    reading = threading.Thread(target=read_all, args=(coaches,), daemon=True)
    for user in users:
        coaches.append(open_coach(user, cluster))
    reading.start()
    time.sleep(ACTIVE_S + 30.0)
    start_s, before_s = time.monotonic(), {coach.pid: cpu_s(coach.pid) for coach in coaches}
    time.sleep(seconds)
    after_s = {coach.pid: cpu_s(coach.pid) for coach in coaches}
    passed_s = time.monotonic() - start_s
    # A coach that has ended costs nothing more; the first number shows it.
    used = [
        after - before
        for before, after in zip(before_s.values(), after_s.values(), strict=True)
        if before is not None and after is not None
    ]
    cores, gb = sum(used) / passed_s, sum(pss_gb(coach.pid) for coach in coaches)
    print(f"{len(used)} of {len(users)} coaches idle: {cores:.2f} of a core, {gb:.2f} GB", flush=True)
    return cores <= MAX_CORES and gb <= MAX_GB and len(used) == len(users)


def print_launches(cluster: SlurmCluster, users: list[User]) -> bool:
    """Whether every launch became one job."""
    launched, jobs = launch_from_all(cluster, users)
    most = max(Counter(jobs).values(), default=0)
    print(
        f"{launched} of {len(users)} launches within {LAUNCH_WITHIN_S:g} s succeeded: {len(jobs)} jobs, "
        f"at most {most} of a user",
        flush=True,
    )
    return len(jobs) == len(users) == launched and most == 1


def open_coach(user: User, cluster: SlurmCluster) -> OpenCoach:
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(user.home)
        argv = user.argv([sys.executable, "-m", "coach"])
        os.execvpe(argv[0], argv, user.env(cluster.env))
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 36, 120, 0, 0))
    return OpenCoach(user, pid, terminal)


def read_all(coaches: list[OpenCoach]) -> None:
    """Read their output, as terminals do."""
    terminals = [coach.terminal for coach in coaches]
    while terminals:
        for terminal in select.select(terminals, [], [], 1.0)[0]:
            try:
                os.read(terminal, 65536)
            except OSError:
                terminals.remove(terminal)


def cpu_s(pid: int) -> float | None:
    """CPU time of a process and of its children that have ended: the clients. None once it has ended
    itself."""
    state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return None if state == "Z" else sum(int(field) for field in fields[10:14]) / _TICKS


def pss_gb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines() if cpu_s(pid) is not None else []
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024 / 1e9


def launch_from_all(cluster: SlurmCluster, users: list[User]) -> tuple[int, list[str]]:
    """Start one launch of each user within ten seconds. Returns the number that succeeded, and the users of
    the jobs in the queue after that."""
    pause_s = LAUNCH_WITHIN_S / len(users)
    # The jobs are to be counted, not to train: they begin when this has long ended.
    argv = [sys.executable, "-m", "coach", "launch", "baseline", "--gpus", "0", "--sbatch", "begin=now+3600"]
    started = []
    for user in users:
        with tempfile.TemporaryFile() as output:
            started.append(
                subprocess.Popen(
                    user.argv(argv), env=user.env(cluster.env), cwd=user.home, stdout=output, stderr=output
                )
            )
        time.sleep(pause_s)
    launched = sum(has_succeeded(process) for process in started)
    queue = cluster.run(["squeue", "-h", "-a", "-t", "all", "-o", "%U"], as_root=True).stdout.split()
    uids = {str(user.uid) for user in users}
    return launched, [uid for uid in queue if uid in uids]


def has_succeeded(process: subprocess.Popen[bytes]) -> bool:
    """False also for a launch that does not end: the others count all the same."""
    try:
        return process.wait(timeout=LAUNCH_TIMEOUT_S) == 0
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return False


if __name__ == "__main__":
    sys.exit(main())
