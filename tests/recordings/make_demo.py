"""Make the demo again, by a real Slurm and real trainings: `python tests/recordings/make_demo.py`.

Needs root, Slurm and gcc. Trainings, jobs, sampler and Slurm are real. The GPUs are the NVML stand-in, and
their name says so: their load follows from the step times that the training on them writes. It takes about
three minutes. `--python` names an interpreter with coach and torch that the user `nobody` can reach; else an
environment is built. The demo holds the recording of `coach record`, without paths and names of this machine,
and the times of the captions' chapters.
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
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
sys.path.insert(0, str(REPOSITORY))

from tests.cluster.slurm import SlurmCluster  # noqa: E402 (found by the line above)
from tests.installed import (  # noqa: E402 (found by the line above)
    InstalledCoach,
    build_environment,
    build_wheel,
)
from tests.nvml.stand_in import NvmlStandIn  # noqa: E402 (found by the line above)
from tests.ordinary_user import make_open_directory  # noqa: E402 (found by the line above)
from tests.waiting import wait_until  # noqa: E402 (found by the line above)

DEMO = REPOSITORY / "coach" / "demo" / "demo.coach"
SMALL = (
    *("--cpus-per-task", "1", "--time", "5:00", "--format", "json"),
    *("--set", "num_workers=0", "--set", "num_train_samples=4096", "--set", "eval_every_epoch=false"),
    *("--set", "width=64", "--set", "batch_size=16", "--set", "epochs=100"),
)
OWN = ("--cpus-per-task", "3", "--time", "8:00", "--format", "json", "--partition", "gpu")
TIMEOUT_S = 240.0
_LONG_NUMBER = re.compile(r"(?<=:)-?\d+\.\d{5,}(?:e-?\d+)?")
QUEUE_INTERVAL_S = 25.0
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


def launch(coach: InstalledCoach, *options: str, env: Mapping[str, str] | None = None) -> str:
    result = coach("launch", "--python", str(coach.python), *options, env=env)
    assert result.returncode == 0, result.stderr
    run_id: str = json.loads(result.stdout)["run_id"]
    return run_id


def run_dir(coach: InstalledCoach, run_id: str) -> Path:
    (found,) = coach.user.home.glob(f"**/{run_id}")
    return found


def num_steps(coach: InstalledCoach, run_id: str) -> int:
    file = run_dir(coach, run_id) / "metrics" / "rank-0.jsonl"
    return file.read_text().count('"step_time_s"') if file.exists() else 0


class Devices:
    """The stand-in GPUs of a training: their load follows the rank that waits longest for its data."""

    def __init__(self, coach: InstalledCoach, name: str, num_gpus: int, memory_mib: int) -> None:
        folder = coach.user.home.parent / f"nvml-{name}"
        folder.mkdir()
        folder.chmod(0o755)
        self._coach, self._num_gpus, self._memory_mib = coach, num_gpus, memory_mib
        self._nvml = NvmlStandIn(folder)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self.run_id: str | None = None
        self.set([0.0] * num_gpus)

    @property
    def env(self) -> Mapping[str, str]:
        """The variables of the launch that make its sampler see these devices."""
        return self._nvml.env

    def follow(self, run_id: str) -> None:
        self.run_id = run_id
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join()

    def set(self, shares: Sequence[float]) -> None:
        """The share of its time for which each device computes."""
        self._nvml.set_gpus(
            {
                "name": "A100_stand-in",
                "uuid": f"GPU-stand-in-{index}",
                "util": round(100 * share),
                "used_mib": self._memory_mib if share else 600,
                "total_mib": 81_920,
                "power_mw": round(62_000 + 330_000 * share),
                "limit_mw": 400_000,
                "sm": 1410 if share else 210,
                "temp": round(32 + 36 * share),
                "reasons": "0" if share else "1",
            }
            for index, share in enumerate(shares)
        )

    def _follow(self) -> None:
        while not self._is_over.wait(1.0):
            assert self.run_id is not None
            folder = run_dir(self._coach, self.run_id) / "metrics"
            shares = [busy_share(folder / f"rank-{rank}.jsonl") for rank in range(self._num_gpus)]
            self.set([min(shares)] * self._num_gpus)


def busy_share(file: Path) -> float:
    """The share of its newest steps that a rank did not wait for data; 0.0 before it has made one."""
    try:
        rows = [json.loads(row) for row in file.read_text().splitlines()[-16:] if row.endswith("}")]
    except FileNotFoundError:
        return 0.0
    steps = [row for row in rows if "data_time_s" in row]
    total_s = sum(row["step_time_s"] for row in steps)
    waited_s = sum(row["data_time_s"] for row in steps)
    return max(0.0, 1.0 - waited_s / total_s) if total_s else 0.0


@dataclass
class Part:
    """A chapter of the story."""

    name: str
    at_s: float
    target: str | None
    is_new_job: bool


@dataclass
class Story:
    """The chapters, as they come to pass."""

    begin_s: float
    chapters: list[Part] = field(default_factory=list)

    def mark(self, name: str, target: str | None = None, *, is_new_job: bool = False) -> None:
        self.chapters.append(Part(name, time.time() - self.begin_s, target, is_new_job))


def own_training(
    coach: InstalledCoach, devices: Devices, name: str, *arguments: str, node: str, num_gpus: int
) -> str:
    """Launch `demo_training.py` as the user's own script of this name."""
    script = coach.user.home / name
    shutil.copy(HERE / "demo_training.py", script)
    os.chown(script, coach.user.uid, coach.user.gid)
    ranks = ("--with", "torchrun") if num_gpus > 1 else ()
    options = (*OWN, "--gpus", str(num_gpus), "--sbatch", f"nodelist={node}", *ranks)
    batch_size = "48" if num_gpus == 1 else "8"
    env = {**devices.env, "DEMO_TRAINERS": str(REPOSITORY / "trainers"), "DEMO_BATCH_SIZE": batch_size}
    run_id = launch(coach, str(script), *options, "--", *arguments, env=env)
    devices.follow(run_id)
    return run_id


