"""Make the demo again, by a real Slurm and real trainings: `python tests/recordings/make_demo.py --python
PYTHON`.

Needs root and Slurm for the cluster, and an interpreter with coach and torch that the user `nobody` can
reach. Takes some three minutes. What is kept is what `coach record --anonymize` keeps, without paths and
names of this machine.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
sys.path.insert(0, str(REPOSITORY))

from tests.cluster.slurm import SlurmCluster  # noqa: E402 (found by the line above)
from tests.installed import InstalledCoach  # noqa: E402 (found by the line above)
from tests.ordinary_user import make_open_directory  # noqa: E402 (found by the line above)
from tests.waiting import wait_until  # noqa: E402 (found by the line above)

DEMO = REPOSITORY / "coach" / "demo" / "demo.coach"
SMALL = (
    *("--cpus-per-task", "1", "--time", "5:00", "--format", "json"),
    *("--set", "num_workers=0", "--set", "num_train_samples=4096", "--set", "eval_every_epoch=false"),
    *("--set", "width=64", "--set", "batch_size=32", "--set", "epochs=100"),
)
TIMEOUT_S = 180.0
QUEUE_INTERVAL_S = 8.0
"""So long the recorder may take to hear from the queue how it ended."""


def queue_others(cluster: SlurmCluster) -> None:
    """The others of a cluster: jobs that run, and jobs that wait for each of the usual reasons."""
    cluster.submit("sleep 600", "--job-name=train", "--partition=gpu", "--gres=gpu:2", "--nodelist=node3")
    cluster.submit(
        "sleep 600", "--job-name=interactive", "--cpus-per-task=4", "--nodelist=node2", as_root=True
    )
    first = cluster.submit("sleep 600", "--job-name=data", "--nodelist=node3", "--array=1-8%2", "--time=20")
    cluster.submit("true", "--job-name=eval", f"--dependency=afterok:{first}")
    cluster.submit("true", "--job-name=test", "--begin=now+2hours", as_root=True)
    cluster.submit("true", "--job-name=eval", "--hold")
    cluster.submit(
        "true",
        "--job-name=train",
        "--partition=gpu",
        "--nodes=3",
        "--gres=gpu:2",
        "--nice=1000",
        "--time=60",
        as_root=True,
    )


def launch(coach: InstalledCoach, *options: str) -> str:
    result = coach("launch", *options, *SMALL, "--python", str(coach.python))
    assert result.returncode == 0, result.stderr
    run_id: str = json.loads(result.stdout)["run_id"]
    return run_id


def run_dir(coach: InstalledCoach, run_id: str) -> Path:
    (found,) = coach.user.home.glob(f"**/{run_id}")
    return found


def num_steps(coach: InstalledCoach, run_id: str) -> int:
    file = run_dir(coach, run_id) / "metrics" / "rank-0.jsonl"
    return file.read_text().count('"step_time_s"') if file.exists() else 0


def wait_state(coach: InstalledCoach, run_id: str, state: str) -> None:
    def is_reached() -> bool:
        return bool(json.loads(coach("check", run_id, "--format", "json").stdout)["state"] == state)

    wait_until(is_reached, TIMEOUT_S, f"{run_id} becomes {state}", every_s=2.0)


def is_found(coach: InstalledCoach, run_id: str) -> bool:
    return bool(json.loads(coach("check", run_id, "--format", "json").stdout)["findings"])


def record(coach: InstalledCoach, cluster: SlurmCluster, file: Path) -> None:
    """Play the story and record it: a healthy run, one that diverges, its finding, its child with the fix."""
    config = coach.user.home / ".config" / "coach" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text("[poll]\njobs_interval_s = 3\nnodes_interval_s = 5\n")
    for path in (config.parent.parent, config.parent, config):
        os.chown(path, coach.user.uid, coach.user.gid)
    queue_others(cluster)
    healthy = launch(coach, "baseline", "--set", "max_steps=300", "--set", "lr=0.02")
    wait_until(lambda: num_steps(coach, healthy) >= 20, TIMEOUT_S, "the healthy run makes steps", every_s=0.5)
    recorder = subprocess.Popen(
        coach.user.argv(coach.argv("record", str(file), "--anonymize")),
        env=coach.env(),
        cwd=coach.user.home,
    )
    try:
        wait_until(lambda: num_steps(coach, healthy) >= 40, TIMEOUT_S, "it goes on", every_s=0.5)
        broken = launch(coach, "ddp", "--nodes", "2", "--set", "max_steps=200", "--set", "lr=1e20")
        wait_until(lambda: is_found(coach, broken), TIMEOUT_S, "the finding appears", every_s=1.0)
        seen = num_steps(coach, broken)
        wait_until(lambda: num_steps(coach, broken) >= seen + 30, TIMEOUT_S, "it is looked at", every_s=0.5)
        # The fix as the screens apply it: this file, as the user.
        done = subprocess.run(
            coach.user.argv([str(coach.python), str(Path(__file__).resolve()), "relaunch", broken]),
            env=coach.env(),
            cwd=coach.user.home,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        child = done.stdout.strip()
        wait_state(coach, child, "COMPLETED")
        wait_state(coach, healthy, "COMPLETED")
        time.sleep(QUEUE_INTERVAL_S)
    finally:
        recorder.send_signal(signal.SIGINT)
        recorder.wait(timeout=60)


def relaunch(run_id: str) -> str:
    """Apply the first fix of a run's finding, as the screens do; the id of the child."""
    from coach.cli import load_settings
    from coach.cli.check import diagnose
    from coach.rules.engine import Engine
    from coach.rules.registry import build
    from coach.sources.io import SystemIo, scrubbed_environment
    from coach.sources.machine.user import user_name
    from coach.tui.live_ports import Reach, live_ports
    from coach.workflows.judging.one_reading import read_once
    from coach.workflows.judging.targets import resolve_target

    settings, io, user = load_settings(), SystemIo(scrubbed_environment(os.environ)), user_name()
    (finding, *_) = diagnose(run_id, settings, io, Engine(build()), "slurm").findings
    target = resolve_target(run_id, settings, io, "slurm", user)
    snapshot, history = read_once(target, settings, io, "slurm", user, ())
    assert snapshot.run is not None
    parent = replace(snapshot.run, state=snapshot.state)
    fixes = live_ports(Reach(settings, os.environ), "slurm", "slurm").fixes
    offer = fixes.offer_fix(parent, finding, finding.fixes[0], snapshot, history)
    return fixes.relaunch(offer, "cancel").run_id


