"""Measure the speed of a diagnosis: reading logs, beside `grep -c -E` with the same literals, and one look of
all rules at a large job.

`python benchmarks/diagnosis.py [MB]` writes logs of that size (200) into a temporary directory and prints
MB/s of the scanner alone, of `grep` and their ratio, and wall-clock seconds, processor seconds and peak
memory of `coach check` on the same file: medians of three. Then milliseconds of processor time per tick of
the engine at 64 ranks and 512 GPUs, for a job at work and for one whose GPUs all wait, and the rules that
cost most.
"""

from __future__ import annotations

import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from coach.lookback.history import History
from coach.model.snapshot import TargetSnapshot
from coach.model.training.metrics import Step
from coach.model.training.telemetry import GpuHealth, GpuLink, GpuSample, HostSample, TelemetrySample
from coach.rules.engine import Engine
from coach.rules.registry import build, signatures
from coach.sources.logs.log_source import BITE_BYTES
from coach.sources.logs.scanner import LogScanner

NUM_TIMES = 3
NUM_NODES, GPUS_PER_NODE, NUM_RANKS = 64, 8, 64
SECONDS, STEP_S, NUM_TICKS = 260, 0.0625, 15
BEGIN_S = 1_795_236_000.0

_draw = random.Random(7)
_WORDS = ["".join(_draw.choices("abcdefghijklmnopqrstuvwxyz", k=_draw.randint(2, 9))) for _ in range(5000)]
_LITERALS = sorted({literal for signature in signatures(build()) for literal in signature.literals})
_STAMP = "2026-11-21 03:00:01 INFO train: step"


def _some(count: int) -> str:
    return " ".join(_draw.choices(_WORDS, k=count))


CASES: dict[str, Callable[[int], str]] = {
    "no metric in any line": lambda i: f"{_STAMP} {i}, 1234.5 samples/s, lr 0.05, data 0.001 s, epoch 3\n",
    "a loss in every line": lambda i: f"{_STAMP} {i}, 1234.5 samples/s, lr 0.05, loss {_draw.random():.4f}\n",
    "Error: and loss in every line": lambda i: (
        f"{_STAMP} {i} Error: none so far, loss is fine, {i * 7919} x\n"
    ),
    "progress without a newline": lambda i: (
        f"\r {i % 100}%|###    | {i}/10000 [00:01<01:00, 12.3it/s, loss={_draw.random():.3f}]"
    ),
    "one line": lambda i: f"abc Error: loss {i} and no end ",
    "no line like another": lambda i: f"{_some(15)}\n",
    "no line like another, and a loss in each": lambda i: (
        f"{_some(7)} loss {_draw.random():.4f} {_some(6)}\n"
    ),
    "no line like another, and one of all literals in each": lambda i: (
        f"{_some(7)} {_LITERALS[i % len(_LITERALS)]} {_some(6)}\n"
    ),
    "no line like another, and three literals in each": lambda i: f"{_some(7)} loss Error: inf {_some(6)}\n",
}


def write(path: Path, line: Callable[[int], str], num_bytes: int) -> None:
    """A log of about this size; its random text repeats after 30 MB, with its pieces in another order."""
    block = "".join(line(number) for number in range(300_000)).encode()
    with open(path, "wb") as file:
        while file.tell() < num_bytes:
            file.write(block[: num_bytes - file.tell()])


def scan_s(path: Path) -> float:
    scanner = LogScanner(signatures(build()), str(path))
    start = time.perf_counter()
    with open(path, "rb") as file:
        while data := file.read(BITE_BYTES):
            scanner.feed(data, is_more=True)
    scanner.flush()
    return time.perf_counter() - start


def grep_s(path: Path) -> float:
    pattern = "|".join(re.sub(r"([][\\.^$*+?(){}|])", r"\\\1", literal) for literal in _LITERALS)
    start = time.perf_counter()
    # Not to /dev/null: grep knows it, and would stop at the first match.
    subprocess.run(["grep", "-a", "-c", "-E", pattern, path], capture_output=True, check=False)
    return time.perf_counter() - start


