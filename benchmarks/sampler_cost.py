"""What the sampler costs: CPU time and memory at 1 Hz beside eight GPUs (the NVML stand-in) and a job of several processes.

    python benchmarks/sampler_cost.py [SECONDS]

Budget: 0.5 % of one core, 40 MB. The stand-in answers at once; a driver takes longer, mostly without using this process's CPU time.
Printed by `python benchmarks/sampler_cost.py 40` on two shared, busy cores, Python 3.11 (CPU time has a resolution of 0.025 % there):

    0.17% of a core, 21.4 MB, 3.8 kB/s (8 GPUs, 24 processes)
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.nvml.stand_in import NvmlStandIn  # noqa: E402 (the repository is on the path only now)

NUM_GPUS = 8
NUM_PROCESSES = 24


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _rss_mb(pid: int) -> float:
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    with tempfile.TemporaryDirectory() as folder:
        stand_in = NvmlStandIn(Path(folder) / "nvml")
        stand_in.set_gpus([{"util": 90 + gpu, "used_mib": 40000} for gpu in range(NUM_GPUS)])
        (Path(folder) / "telemetry").mkdir()
        job = [subprocess.Popen(["sleep", str(seconds + 30)]) for _ in range(NUM_PROCESSES)]
        command = [
            sys.executable,
            str(ROOT / "coach" / "node"),
            "sample",
            "--run-dir",
            folder,
            "--node",
            "node1",
        ]
        sampler = subprocess.Popen([*command, "--pid", str(os.getpid())], env={**os.environ, **stand_in.env})
        try:
            time.sleep(3)  # its start is not its pace
            begin, begin_cpu_s = time.monotonic(), _cpu_s(sampler.pid)
            time.sleep(seconds)
            share = (_cpu_s(sampler.pid) - begin_cpu_s) / (time.monotonic() - begin)
            num_bytes = (Path(folder) / "telemetry" / "node1.jsonl").stat().st_size
            print(
                f"{share:.2%} of a core, {_rss_mb(sampler.pid):.1f} MB, {num_bytes / (seconds + 3) / 1e3:.1f} kB/s"
                f" ({NUM_GPUS} GPUs, {NUM_PROCESSES} processes)"
            )
        finally:
            for process in (sampler, *job):
                process.kill()
                process.wait()


if __name__ == "__main__":
    main()
