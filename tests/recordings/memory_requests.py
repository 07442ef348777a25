"""Make `hosts/above-request` and `hosts/healthy-…` again: real jobs on a real Slurm that does not enforce the
request for memory, under `coach run`.

    python tests/recordings/memory_requests.py [NAME…]

Needs root and Slurm's programs; boots the tests' own cluster. Each job has one of the node's cores, except
the one that has the node alone.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
sys.path.insert(0, str(REPOSITORY))

from coach import runs  # noqa: E402 (found by the line above)
from tests.cluster.slurm import SlurmCluster  # noqa: E402 (found by the line above)
from tests.ordinary_user import make_open_directory  # noqa: E402 (found by the line above)

SMALL_DEFAULT = "PartitionName=small-default Nodes=ALL DefMemPerCPU=20 State=UP"
GROWING = """import time
kept = []
for step in range(8):
    kept.append(bytearray(b"x") * (100 * 2**20))
    print(f"step {step} loss {1 / (step + 1):.3f}", flush=True)
    time.sleep(1)
time.sleep(3)
print("training done")
"""
MAPPING = """import mmap, time
with open("data.bin", "wb") as file:
    for _ in range(90):
        file.write(b"x" * 10_000_000)
with open("data.bin", "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
    total = sum(data[place] for place in range(0, len(data), 4096))
    time.sleep(4)
print("training done", total)
"""
SHARING = """import os, time
loaded = bytearray(b"x") * (400 * 2**20)
for _ in range(2):
    if os.fork() == 0:
        total = sum(loaded[place] for place in range(0, len(loaded), 4096))
        time.sleep(6)
        os._exit(0)
time.sleep(7)
print("training done")
"""
JOBS = {
    "above-request": (GROWING, ("--mem=600M",)),
    "healthy-within-request": (GROWING, ("--mem=1000M",)),
    "healthy-mapped-file": (MAPPING, ("--mem=600M",)),
    "healthy-shared-pages": (SHARING, ("--mem=600M",)),
    "healthy-all-memory": (GROWING, ("--mem=0",)),
    "healthy-node-alone": (GROWING, ("--exclusive", "--partition=small-default")),
}
"""Folder → its program and the options of sbatch."""


def make(slurm: SlurmCluster, name: str) -> None:
    """Run one job to its end, and keep what a diagnosis reads of it."""
    program, options = JOBS[name]
    folder = slurm.directory / name
    folder.mkdir()
    (folder / "train.py").write_text(program)
    run_dir = folder / "run"
    script = (
        f"#!/bin/bash\nexport PYTHONPATH={REPOSITORY} COACH_AS_ROOT=1\n"
        f"{sys.executable} -m coach run --run-dir {run_dir} -- {sys.executable} -u train.py\n"
    )
    job = slurm.submit(
        script, f"--output={folder}/job.log", f"--chdir={folder}", "--nodes=1", *options, as_root=True
    )
    slurm.wait_state(job, "COMPLETED", timeout_s=120)
    told = json.loads((run_dir / "run.json").read_text())
    kept = ("schema", "recipe", "parameters", "resources", "backend", "job_id", "created_time_s")
    target = HERE / "hosts" / name
    shutil.rmtree(target, ignore_errors=True)
    (target / "telemetry").mkdir(parents=True)
    for file in (run_dir / "telemetry").glob("*.jsonl"):
        lines = file.read_text().splitlines(keepends=True)
        lines = [line for line in lines if json.loads(line)["kind"] in ("host", "process")]
        (target / "telemetry" / file.name).write_text("".join(lines))
    record = {key: told[key] for key in (*kept, "started_time_s", "ended_time_s", "state")}
    runs.write_json(target / "run.json", {"run_id": f"20261126-120000-{name}-0000", **record})


def main() -> None:
    slurm = SlurmCluster(make_open_directory("memory-requests"), more_conf=SMALL_DEFAULT)
    slurm.start()
    try:
        for name in sys.argv[1:] or JOBS:
            make(slurm, name)
            sys.stdout.write(f"{name}\n")
    finally:
        slurm.stop()
        shutil.rmtree(slurm.directory)


if __name__ == "__main__":
    main()
