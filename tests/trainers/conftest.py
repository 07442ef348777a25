"""Trainers are started as a job starts them: as processes, by their path, with their flags. Nothing of torch
is imported into pytest.

They are started from a process that has imported torch; the tests of launches and jobs start them cold.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.trainers.warm import WarmProcess, WarmPython
from tests.waiting import PATIENCE

TRAINERS = Path(__file__).parents[2] / "trainers"
TIMEOUT_S = 120 * PATIENCE
SMALL = {
    "width": 8,
    "num_train_samples": 320,
    "batch_size": 16,
    "num_workers": 0,
    "eval_every_epoch": "false",
}


@dataclass(frozen=True, slots=True)
class Trainer:
    """Starts trainers on generated data that is made once for all tests."""

    cache_dir: Path
    env: dict[str, str] = field(default_factory=dict)
    warm: WarmPython | None = None
    """Where it is none, or the environment changes torch, programs start cold."""

    def command(self, name: str, run_dir: Path, ranks: int = 1, **flags: object) -> list[str]:
        command = [sys.executable]
        if ranks > 1:
            command += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
            command += ["--signals-to-handle=SIGTERM,SIGINT,SIGUSR1"]
        given = {**SMALL, "run_dir": run_dir, "cache_dir": self.cache_dir, "gpus_per_node": 0, **flags}
        flags_given = (f"--{key}={value}" for key, value in given.items() if value is not None)
        return [*command, str(TRAINERS / name), *flags_given]

    def start(
        self, name: str, run_dir: Path, ranks: int = 1, **flags: object
    ) -> subprocess.Popen[str] | WarmProcess:
        return self.begin(self.command(name, run_dir, ranks, **flags), self.env)

    def run(
        self, name: str, run_dir: Path, ranks: int = 1, **flags: object
    ) -> subprocess.CompletedProcess[str]:
        return self.call(self.command(name, run_dir, ranks, **flags), self.env)

    def run_until_signal(
        self, at_step: int, name: str, run_dir: Path, ranks: int = 1, to_rank: int = 0, **flags: object
    ) -> subprocess.CompletedProcess[str]:
        """Run a trainer in which one rank gets SIGTERM at the end of that step."""
        command = self.command(name, run_dir, ranks, **flags)
        place = command.index(str(TRAINERS / name))
        command[place:place] = [str(Path(__file__).with_name("signalled.py")), str(at_step), str(to_rank)]
        return self.call(command, self.env)

    def python(self, code: str, *args: object) -> subprocess.CompletedProcess[str]:
        """Run a snippet that imports the trainers' shared modules as a trainer does."""
        env = {**self.env, "PYTHONPATH": str(TRAINERS)}
        command = [sys.executable, "-c", code, *map(str, args)]
        return self.call(command, env)

    def begin(self, command: list[str], env: dict[str, str]) -> subprocess.Popen[str] | WarmProcess:
        """Start `python …` and do not wait for it."""
        if self.warm is not None and self.warm.is_as_warm(env):
            return self.warm.start(command, env)
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=env, text=True, stdout=pipe, stderr=pipe)

    def call(self, command: list[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
        """Run `python …` to its end."""
        if self.warm is not None and self.warm.is_as_warm(env):
            return self.warm.run(command, env, TIMEOUT_S)
        return subprocess.run(command, env=env, text=True, capture_output=True, timeout=TIMEOUT_S)


@pytest.fixture(scope="session")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trainer]:
    cache = tmp_path_factory.mktemp("trainers")
    allotted = ("CUDA_", "SLURM_", "TORCH", "RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_")
    env = {key: value for key, value in os.environ.items() if not key.startswith(allotted)}
    env |= {"HOME": str(cache), "COACH_HOME": str(cache), "OMP_NUM_THREADS": "1", "SCRATCH": str(cache)}
    env |= {
        "TORCHINDUCTOR_COMPILE_THREADS": "1"
    }  # else each training starts two more processes that import torch
    with WarmPython(env) as warm:
        yield Trainer(cache / "cache", env, warm)


def read_records(run_dir: Path, rank: int = 0) -> list[dict[str, Any]]:
    """All records of a rank; a NaN that is not a string makes this fail, as JSON has none."""
    lines = (run_dir / "metrics" / f"rank-{rank}.jsonl").read_text().splitlines()
    return [json.loads(line, parse_constant=_refuse) for line in lines]


def steps_in(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [record for record in records if "event" not in record]


def event_in(records: list[dict[str, Any]], event: str) -> dict[str, Any]:
    """The last event of that name."""
    return [record for record in records if record.get("event") == event][-1]


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")
