"""Shared by the tests of node code: its start by path, and a run directory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.nvml.fixtures import nvml_stand_in as nvml_stand_in

NODE = Path(__file__).parents[2] / "coach" / "node"

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def clean_env(tmp_path: Path) -> dict[str, str]:
    """An environment outside Slurm, with coach's own files in a temporary place."""
    foreign = ("SLURM", "PET_", "TORCHELASTIC", "CUDA_VISIBLE", "COACH_", "RANK", "NVML_")
    env = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
    return {**env, "COACH_HOME": str(tmp_path / "home"), "SLURMD_NODENAME": "node1"}


@pytest.fixture
def start(clean_env: dict[str, str]) -> Iterator[Start]:
    """Start node code by path, as a job does. Processes that still run at the end of the test are killed."""
    started: list[subprocess.Popen[str]] = []

    def start_one(
        *arguments: str, env: Mapping[str, str] | None = None, python: str = sys.executable, **options: Any
    ) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [python, str(NODE), *arguments],
            env={**clean_env, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )
        started.append(process)
        return process

    yield start_one
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def telemetry(run_dir: Path, node: str = "node1") -> list[dict[str, Any]]:
    """The records of a node so far."""
    path = run_dir / "telemetry" / f"{node}.jsonl"
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


def sampled(start: Start, run_dir: Path, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    """A sampler that writes to a run directory, twenty samples a second."""
    (run_dir / "telemetry").mkdir(parents=True)
    return start(
        "sample",
        "--run-dir",
        str(run_dir),
        "--interval",
        "0.05",
        "--pid",
        str(os.getpid()),
        *arguments,
        **options,
    )


def of_kind(run_dir: Path, kind: str) -> list[dict[str, Any]]:
    """The records of one kind so far."""
    return [record for record in telemetry(run_dir) if record["kind"] == kind]


def children_of(pid: int) -> dict[int, str]:
    """The children of a process, with their command lines."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text()
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if int(stat.rpartition(")")[2].split()[1]) == pid:
            found[int(entry.name)] = command
    return found


def sampler_of(pid: int) -> int | None:
    """The sampler that a supervisor started."""
    found = [
        child for child, command in children_of(pid).items() if " sample " in command and str(NODE) in command
    ]
    return found[0] if found else None