def wait_end(coach: InstalledCoach, run_id: str) -> None:
    file = run_dir(coach, run_id) / "exit.json"
    wait_until(
        lambda: file.exists() and '"state"' in file.read_text(), TIMEOUT_S, f"{run_id} ends", every_s=1.0
    )


def is_broken(coach: InstalledCoach, run_id: str) -> bool:
    """True once the loss has been NaN for so long that the screens have told it."""
    file = run_dir(coach, run_id) / "metrics" / "rank-0.jsonl"
    return file.exists() and file.read_text().count('"loss":"NaN"') >= 20


def record(coach: InstalledCoach, cluster: SlurmCluster, file: Path) -> Story:
    """Play the story and record it: a healthy run, a run that waits for its data, a run that diverges, and
    its child with the fix."""
    config = coach.user.home / ".config" / "coach" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text("[poll]\njobs_interval_s = 3\nnodes_interval_s = 5\n")
    for path in (config.parent.parent, config.parent, config):
        os.chown(path, coach.user.uid, coach.user.gid)
    queue_others(cluster)
    few, many = Devices(coach, "small", 1, 11_400), Devices(coach, "big", 2, 38_200)
    small = own_training(coach, few, "train-small.py", "0", "0.003", "100000", node="node1", num_gpus=1)
    wait_until(lambda: num_steps(coach, small) >= 120, TIMEOUT_S, "the healthy run makes steps", every_s=0.5)
    big = own_training(coach, many, "train-big.py", "0.15", "0.005", "100000", node="node2", num_gpus=2)
    wait_until(lambda: num_steps(coach, big) >= 2, TIMEOUT_S, "the big run begins", every_s=0.5)
    story = Story(time.time())
    recorder = subprocess.Popen(
        coach.user.argv(coach.argv("record", str(file))), env=coach.env(), cwd=coach.user.home
    )
    try:
        play(coach, story, small, big)
        time.sleep(QUEUE_INTERVAL_S)
    finally:
        recorder.send_signal(signal.SIGINT)
        recorder.wait(timeout=60)
        few.stop()
        many.stop()
    return story


def play(coach: InstalledCoach, story: Story, small: str, big: str) -> None:
    story.mark("cluster")
    time.sleep(8.0)
    story.mark("healthy", small)
    ddp = ("ddp", "--nodes", "2", "--set", "max_steps=100", "--set", "lr=1e20")
    broken = launch(coach, *ddp, *SMALL)
    wait_until(lambda: num_steps(coach, big) >= 30, TIMEOUT_S, "it has waited for long", every_s=0.5)
    story.mark("input", big)
    wait_until(lambda: is_broken(coach, broken), TIMEOUT_S, "its loss is NaN", every_s=0.5)
    story.mark("nan", broken)
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
    wait_until(lambda: num_steps(coach, child) >= 2, TIMEOUT_S, "the fixed run makes steps", every_s=0.5)
    story.mark("fix", child, is_new_job=True)
    wait_end(coach, child)
    story.mark("proof", child)


