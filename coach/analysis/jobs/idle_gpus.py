"""Decide if a job holds unused GPUs, and since when: the condition for running the user's own command.

Finding GPU003 reports it after two minutes. A command acts, so its condition is stricter: every GPU of the
job was measured just now, each is empty and idle, and no process of the job uses a GPU or the CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from coach.lookback.history import History
from coach.model.training.telemetry import GpuSample

EMPTY_MIB = 1024.0
"""MiB in use on an empty GPU: the driver holds some hundreds. More belongs to a process, even to one that
NVML hides."""
QUIET_CPU_PCT = 20.0
"""Percent of one CPU: shells, sleep and the sampler use less."""
FRESH_S = 90.0
"""Seconds. An older sample does not show the present."""


@dataclass(frozen=True, slots=True)
class IdleGpus:
    """All GPUs of a job are idle."""

    since_s: float
    is_start_seen: bool
    """False if they were idle from the first sample on: the true start is then not known."""
    newest_s: float
    nodes: tuple[str, ...]
    num_gpus: int


def idle_gpus(history: History, num_gpus: int | None, now_s: float) -> IdleGpus | None:
    """None if a GPU works or holds memory, if a process works, or if either is not known. `num_gpus` is the
    number of GPUs that the job has."""
    devices = [samples for key in history.gpus if (samples := history.gpu(*key))]
    if not devices or num_gpus is None or len(devices) < num_gpus:
        return None
    newest = [samples[-1] for samples in devices]
    nodes = tuple(sorted({sample.node for sample in newest}))
    is_idle = all(_is_empty(sample) and now_s - sample.time_s <= FRESH_S for sample in newest)
    if not is_idle or not all(_is_quiet(history, node, now_s) for node in nodes):
        return None
    since_s, is_start_seen = _since(devices)
    return IdleGpus(since_s, is_start_seen, max(sample.time_s for sample in newest), nodes, len(devices))


def _since(devices: Sequence[Sequence[GpuSample]]) -> tuple[float, bool]:
    """Time at which one of them was last seen at work, and True; if none ever was, the time of the first
    samples, and False."""
    busy_s = [sample.time_s for samples in devices for sample in samples if not _is_empty(sample)]
    return max(busy_s or [samples[0].time_s for samples in devices]), bool(busy_s)


def is_due(idle: IdleGpus, minutes: float, last_run_s: float | None) -> bool:
    """True if the command has to run: once for each period in which the GPUs are idle this long. A period
    that began before the last run, or may have, had its run."""
    if idle.newest_s - idle.since_s < 60.0 * minutes:
        return False
    return last_run_s is None or (idle.is_start_seen and idle.since_s > last_run_s)


def _is_empty(sample: GpuSample) -> bool:
    used_mib = sample.memory_used_mib
    return sample.utilization_pct == 0 and used_mib is not None and used_mib <= EMPTY_MIB


def _is_quiet(history: History, node: str, now_s: float) -> bool:
    """True if no process of the job on a node works. An empty or old list means that processes were not seen.
    The CPU use of a process that has just started, such as the `sleep` of a loop, is not known yet."""
    fresh = [each for each in history.processes(node) if now_s - each.time_s <= FRESH_S]
    cpu_pct = [each.cpu_pct for each in fresh if each.cpu_pct is not None]
    is_on_gpu = any(each.gpus or each.gpu_memory_mib for each in fresh)
    return bool(cpu_pct) and sum(cpu_pct) < QUIET_CPU_PCT and not is_on_gpu
