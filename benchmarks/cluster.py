"""Measure the cost of looking at a cluster of 10,000 nodes with 50,000 jobs: coach beside turm and slurm-top,
on one real controller.

    sudo PYTHON benchmarks/cluster.py [--seconds 120] [--nodes 10000] [--jobs 50000] [--peers FOLDER] [--own]

With `--own` all jobs belong to the user who looks; without it none does. The program also compares
`coach jobs --all`, as text and as JSON, with the bare Slurm commands: seconds on the clock, and processor
seconds with all child processes.

FOLDER has the peers' programs: `python -m venv P && P/bin/pip install turm slurm-monitor-top`, then
`--peers P/bin`. Every user must be able to reach PYTHON and the peers: each program runs alone as an ordinary
user, in a terminal of 160 × 50. The time to the first data runs from the start of the program to its first
rows; the bare commands are its lower bound, and `never` means more than one minute. CPU time is split into
the program's own and that of the Slurm commands that it ran.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from coach.sources.slurm.nodes import nodes_query, partitions_query  # noqa: E402
from coach.sources.slurm.queue import jobs_query  # noqa: E402 (the repository is on the path only now)
from tests.cluster.guest import Guest, counting_clients  # noqa: E402
from tests.cluster.scale import ScaleCluster, why_not  # noqa: E402
from tests.cluster.slurm import booted  # noqa: E402
from tests.ordinary_user import User, is_reachable  # noqa: E402

SETTLE_S = 10.0
NUM_KEYS = 20


@dataclass(frozen=True, slots=True)
class Subject:
    """A program, the text that shows its first data, and the keys that lead to everybody's jobs."""

    name: str
    argv: Sequence[str]
    wanted: str
    focus: str = ""
    """The key that leads to a table with rows."""
    keys: str = ""
    wanted_after_keys: str = ""


def main() -> int:
    parser = argparse.ArgumentParser(description="coach and others on a large cluster.")
    parser.add_argument("--seconds", type=float, default=120.0, help="how long each is left open")
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--jobs", type=int, default=50_000)
    parser.add_argument("--peers", type=Path, help="folder of turm and slurm-top")
    parser.add_argument("--own", action="store_true", help="all jobs are those of the user who looks")
    args = parser.parse_args()
    reason = why_not()
    if reason is None and not is_reachable(Path(sys.executable)):
        reason = f"an ordinary user cannot reach {sys.executable}"
    if reason is not None:
        print(f"cannot be measured here: {reason}", file=sys.stderr)
        return 2
    with booted("coach-scale", lambda directory: ScaleCluster(directory, num_nodes=args.nodes)) as cluster:
        cluster.submit_many(args.jobs, 20, is_own=args.own)
        shown = subjects(args.peers, are_own=args.own)
        report(cluster.directory, cluster.user, cluster.env, args.seconds, shown)
    return 0


def report(
    directory: Path, user: User, slurm: Mapping[str, str], seconds: float, shown: Sequence[Subject]
) -> None:
    """Measure each and print a table."""
    calls = counting_clients(directory / "clients")
    env = user.env(slurm)
    for name, argvs in bare_commands(user.name).items():
        print(f"bare commands, {name}: {took(argvs, user, env)}", flush=True)
    for form in ("text", "json"):
        argv = (sys.executable, "-m", "coach", "jobs", "--all", "--format", form)
        print(f"coach jobs --all --format {form}: {took([argv], user, env)}", flush=True)
    env["PATH"] = f"{calls.parent}:{env['PATH']}"
    print(HEADING)
    for subject in shown:
        calls.write_text("")
        print(measured(subject, user, env, calls, seconds), flush=True)


def bare_commands(user: str) -> dict[str, list[tuple[str, ...]]]:
    cluster = [nodes_query().argv, partitions_query().argv]
    return {
        "own jobs": [jobs_query(user).argv, *cluster],
        "all jobs": [jobs_query(None).argv, *cluster],
    }


def took(argvs: Sequence[Sequence[str]], user: User, env: Mapping[str, str]) -> str:
    """Seconds on the clock and of processor, in the middle of three times."""
    walls, processors = [], []
    for _ in range(3):
        start_s, before = time.monotonic(), os.times()
        for argv in argvs:
            subprocess.run(user.argv(argv), env=env, stdout=subprocess.DEVNULL, check=True)
        walls.append(time.monotonic() - start_s)
        after = os.times()
        processors.append(sum(after[2:4]) - sum(before[2:4]))
    return f"{statistics.median(walls):.2f} s, {statistics.median(processors):.2f} s of processor"


def subjects(peers: Path | None, *, are_own: bool) -> list[Subject]:
    coach = (sys.executable, "-m", "coach")
    found = [Subject("coach, own jobs", coach, "train-llm-")]
    if not are_own:
        found = [
            Subject("coach", coach, "big0", focus="\t"),
            Subject("coach, everybody's", coach, "big0", keys="a", wanted_after_keys="train-llm-"),
        ]
    if peers is not None:
        found += [
            Subject("turm", (str(peers / "turm"),), "train-llm-"),
            Subject("slurm-top", (str(peers / "slurm-top"),), "train-llm-"),
        ]
    return found


HEADING = (
    f"{'':<22} {'first s':>8} {'all s':>7} {'calls/min':>10} {'own CPU s/h':>12} {'clients s/h':>12} "
    f"{'MiB':>5} {'most':>5} "
    f"{'Down ms':>8} {'worst':>6}"
)


def measured(subject: Subject, user: User, env: Mapping[str, str], calls: Path, seconds: float) -> str:
    """Open one, leave it alone, then press keys."""
    with Guest(user.argv(subject.argv), env) as guest:
        try:
            first_s: float | None = guest.wait_for(subject.wanted)
        except AssertionError:
            first_s = None
        all_s = None
        if subject.focus:
            guest.press(subject.focus)
        if subject.keys:
            guest.forget()
            pressed_s = time.monotonic()
            guest.press(subject.keys)
            all_s = guest.wait_for(subject.wanted_after_keys) + guest.started_s - pressed_s
        time.sleep(SETTLE_S)
        before, num_before, start_s = guest.cpu_s(), len(calls.read_text().split()), time.monotonic()
        time.sleep(seconds)
        after, num_after = guest.cpu_s(), len(calls.read_text().split())
        passed_s = time.monotonic() - start_s
        own, clients = (3600.0 * (b - a) / passed_s for a, b in zip(before, after, strict=True))
        keys_s = []
        for _ in range(NUM_KEYS):
            keys_s.append(guest.press("\x1b[B"))
            time.sleep(0.1)
        now_mib, most_mib = guest.memory_mib()
    per_min = 60.0 * (num_after - num_before) / passed_s
    return (
        f"{subject.name:<22} {'never' if first_s is None else f'{first_s:.2f}':>8} "
        f"{'' if all_s is None else f'{all_s:.2f}':>7} {per_min:10.1f} {own:12.0f} {clients:12.0f} "
        f"{now_mib:5.0f} {most_mib:5.0f} {1e3 * statistics.median(keys_s):8.0f} {1e3 * max(keys_s):6.0f}"
    )


if __name__ == "__main__":
    sys.exit(main())
