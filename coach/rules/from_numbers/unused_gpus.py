"""Measures if the GPUs that a job holds were never used: the proof for rules about programs on the CPU."""

from __future__ import annotations

from coach.lookback.history import History
from coach.model.judging.finding import Evidence
from coach.model.snapshot import TargetSnapshot
from coach.rules.base import Threshold
from coach.rules.from_numbers.job_means import MEAN, MIN_MEAN_S, gpu_means

UNUSED_S = Threshold(300, "seconds", "a program may prepare its data for minutes before it first uses a GPU")
EMPTY_MIB = Threshold(
    1024,
    "MiB of a GPU",
    "the driver holds some hundreds; more belongs to a process, even to one that NVML hides",
)
_MIN_SAMPLES = 30


def proof_of_unused(
    snapshot: TargetSnapshot, history: History, unused_s: float, empty_mib: float
) -> Evidence | None:
    """The evidence if every measured GPU was unused for the whole time of at least `unused_s` seconds: no
    kernel ran, and no process held memory. None if a GPU was used, or if that was not measured."""
    if not history.gpus:
        return _by_summary(snapshot)
    spans = []
    for node, gpu in history.gpus:
        samples = [s for s in history.gpu(node, gpu) if s.utilization_pct is not None]
        is_used = any(s.utilization_pct or (s.memory_used_mib or 0) > empty_mib for s in samples)
        if is_used or len(samples) < _MIN_SAMPLES:
            return None
        spans.append(samples[-1].time_s - samples[0].time_s)
    if min(spans) < unused_s or _has_process_on_gpu(history):
        return None
    return Evidence("the GPUs were unused, for at least", value=round(min(spans)), unit="seconds")


def _has_process_on_gpu(history: History) -> bool:
    return any(
        process.gpus or process.gpu_memory_mib
        for node in history.nodes
        for process in history.processes(node)
    )


def _by_summary(snapshot: TargetSnapshot) -> Evidence | None:
    means = gpu_means(snapshot, MIN_MEAN_S.default)
    if not means or any(gpu.mean_pct for gpu in means):
        return None
    return Evidence(f"the GPUs were unused {MEAN}", value=0.0, unit="%")