def check_s(path: Path) -> tuple[float, float, float]:
    """Wall-clock seconds, seconds of the processor and peak MB of `coach check`."""
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "coach", "check", str(path), "--format", "json"], stdout=subprocess.DEVNULL
    )
    _, _, used = os.wait4(process.pid, 0)
    return time.perf_counter() - start, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def read_logs(num_megabytes: int) -> None:
    """Print a line for each kind of log."""
    print(f"{len(signatures(build()))} signatures, {len(_LITERALS)} literals, {num_megabytes} MB each")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "job.log")
        for name, line in CASES.items():
            write(path, line, num_megabytes * 1_000_000)
            scan = statistics.median(num_megabytes / scan_s(path) for _ in range(NUM_TIMES))
            grep = statistics.median(num_megabytes / grep_s(path) for _ in range(NUM_TIMES))
            wall, processor, peak = map(
                statistics.median, zip(*(check_s(path) for _ in range(NUM_TIMES)), strict=True)
            )
            print(
                f"{name:52} scanner {scan:5.0f} MB/s, grep {grep:5.0f} MB/s ({scan / grep:.2f})"
                f"   coach check {wall:5.1f} s, processor {processor:5.1f} s, {peak:4.0f} MB",
                flush=True,
            )


def fill(history: History, utilization: float, data_share: float, start: int, seconds: int) -> None:
    """Each second one sample of every GPU and node, and the steps of every rank with eight metrics."""
    for second in range(start, start + seconds):
        now = BEGIN_S + second
        samples: list[TelemetrySample] = []
        for node in range(NUM_NODES):
            name = f"node{node:02d}"
            samples.append(
                HostSample(name, now, cpu_pct=40.0, num_cpus=64, memory_used_mib=9e4, memory_limit_mib=5e5)
            )
            for gpu in range(GPUS_PER_NODE):
                samples.append(_gpu(name, now, gpu, utilization + (second * 7 + gpu) % 5))
                if second % 10 == 0:
                    samples.append(
                        GpuLink(name, now, gpu, None, 5, 5, 16, 16, num_nvlinks=18, num_active_nvlinks=18)
                    )
                    samples.append(GpuHealth(name, now, gpu, None, ecc_volatile_uncorrected=0))
        history.add_samples(samples)
        count = round(1 / STEP_S)
        history.add_steps(
            _step(rank, second * count + n, now + n * STEP_S, data_share)
            for n in range(count)
            for rank in range(NUM_RANKS)
        )


def _gpu(node: str, time_s: float, gpu: int, utilization: float) -> GpuSample:
    return GpuSample(
        node,
        time_s,
        gpu,
        f"GPU-{node}-{gpu}",
        utilization_pct=utilization,
        memory_used_mib=61_000.0,
        memory_total_mib=81_559.0,
        power_w=7.0 * utilization,
        power_limit_w=700.0,
        temperature_c=64.0,
        sm_clock_mhz=1755.0,
        max_sm_clock_mhz=1980.0,
        clocks_event_reasons=("sw_power_cap",),
    )


def _step(rank: int, number: int, time_s: float, data_share: float) -> Step:
    return Step(
        rank,
        number,
        time_s,
        epoch=0,
        loss=2.0 / (1 + number / 100),
        lr=0.1,
        num_samples=32,
        num_samples_global=32 * NUM_RANKS,
        data_time_s=STEP_S * data_share,
        step_time_s=STEP_S,
        grad_norm=1.0,
        memory_allocated_mib=50_000.0,
    )


def measure(title: str, utilization: float, data_share: float) -> None:
    """Print the cost of ticks while data keep coming in, and the rules that fire."""
    history, rules = History(), build()
    fill(history, utilization, data_share, 0, SECONDS)
    engine, costs = Engine(rules), []
    for tick in range(NUM_TICKS):
        fill(history, utilization, data_share, SECONDS + tick, 1)
        snapshot = TargetSnapshot("17", BEGIN_S + SECONDS + tick + 1)
        begin = time.thread_time()
        diagnosis = engine.diagnose(snapshot, history)
        costs.append(1000 * (time.thread_time() - begin))
    found = ", ".join(finding.rule for finding in diagnosis.findings) or "nothing"
    print(
        f"{title}: median {statistics.median(costs):.1f} ms, slowest {max(costs):.1f} ms a tick; "
        f"{len(rules)} rules, found: {found}"
    )
    alone: Counter[str] = Counter()
    for rule in rules:
        begin = time.thread_time()
        list(rule.check(snapshot, history))
        alone[rule.code] = round(1e6 * (time.thread_time() - begin))
    print("   most: " + ", ".join(f"{code} {cost / 1000:.1f} ms" for code, cost in alone.most_common(5)))


if __name__ == "__main__":
    read_logs(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
    print(f"{NUM_RANKS} ranks x 8 metrics, {NUM_NODES * GPUS_PER_NODE} GPUs, samples each second")
    measure("at work", 93.0, 0.01)
    measure("all wait for data", 12.0, 0.7)
