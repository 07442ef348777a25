"""Trainers are started as a job starts them: as processes, by their path, with their flags. Nothing of torch is imported into pytest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

TRAINERS = Path(__file__).parents[2] / "trainers"
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

    def command(self, name: str, run_dir: Path, ranks: int = 1, **flags: object) -> list[str]:
        command = [sys.executable]
        if ranks > 1:
            command += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
            command += ["--signals-to-handle=SIGTERM,SIGINT,SIGUSR1"]
        given = {**SMALL, "run_dir": run_dir, "cache_dir": self.cache_dir, "gpus_per_node": 0, **flags}
        flags_given = (f"--{key}={value}" for key, value in given.items() if value is not None)
        return [*command, str(TRAINERS / name), *flags_given]

    def start(self, name: str, run_dir: Path, ranks: int = 1, **flags: object) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen(
            self.command(name, run_dir, ranks, **flags), env=self.env, text=True, stdout=pipe, stderr=pipe
        )

    def run(
        self, name: str, run_dir: Path, ranks: int = 1, **flags: object
    ) -> subprocess.CompletedProcess[str]:
        return self._call(self.command(name, run_dir, ranks, **flags))

    def run_until_signal(
        self, at_step: int, name: str, run_dir: Path, ranks: int = 1, to_rank: int = 0, **flags: object
    ) -> subprocess.CompletedProcess[str]:
        """Run a trainer in which one rank gets SIGTERM at the end of that step."""
        command = self.command(name, run_dir, ranks, **flags)
        place = command.index(str(TRAINERS / name))
        command[place:place] = [str(Path(__file__).with_name("signalled.py")), str(at_step), str(to_rank)]
        return self._call(command)

    def _call(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, env=self.env, text=True, capture_output=True, timeout=120)

    def python(self, code: str, *args: object) -> subprocess.CompletedProcess[str]:
        """Run a snippet that imports the trainers' shared modules as a trainer does."""
        env = {**self.env, "PYTHONPATH": str(TRAINERS)}
        command = [sys.executable, "-c", code, *map(str, args)]
        return subprocess.run(command, env=env, text=True, capture_output=True, timeout=120)


@pytest.fixture(scope="session")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    cache = tmp_path_factory.mktemp("trainers")
    allotted = ("CUDA_", "SLURM_", "TORCH", "RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_")
    env = {key: value for key, value in os.environ.items() if not key.startswith(allotted)}
    env |= {"HOME": str(cache), "COACH_HOME": str(cache), "OMP_NUM_THREADS": "1", "SCRATCH": str(cache)}
    return Trainer(cache / "cache", env)


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
