"""Measure the cost of sampling eight GPUs every second, and the time to the first sample: coach's sampler,
nvitop's collector and gpustat, in one run.

    python -m venv ENV && ENV/bin/pip install nvidia-ml-py==13.615.71 nvitop==1.7.2 gpustat==1.1.1
    ENV/bin/python benchmarks/sampler.py [SECONDS]

All three run at the same time, each in a process of its own, under the same interpreter, over the same NVML
stand-in (so a C compiler is needed), beside a job of 24 processes of which 16 are on a GPU. The stand-in
answers at once: a driver takes longer, mostly without using the caller's CPU time. The budget of coach's
sampler: its first sample within 0.2 s, 0.5 % of one core, 40 MB.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.nvml.stand_in import NvmlStandIn  # noqa: E402 (the repository is on the path only now)

NUM_GPUS = 8
NUM_PROCESSES = 24
WARM_UP_S = 5.0  # its start is not its pace

# Like coach's sampler, both look once a second and append one line of JSON.
NVITOP = """
import json, sys, time
from nvitop import Device, ResourceMetricCollector
collector = ResourceMetricCollector(Device.all(), root_pids={int(sys.argv[2])}, interval=1.0)
with open(sys.argv[1], "w", buffering=1) as file, collector("sample"):
    while True:
        print(json.dumps(collector.collect()), file=file)
        time.sleep(1.0)
"""
GPUSTAT = """
import json, sys, time
from gpustat import GPUStatCollection
with open(sys.argv[1], "w", buffering=1) as file:
    while True:
        print(json.dumps(GPUStatCollection.new_query().jsonify(), default=str), file=file)
        time.sleep(1.0)
"""


@dataclass
class Contender:
    """One of the three, running."""

    name: str
    process: subprocess.Popen[bytes]
    output: Path
    started_s: float
    first_sample_s: float | None = None
    cpu_s: float = 0.0

    def look(self) -> None:
        """Note the first sample."""
        if self.first_sample_s is None and self.output.exists() and self.output.stat().st_size:
            self.first_sample_s = time.monotonic() - self.started_s

    def used_cpu_s(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss_mb(self) -> float:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def start(name: str, command: list[str], output: Path, env: dict[str, str]) -> Contender:
    """Start one and wait for its first sample, undisturbed by the others' starts."""
    contender = Contender(
        name, subprocess.Popen([sys.executable, *command], env=env), output, time.monotonic()
    )
    while contender.first_sample_s is None and contender.process.poll() is None:
        contender.look()
        time.sleep(0.005)
    return contender


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        (folder / "telemetry").mkdir()
        stand_in = NvmlStandIn(folder / "nvml")
        env = {**os.environ, **stand_in.env}
        job = [subprocess.Popen(["sleep", "86400"]) for _ in range(NUM_PROCESSES)]
        stand_in.set_gpus(
            {"util": 90, "used_mib": 40000, "process": [f"{job[2 * gpu + n].pid}:20000" for n in (0, 1)]}
            for gpu in range(NUM_GPUS)
        )
        pid = str(os.getpid())
        sampler = [str(ROOT / "coach/node"), "sample", "--run-dir", text, "--node", "n", "--pid", pid]
        contenders = []
        try:
            for name, command, output in (
                ("coach sample", sampler, folder / "telemetry/n.jsonl"),
                ("nvitop", ["-c", NVITOP, str(folder / "nvitop"), pid], folder / "nvitop"),
                ("gpustat", ["-c", GPUSTAT, str(folder / "gpustat")], folder / "gpustat"),
            ):
                contenders.append(start(name, command, output, env))
            time.sleep(WARM_UP_S)
            begin_s, before = time.monotonic(), [contender.used_cpu_s() for contender in contenders]
            sizes = [contender.output.stat().st_size for contender in contenders]
            time.sleep(seconds)
            elapsed_s = time.monotonic() - begin_s
            print(
                f"{NUM_GPUS} GPUs, {NUM_PROCESSES} processes, {elapsed_s:.0f} s, Python "
                f"{sys.version.split()[0]}"
            )
            print(f"{'':14}{'first sample':>13}{'of one core':>13}{'memory':>10}{'written':>12}")
            for contender, cpu_s, size in zip(contenders, before, sizes, strict=True):
                share = (contender.used_cpu_s() - cpu_s) / elapsed_s
                rate = (contender.output.stat().st_size - size) / elapsed_s / 1e3
                print(
                    f"{contender.name:14}{contender.first_sample_s or float('nan'):>11.2f} s{share:>13.2%}"
                    f"{contender.rss_mb():>7.1f} MB{rate:>7.1f} kB/s"
                )
        finally:
            for process in (*(contender.process for contender in contenders), *job):
                process.kill()
                process.wait()


if __name__ == "__main__":
    main()
