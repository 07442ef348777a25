"""Make the recordings of this folder again, by real programs that really fail: `python
tests/recordings/make_recordings.py [NAME…]`.

Needs torch (the `train` extra) and gcc. Names of this machine and its paths are struck from what is kept.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
sys.path.insert(0, str(REPOSITORY))

from coach import runs  # noqa: E402 (found by the line above)
from tests.nvml.stand_in import NvmlStandIn  # noqa: E402 (found by the line above)

KEPT = ("run.json", "exit.json", "stdout.log", "stderr.log", "metrics/*.jsonl", "telemetry/*.jsonl")
SMALL = {
    "max_steps": 60,
    "num_train_samples": 2000,
    "eval_every_epoch": "false",
    "num_workers": 1,
    "width": 16,
    "batch_size": 16,
}
GPU = {"name": "NVIDIA_A100-SXM4-80GB", "total_mib": 81920, "limit_mw": 400_000}


def launch(home: Path, *options: str) -> Path:
    """Launch the baseline on the local backend and wait for its end. Returns the run directory."""
    settings = [word for key, value in SMALL.items() for word in ("--set", f"{key}={value}")]
    command = [
        sys.executable,
        "-m",
        "coach",
        "launch",
        "baseline",
        "--backend",
        "local",
        "--wait",
        "--format",
        "json",
    ]
    done = subprocess.run(
        [*command, *settings, *options],
        env={**os.environ, "COACH_HOME": str(home), "COACH_AS_ROOT": "1"},
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        check=False,
    )
    return Path(json.loads(done.stdout)["run_dir"])


def make_healthy(home: Path) -> Path:
    return launch(home, "--set", "lr=0.05")


def make_nan(home: Path) -> Path:
    """A learning rate far out of range: NaN at the second step with any optimizer."""
    return launch(home, "--set", "lr=1e20")


def make_host_oom(home: Path) -> Path:
    """Less memory than importing torch takes."""
    return launch(home, "--mem", "250M")


def make_refused(home: Path) -> Path:
    """The launch asks for real data that the node does not see."""
    (home / "config.toml").write_text('data_dir = "/scratch/data"\n')
    return launch(home)


def make_too_many_workers(home: Path) -> Path:
    """Sixteen workers on a machine with two CPUs."""
    return launch(home, "--gpus", "0", "--set", "num_workers=16")


def make_small_batch(home: Path) -> Path:
    """Two samples in each step."""
    return launch(home, "--gpus", "0", "--set", "batch_size=2", "--set", "width=64", "--set", "max_steps=150")


def make_input_bound(home: Path) -> Path:
    return _train(home, "input-bound", "slow_loader.py", "0.015")


def make_input_ready(home: Path) -> Path:
    return _train(home, "input-ready", "slow_loader.py", "0")


def make_slowing_down(home: Path) -> Path:
    """All outputs so far are gone through in each step."""
    return _train(home, "slowing-down", "slowing_down.py", "kept")


def make_steady_pace(home: Path) -> Path:
    return _train(home, "steady-pace", "slowing_down.py", "running")


def _train(home: Path, name: str, program: str, argument: str) -> Path:
    run_dir = home / name
    run_dir.mkdir(parents=True)
    _write_run(run_dir, {"num_workers": 1, "batch_size": 16}, {"cpus_per_task": 8, "gpus_per_node": 0})
    subprocess.run([sys.executable, HERE / program, run_dir, argument], check=True)
    return run_dir


def _write_run(run_dir: Path, parameters: dict[str, int], resources: dict[str, int]) -> None:
    """The record of a run that coach did not launch itself."""
    record = {
        "schema": 1,
        "run_id": f"20261121-040000-{run_dir.name}-0000",
        "recipe": run_dir.name,
        "state": "COMPLETED",
    }
    record |= {
        "backend": "slurm",
        "parameters": parameters,
        "resources": {"num_nodes": 1, "nproc_per_node": 1, **resources},
    }
    runs.write_json(run_dir / "run.json", record)


def make_gpu_idle(home: Path) -> Path:
    """Two GPUs: one busy, the other almost idle."""
    return _sample(home, "gpu-idle", (93, 6))


def make_gpu_busy(home: Path) -> Path:
    return _sample(home, "gpu-busy", (93, 91))


def _sample(home: Path, name: str, utilizations: tuple[int, ...]) -> Path:
    """Two minutes and some of the real sampler, through the real NVML binding, on stand-in GPUs."""
    run_dir = home / name
    (run_dir / "telemetry").mkdir(parents=True)
    _write_run(run_dir, {"batch_size": 64}, {"cpus_per_task": 8, "gpus_per_node": 2})
    nvml = NvmlStandIn(home / f"nvml-{name}")
    command = [
        sys.executable,
        "-m",
        "coach",
        "sample",
        "--run-dir",
        run_dir,
        "--node",
        "node1",
        "--interval",
        "1",
    ]
    sampler = subprocess.Popen(command, cwd=REPOSITORY, env={**os.environ, **nvml.env})
    try:
        for second in range(130):
            shifts = (second * 7 % 5 - 2, second * 3 % 5 - 2)
            nvml.set_gpus(
                {
                    **GPU,
                    "util": max(0, util + shift),
                    "used_mib": 700 * util,
                    "power_mw": 55_000 + 3_000 * util,
                }
                for util, shift in zip(utilizations, shifts, strict=True)
            )
            time.sleep(1)  # the sampler's own pace
    finally:
        sampler.terminate()
        sampler.wait()
    return run_dir


MAKERS: dict[str, Callable[[Path], Path]] = {
    "healthy": make_healthy,
    "nan": make_nan,
    "host-oom": make_host_oom,
    "refused": make_refused,
    "too-many-workers": make_too_many_workers,
    "small-batch": make_small_batch,
    "input-bound": make_input_bound,
    "input-ready": make_input_ready,
    "slowing-down": make_slowing_down,
    "steady-pace": make_steady_pace,
    "gpu-idle": make_gpu_idle,
    "gpu-busy": make_gpu_busy,
}


def keep(run_dir: Path, target: Path, home: Path) -> None:
    """Copy the files that a diagnosis reads, without names of this machine."""
    shutil.rmtree(target, ignore_errors=True)
    struck = {
        str(run_dir): f"/scratch/runs/{run_dir.name}",
        str(home): "/scratch",
        str(REPOSITORY): "/home/user/coach",
    }
    struck |= {sys.prefix: "/home/user/venv", str(Path.home()): "/home/user"}
    node = socket.gethostname().split(".")[0]
    for pattern in KEPT:
        for file in sorted(run_dir.glob(pattern)):
            text = file.read_text()
            for old, new in struck.items():
                text = text.replace(old, new)
            text = re.sub(rf"(?<![\w.-]){re.escape(node)}(?![\w.-])", "node1", text).replace(
                '"user": "root"', '"user": "user"'
            )
            place = target / file.relative_to(run_dir).with_name(
                file.name.replace(f"{node}.jsonl", "node1.jsonl")
            )
            # Leave out other programs of this machine.
            text = "".join(line for line in text.splitlines(keepends=True) if '"kind":"process"' not in line)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)


def main() -> None:
    for name in sys.argv[1:] or MAKERS:
        with tempfile.TemporaryDirectory() as folder:
            home = Path(folder)
            keep(MAKERS[name](home), HERE / name, home)
        sys.stdout.write(f"{name}\n")


if __name__ == "__main__":
    main()