def keep(file: Path, directory: Path, python: Path) -> None:
    """Put the recording into the package, without paths and names of this machine."""
    struck = {
        str(directory / "cluster" / "home"): "/home/learner",
        str(directory): "/scratch",
        str(python.parent.parent): "/home/learner/venv",
        str(REPOSITORY): "/home/learner/coach",
        "nobody": "learner",
    }
    text = gzip.decompress(file.read_bytes()).decode()
    for old, new in struck.items():
        text = text.replace(old, new)
    host = re.escape(socket.gethostname().split(".")[0])
    text = re.sub(rf"(?<![A-Za-z0-9]){host}(?![A-Za-z0-9])", "login1", text)
    # The nodes of the test cluster are nobody's; and what a cache is called is no person.
    text = re.sub(r"host[a-p]{6}(?=[\d\[])", "node", text)
    text = re.sub(r"(?<=/home/learner/)user-[a-p]{6}", ".cache", text)
    DEMO.parent.mkdir(exist_ok=True)
    DEMO.write_bytes(gzip.compress(text.encode(), mtime=0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--python", type=Path, help="interpreter with coach and torch, reachable by every user"
    )
    parser.add_argument("command", nargs="*", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.command:
        sys.stdout.write(f"{relaunch(args.command[1])}\n")
        return
    if args.python is None:
        parser.error("--python is needed")
    directory = make_open_directory("demo")
    cluster = SlurmCluster(directory / "cluster")
    cluster.start()
    try:
        coach = InstalledCoach(args.python, cluster.user, cluster.env)
        file = cluster.user.home / "demo.coach"
        record(coach, cluster, file)
        keep(file, directory, args.python)
    finally:
        cluster.stop()
        shutil.rmtree(directory, ignore_errors=True)
    sys.stdout.write(f"{DEMO}: {DEMO.stat().st_size / 1e3:.0f} kB\n")


if __name__ == "__main__":
    main()
