"""Scripted telemetry of jobs with few and with many GPUs."""

from __future__ import annotations

import math

from coach.lookback.history import History
from coach.model.training.metrics import Step
from coach.model.training.telemetry import GpuEvent, GpuSample, HostSample, ProcessSample
from tests.tui.fake_session import NOW_S

SLOW = ("node01", 3)
"""Busy by its utilization, and drawing next to nothing."""


def make_gpu(node: str, gpu: int, time_s: float, **changes: object) -> GpuSample:
    values: dict[str, object] = {
        "name": "NVIDIA H100 80GB HBM3",
        "utilization_pct": 97.0,
        "memory_used_mib": 61440.0,
        "memory_total_mib": 81920.0,
        "power_w": 110.0 if (node, gpu) == SLOW else 500.0 + 20 * math.sin(time_s),
        "power_limit_w": 700.0,
        "temperature_c": 60.0 + gpu,
        "sm_clock_mhz": 1755.0,
        "max_sm_clock_mhz": 1980.0,
        "clocks_event_reasons": (),
    }
    return GpuSample(node, time_s, gpu, f"GPU-{node}-{gpu}", **{**values, **changes})  # type: ignore[arg-type]  # a test changes any field


def make_gpu_job(num_nodes: int = 1, per_node: int = 8, num_samples: int = 60) -> History:
    """A sample of everything each second, and a loss twice a second; an Xid on the slow GPU."""
    history = History()
    history.add_samples([GpuEvent(SLOW[0], NOW_S - 200, SLOW[1], None, 79)])
    for step in range(1, 2 * num_samples):
        at_s = NOW_S - num_samples + step / 2
        history.add_steps([Step(0, step, at_s, 1, 2.3 * math.exp(-step / 80), 0.05, 64, 128, 0.01, 0.1)])
    for node in (f"node{index + 1:02}" for index in range(num_nodes)):
        for before_s in range(num_samples, 0, -1):
            history.add_samples(make_gpu(node, gpu, NOW_S - before_s) for gpu in range(per_node))
        history.add_samples(
            [HostSample(node, NOW_S - 1, 80.0, 16, num_gpus=per_node, num_gpus_allotted=per_node)]
        )
        first = (int(node[4:]) - 1) * per_node
        history.add_samples(
            ProcessSample(
                node,
                NOW_S - 1,
                4000 + gpu,
                "python3.11",
                first + gpu,
                98.0,
                5200.0,
                61000.0,
                gpu,
                44,
                gpus=(gpu,),
            )
            for gpu in range(per_node)
        )
    return history
