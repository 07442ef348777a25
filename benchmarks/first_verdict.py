"""From Enter on a failed job to its cause, and the memory that judged jobs hold: the screens at 80 × 24 on a
real Slurm.

    sudo PYTHON benchmarks/first_verdict.py [--megabytes 10] [--minutes 60]

Each kind of log, and each measurement of memory, has a cluster of its own, so coach judges nothing else
meanwhile. Enter is pressed as soon as the job is painted, so coach has read its log for a moment at most. The
processor seconds run from Enter to the cause and include Slurm's commands. The log ends with a traceback, and
the job fails. Memory is the resident size, and its peak so far, after all jobs were judged.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.diagnosis import CASES, write  # noqa: E402 (the repository is on the path only now)
from tests.cluster.guest import Guest  # noqa: E402
from tests.cluster.slurm import SlurmCluster, booted, why_not  # noqa: E402
from tests.waiting import wait_until  # noqa: E402

KINDS = ("a loss in every line", "no line like another", "progress without a newline")
FAILS = "python3 -c 'raise ValueError(\"11 classes, 10 expected\")'"
MOST_S = 2.0
"""From Enter to the cause."""
SHOWN = r"(?s)(?=.*› job)(?=.*COD001)(?=.*11 classes)"
"""Painted after Enter: the job's screen, its cause and the line that proves it, in any order."""
COLUMNS, ROWS = 80, 24


def opened(cluster: SlurmCluster, home: str) -> Guest:
    """coach's screens in a terminal of their own, on this cluster."""
    env = {**os.environ, **cluster.env, "COACH_HOME": home, "COACH_AS_ROOT": "1", "TERM": "xterm-256color"}
    env |= {"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}
    return Guest([sys.executable, "-m", "coach"], env, COLUMNS, ROWS)


def verdict(kind: str, num_megabytes: int) -> bool:
    """Print seconds from Enter to the cause of one job with this log; True if they are within the limit."""
    with booted("coach-verdict", SlurmCluster) as cluster, tempfile.TemporaryDirectory() as home:
        log = Path(home, "job.log")
        write(log, CASES[kind], num_megabytes * 1_000_000)
        script = f"cat {log}; echo; {FAILS}"
        job_id = cluster.submit(script, f"--chdir={home}", "--job-name=broken", as_root=True)
        cluster.wait_state(job_id, "FAILED")
        with opened(cluster, home) as guest:
            guest.wait_for(r"\bbroken\b")
            guest.forget()
            before_s, pressed_s = sum(guest.cpu_s()), time.monotonic()
            guest.press("\r")
            shown_s = guest.wait_for(SHOWN) + guest.started_s - pressed_s
            spent_s, (resident, _) = sum(guest.cpu_s()) - before_s, guest.memory_mib()
    print(
        f"{num_megabytes} MB, {kind:28} cause {shown_s:.2f} s after Enter, processor {spent_s:.2f} s, "
        f"{resident:.0f} MB",
        flush=True,
    )
    return shown_s <= MOST_S


def memory(num_jobs: int, num_live: int, minutes: float) -> None:
    """Print coach's memory after it has judged `num_jobs` small failed jobs and followed `num_live` live runs
    of two ranks for some minutes."""
    with booted("coach-verdict", SlurmCluster) as cluster, tempfile.TemporaryDirectory() as home:
        for _ in range(num_jobs):
            last = cluster.submit(FAILS, f"--chdir={home}", "--job-name=broken", as_root=True)
        cluster.wait_state(last, "FAILED", timeout_s=120)
        wait_until(lambda: " R" not in cluster.run(["squeue", "-h", "-o", "x %t"]).stdout, 120, "all ended")
        runs = [begin_run(cluster, Path(home, "runs"), number) for number in range(num_live)]
        with opened(cluster, home) as guest:
            guest.wait_for(f"{num_jobs} of \\d+ checked", 120)
            end_s, step = time.monotonic() + minutes * 60 * bool(runs), 0
            while time.monotonic() < end_s:
                step += 1
                write_steps(runs, step)
                time.sleep(1.0)
            resident, most = guest.memory_mib()
            spent_s = sum(guest.cpu_s())
    print(
        f"{num_jobs} judged jobs, {num_live} live runs for {minutes * bool(runs):g} min: {resident:.0f} MB "
        f"resident, at most {most:.0f} MB, {spent_s:.2f} s of processor since the start",
        flush=True,
    )


def begin_run(cluster: SlurmCluster, root: Path, number: int) -> Path:
    """The directory of a run with a running job."""
    job_id = cluster.submit("sleep 1800", "--job-name=ddp", f"--chdir={root.parent}", as_root=True)
    cluster.wait_state(job_id, "RUNNING")
    run_dir = root / f"20261121-142233-ddp-{number:04x}"
    (run_dir / "metrics").mkdir(parents=True)
    value = {"run_id": run_dir.name, "recipe": "ddp", "backend": "slurm", "job_id": job_id, "user": "root"}
    times = {"created_time_s": time.time(), "started_time_s": time.time()}
    (run_dir / "run.json").write_text(json.dumps({**value, **times, "state": "RUNNING"}))
    for name in ("stdout.log", "stderr.log"):
        (run_dir / name).touch()
    return run_dir


def write_steps(runs: Sequence[Path], step: int) -> None:
    """One more step of each rank."""
    record = {"step": step, "epoch": 0, "loss": 2.0 / step, "time_s": time.time(), "step_time_s": 1.0}
    for run_dir in runs:
        for rank in range(2):
            with (run_dir / "metrics" / f"rank-{rank}.jsonl").open("a") as file:
                file.write(json.dumps(record) + "\n")


def main() -> int:
    """Measure and print. Exit status 1 when a cause came too late, 2 when no cluster can be booted."""
    parser = argparse.ArgumentParser(description="Seconds to a verdict, and memory.")
    parser.add_argument("--megabytes", type=int, default=10)
    parser.add_argument("--minutes", type=float, default=60.0, help="to follow ten live runs")
    args = parser.parse_args()
    if (why := why_not()) is not None:
        print(why)
        return 2
    late = [kind for kind in KINDS if not verdict(kind, args.megabytes)]
    for num_jobs, num_live in ((12, 0), (50, 10)):
        memory(num_jobs, num_live, args.minutes)
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
