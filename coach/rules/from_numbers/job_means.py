"""Means over a whole ended job, from the site's jobstats: evidence where no sampler ran.

Such a mean includes start-up and shutdown and has no course over time. A rule therefore requires a long
enough job, lowers its confidence, and names the source of the number in its evidence.
"""

from __future__ import annotations

from dataclasses import dataclass

from coach.model.slurm.accounting import GpuMeans, NodeMeans
from coach.model.snapshot import TargetSnapshot
from coach.rules.base import Threshold

MEAN = "(jobstats, mean over the job)"
PEAK = "(jobstats, peak over the job)"
CONFIDENCE = 0.7
MIN_MEAN_S = Threshold(
    1800,
    "seconds",
    "a mean over a whole job, as jobstats reports it, includes the start of the job",
)


@dataclass(frozen=True, slots=True)
class GpuMean:
    """The mean of one GPU over a whole job."""

    node: str
    means: GpuMeans
    mean_pct: float

    @property
    def gpu(self) -> int:
        return self.means.gpu

    @property
    def memory_share(self) -> float | None:
        """Peak memory use as a share of the GPU's memory, 0 to 1; None if not measured."""
        used, total = self.means.memory_used_mib, self.means.memory_total_mib
        return used / total if used is not None and total else None


def gpu_means(snapshot: TargetSnapshot, min_s: float) -> list[GpuMean]:
    """One mean for each GPU with a reported utilization. Empty for a job that still runs or was shorter than
    `min_s`."""
    return [
        GpuMean(node.node, gpu, gpu.utilization_pct)
        for node in node_means(snapshot, min_s)
        for gpu in node.gpus
        if gpu.utilization_pct is not None
    ]


def node_means(snapshot: TargetSnapshot, min_s: float) -> tuple[NodeMeans, ...]:
    """All nodes of an ended job that coach did not launch and that ran for at least `min_s` seconds; else
    empty."""
    summary = snapshot.summary
    if summary is None or snapshot.run is not None or not snapshot.has_ended:
        return ()
    if summary.time_s is None or summary.time_s < min_s:
        return ()
    return summary.nodes


def peaks_of_memory(nodes: tuple[NodeMeans, ...]) -> list[tuple[float, float]]:
    """(peak MiB, allotted MiB) of each node. Empty if the value of any node is missing."""
    told = [
        (node.memory_used_mib, node.memory_allotted_mib)
        for node in nodes
        if node.memory_used_mib is not None and node.memory_allotted_mib
    ]
    return told if len(told) == len(nodes) else []


def cpu_means(snapshot: TargetSnapshot, min_s: float) -> list[tuple[float, int]]:
    """(CPU use in percent, number of CPUs) of each node. Empty if the value of any node is missing."""
    nodes = node_means(snapshot, min_s)
    time_s = snapshot.summary.time_s if snapshot.summary is not None else None
    told = [
        (100.0 * node.cpu_time_s / (time_s * node.num_cpus), node.num_cpus)
        for node in nodes
        if node.cpu_time_s is not None and node.num_cpus and time_s
    ]
    return told if len(told) == len(nodes) else []
