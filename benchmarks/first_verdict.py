"""From Enter on a failed job to its cause, and the memory that judged jobs hold: the screens at 80 × 24 on a
real Slurm.

    sudo PYTHON benchmarks/first_verdict.py [--megabytes 10] [--jobs 12 --jobs 50]

Each kind of log, and each number of jobs, has a cluster of its own, so that nothing else is judged meanwhile.
Enter is pressed as soon as the job is painted: coach has begun to read its log at most a moment before. The
processor seconds count from Enter to the cause; Slurm's clients are in them. The log ends with a traceback, and the job fails.
Memory is resident and at most so far, once all jobs were judged.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
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


def memory(num_jobs: int) -> None:
    """Print what coach holds once so many small failed jobs were judged."""
    with booted("coach-verdict", SlurmCluster) as cluster, tempfile.TemporaryDirectory() as home:
        for _ in range(num_jobs):
            last = cluster.submit(FAILS, f"--chdir={home}", "--job-name=broken", as_root=True)
        cluster.wait_state(last, "FAILED", timeout_s=120)
        wait_until(lambda: " R" not in cluster.run(["squeue", "-h", "-o", "x %t"]).stdout, 120, "all ended")
        with opened(cluster, home) as guest:
            guest.wait_for(f"{num_jobs} of {num_jobs} checked", 120)
            resident, most = guest.memory_mib()
            spent_s = sum(guest.cpu_s())
    print(
        f"{num_jobs} judged jobs: {resident:.0f} MB resident, at most {most:.0f} MB, {spent_s:.2f} s of "
        "processor since the start",
        flush=True,
    )


def main() -> int:
    """Measure and print. Exit status 1 when a cause came too late, 2 when no cluster can be booted."""
    parser = argparse.ArgumentParser(description="Seconds to a verdict, and memory.")
    parser.add_argument("--megabytes", type=int, default=10)
    parser.add_argument("--jobs", type=int, action="append", help="how many judged jobs; more than once")
    args = parser.parse_args()
    if (why := why_not()) is not None:
        print(why)
        return 2
    late = [kind for kind in KINDS if not verdict(kind, args.megabytes)]
    for num_jobs in args.jobs or (12, 50):
        memory(num_jobs)
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