def relaunch(run_id: str) -> str:
    """Apply the first fix of a run's finding, as the screens do; the id of the child."""
    from coach.cli import load_settings
    from coach.sources.io import SystemIo, scrubbed_environment
    from coach.sources.machine.user import user_name
    from coach.tui.live_ports import Ports, Reach
    from coach.workflows.judging.check import Checker
    from coach.workflows.judging.one_reading import read_once
    from coach.workflows.judging.targets import resolve_target

    settings, io, user = load_settings(), SystemIo(scrubbed_environment(os.environ)), user_name()
    (finding, *_) = Checker(settings, io, "slurm").target(run_id).diagnosis.findings
    target = resolve_target(run_id, settings, io, "slurm", user)
    snapshot, history = read_once(target, settings, io, "slurm", user, ())
    assert snapshot.run is not None
    parent = replace(snapshot.run, state=snapshot.state)
    fixes = Ports(Reach(settings, os.environ), "slurm", "slurm").fixes
    offer = fixes.offer_fix(parent, finding, finding.fixes[0], snapshot, history)
    return fixes.relaunch(offer, "cancel").run_id


def thinned(row: str) -> str:
    """An entry with the telemetry of every sixth second, and with metrics of four digits."""
    entry = json.loads(row)
    entry["t"] = round(entry["t"], 3)
    if entry["k"] == "run" and entry["error"] is not None:
        return ""  # queries that were open when the recorder ended
    if entry["k"] == "bytes" and "/telemetry/" in entry["path"]:
        rows = entry["data"].splitlines(keepends=True)
        if all(each.startswith("{") and each.endswith("}\n") for each in rows):
            kept = [each for each in rows if int(json.loads(each).get("time_s", 0)) % 6 == 0]
            entry["data"] = "".join(kept)
    elif entry["k"] == "bytes" and "/metrics/" in entry["path"]:
        entry["data"] = _LONG_NUMBER.sub(_short_number, entry["data"])
    if entry["k"] == "bytes" and not entry["data"]:
        return ""
    return json.dumps(entry, separators=(",", ":")) + "\n"


def _short_number(found: re.Match[str]) -> str:
    value = float(found[0])
    return f"{value:.2f}" if value > 1e6 else f"{value:.4g}"


def is_queue(entry: dict[str, object]) -> bool:
    return entry["k"] == "run" and entry["kind"] == "jobs"


def shown_s(happened_s: float, answers_s: Sequence[float]) -> float:
    """Wait for the queue's next answer, which shows the change."""
    return round(next((each for each in answers_s if each > happened_s), happened_s) + 0.5, 1)


def keep(file: Path, story: Story, directory: Path, python: Path) -> None:
    """Put the recording into the package, without paths and names of this machine, with its chapters."""
    struck = {
        str(directory / "cluster" / "home"): "/home/learner",
        str(directory / "cluster"): "/scratch",
        str(python.parent.parent): "/home/learner/venv",
        str(directory): "/scratch",
        str(REPOSITORY): "/home/learner/coach",
        "nobody": "learner",
    }
    text = gzip.decompress(file.read_bytes()).decode()
    for old, new in struck.items():
        text = text.replace(old, new)
    host = re.escape(socket.gethostname().split(".")[0])
    text = re.sub(rf"(?<![A-Za-z0-9]){host}(?![A-Za-z0-9])", "login1", text)
    first, _, rest = text.partition("\n")
    rest = "".join(thinned(row) for row in rest.splitlines(keepends=True))
    header = json.loads(first)
    late_s = story.begin_s - header["time_s"]
    entries = map(json.loads, rest.splitlines())
    answers_s = [entry["t"] - header["time_s"] for entry in entries if is_queue(entry)]
    for each in story.chapters:
        each.at_s = round(max(0.0, each.at_s + late_s), 1)
        if each.is_new_job:
            each.at_s = shown_s(each.at_s, answers_s)
    chapters = [{"name": each.name, "at_s": each.at_s, "target": each.target} for each in story.chapters]
    header |= {"is_anonymized": True, "chapters": chapters}
    DEMO.parent.mkdir(exist_ok=True)
    told = json.dumps(header, separators=(",", ":")) + "\n" + rest
    DEMO.write_bytes(gzip.compress(told.encode(), mtime=0))


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
    directory = make_open_directory("demo")
    python = args.python or build_environment(directory / "venv", build_wheel(directory), "train")
    cluster = SlurmCluster(directory / "cluster")
    cluster.start()
    try:
        coach = InstalledCoach(python, cluster.user, cluster.env)
        file = cluster.user.home / "demo.coach"
        story = record(coach, cluster, file)
        keep(file, story, directory, python)
    finally:
        cluster.stop()
        shutil.rmtree(directory, ignore_errors=True)
    sys.stdout.write(f"{DEMO}: {DEMO.stat().st_size / 1e3:.0f} kB\n")


if __name__ == "__main__":
    main()
