"""What one look of all rules costs at 64 ranks and 512 GPUs: the engine alone, without reading anything.

`python benchmarks/diagnosis_tick.py` prints milliseconds of processor time of the median and the slowest of some ticks, for a job at work and for one whose
GPUs all wait, and the rules that cost most.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter

from coach.model.history import History
from coach.model.metrics import Step
from coach.model.snapshot import TargetSnapshot
from coach.model.telemetry import GpuHealth, GpuLink, GpuSample, HostSample, TelemetrySample
from coach.rules.engine import Engine
from coach.rules.registry import build

NUM_NODES, GPUS_PER_NODE, NUM_RANKS = 64, 8, 64
SECONDS, STEP_S, NUM_TICKS = 260, 0.0625, 15
BEGIN_S = 1_795_236_000.0


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
    """Print what ticks cost while data go on coming in, and which rules fire."""
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
        f"{title}: median {statistics.median(costs):.1f} ms, slowest {max(costs):.1f} ms a tick; {len(rules)} rules, found: {found}"
    )
    alone: Counter[str] = Counter()
    for rule in rules:
        begin = time.thread_time()
        list(rule.check(snapshot, history))
        alone[rule.code] = round(1e6 * (time.thread_time() - begin))
    print("   most: " + ", ".join(f"{code} {cost / 1000:.1f} ms" for code, cost in alone.most_common(5)))


if __name__ == "__main__":
    print(f"{NUM_RANKS} ranks x 8 metrics, {NUM_NODES * GPUS_PER_NODE} GPUs, samples each second")
    measure("at work", 93.0, 0.01)
    measure("all wait for data", 12.0, 0.7)
