"""Measure the host memory that recipes need, for `memory` in their TOML files.

    python benchmarks/host_memory.py [--recipes baseline,ddp] [--set key=value …] [--seconds 90] [--home DIR]

Each recipe runs by `coach launch --backend local` on CPUs with its defaults, a sweep at its last value,
three steps long, with the beginning of an evaluation where it has one; after `--seconds` it is cancelled. The
images are as many as CIFAR-10's. Resident memory of the job's processes is added up three times a second. A
shared page counts in each process, as in Slurm's own accounting (jobacct_gather); `unique` counts it once, as
a cgroup does.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "trainers")]

from common.data import generate_cifar10  # noqa: E402 - the repository is on the path only now

from coach.launch.recipe import Recipe, find_recipes, get_recipe  # noqa: E402 - the same

INTERVAL_S = 0.3
PR_SET_CHILD_SUBREAPER = 36
NUM_STEPS = 3
EVALUATION_S = 10.0
"""Enough for the evaluation's first batches: later ones need as much."""


@dataclass(slots=True)
class Peaks:
    """Peaks of resident memory in MiB, while ranks run."""

    rank: float = 0.0
    """Of the mean over the ranks."""
    worker: float = 0.0
    """Of the mean over the DataLoader workers."""
    others: float = 0.0
    total: float = 0.0
    unique: float = 0.0
    """Of all processes together, with each shared page once (PSS), as a cgroup counts."""
    num_ranks: int = 0
    num_workers: int = 0

    def add(self, processes: list[psutil.Process]) -> None:
        ranks: list[float] = []
        workers: list[float] = []
        others: list[float] = []
        unique = 0.0
        rank_pids: set[int] = set()
        for process in processes:  # parents come before their children
            with contextlib.suppress(psutil.Error):
                memory = process.memory_full_info()
                unique += memory.pss / 2**20
                if process.ppid() in rank_pids:
                    workers.append(memory.rss / 2**20)
                elif _is_rank(process):
                    ranks.append(memory.rss / 2**20)
                    rank_pids.add(process.pid)
                else:
                    others.append(memory.rss / 2**20)
        if not ranks:
            return
        self.num_ranks, self.num_workers = (
            max(self.num_ranks, len(ranks)),
            max(self.num_workers, len(workers)),
        )
        self.rank = max(self.rank, sum(ranks) / len(ranks))
        self.worker = max(self.worker, sum(workers) / max(1, len(workers)))
        self.others = max(self.others, sum(others))
        self.total = max(self.total, sum(ranks) + sum(workers) + sum(others))
        self.unique = max(self.unique, unique)


def _is_rank(process: psutil.Process) -> bool:
    words = process.cmdline()
    return any("/trainers/" in word and word.endswith(".py") for word in words) and not any(
        word.startswith("torch.distributed") or word.endswith("coach/node") for word in words
    )


def measure(
    recipe: Recipe, settings: dict[str, str], seconds: float, env: dict[str, str]
) -> tuple[Peaks, str]:
    """The peaks of one run, and the state in which it ended."""
    own = {"max_steps": str(NUM_STEPS), "eval_at_end": "true"}
    if recipe.sweep is not None:
        own[recipe.sweep.parameter] = str(recipe.sweep.values[-1])
    values = {**{name: value for name, value in own.items() if name in recipe.parameters}, **settings}
    sets = [word for name, value in values.items() for word in ("--set", f"{name}={value}")]
    command = [sys.executable, "-m", "coach", "launch", str(recipe.path), "--backend", "local"]
    launched = subprocess.run(
        [*command, "--gpus", "0", "--format", "json", *sets],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    if launched.returncode:
        return Peaks(), launched.stderr.strip().splitlines()[-1]
    run = json.loads(launched.stdout)
    run_json = Path(run["run_dir"]) / "run.json"
    records = run_json.parent / "metrics" / "rank-0.jsonl"
    peaks, end_s, has_trained = Peaks(), time.monotonic() + seconds, False
    while (state := json.loads(run_json.read_text()).get("state")) in (None, "PENDING", "RUNNING"):
        peaks.add(_of_job())
        if not has_trained and records.exists() and records.read_text().count("\n") >= NUM_STEPS:
            has_trained, end_s = True, min(end_s, time.monotonic() + EVALUATION_S)
        if time.monotonic() > end_s:
            cancel = [sys.executable, "-m", "coach", "cancel", run["run_id"], "--yes"]
            subprocess.run(cancel, env=env, capture_output=True, check=False)
            end_s += seconds
        time.sleep(INTERVAL_S)
    return peaks, state if has_trained else f"{state} before {NUM_STEPS} steps"


def _of_job() -> list[psutil.Process]:
    """The processes below the run's supervisor, which itself runs on the login node's side."""
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if any(word.endswith("job.sh") for word in process.cmdline()):
                return [process, *process.children(recursive=True)]
    return []


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--recipes", help="names, separated by commas; without it: all")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--seconds", type=float, default=90.0)
    parser.add_argument("--home", type=Path, help="where runs and data go; without it: a temporary directory")
    args = parser.parse_args()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # a detached supervisor becomes a child
    recipes = [get_recipe(name) for name in args.recipes.split(",")] if args.recipes else find_recipes()[0]
    settings = dict(word.split("=", 1) for word in args.set)
    with tempfile.TemporaryDirectory() as folder:
        home = args.home or Path(folder)
        cache = home / "coach" / "cache"
        if not cache.exists():
            made = generate_cifar10(cache, 50_000, 10_000)
            made.rename(made.with_name(made.name.replace("50000-10000", "10000-2000")))  # what a launch takes
        env = {**os.environ, "COACH_HOME": str(home / "coach"), "COACH_AS_ROOT": "1"}
        print(
            "recipe                 ranks workers  rank  worker  others  total  unique (MiB)  state",
            flush=True,
        )
        for recipe in recipes:
            peak, state = measure(recipe, settings, args.seconds, env)
            print(
                f"{recipe.name:22} {peak.num_ranks:5} {peak.num_workers:7} "
                f"{peak.rank:5.0f} {peak.worker:7.0f} "
                f"{peak.others:7.0f} {peak.total:6.0f} {peak.unique:7.0f}        {state}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
