"""What a site's jobstats measured of an ended job, as the rules judge it where no sampler ran.

One number stands for all of the job: its start and its end are in it, and it says nothing about when. So a
rule asks for a job that was long enough, is less sure, and says in its evidence where the number is from.
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
    "min_mean_s",
    1800,
    "seconds",
    "a mean over a whole job, as jobstats tells it, has the start of the job in it",
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
        """Of the GPU's memory, at most at once."""
        used, total = self.means.memory_used_mib, self.means.memory_total_mib
        return used / total if used is not None and total else None


def gpu_means(snapshot: TargetSnapshot, min_s: float) -> list[GpuMean]:
    """Of each GPU whose utilization jobstats told; empty for a job that goes on or was short."""
    return [
        GpuMean(node.node, gpu, gpu.utilization_pct)
        for node in node_means(snapshot, min_s)
        for gpu in node.gpus
        if gpu.utilization_pct is not None
    ]


def node_means(snapshot: TargetSnapshot, min_s: float) -> tuple[NodeMeans, ...]:
    """All nodes of a job that coach did not launch, has ended and ran for so long; empty for any other."""
    summary = snapshot.summary
    if summary is None or snapshot.run is not None or not snapshot.has_ended:
        return ()
    if summary.time_s is None or summary.time_s < min_s:
        return ()
    return summary.nodes


def peaks_of_memory(nodes: tuple[NodeMeans, ...]) -> list[tuple[float, float]]:
    """MiB used at most and allotted, of each node; empty where a node does not tell it."""
    told = [
        (node.memory_used_mib, node.memory_allotted_mib)
        for node in nodes
        if node.memory_used_mib is not None and node.memory_allotted_mib
    ]
    return told if len(told) == len(nodes) else []


def cpu_means(snapshot: TargetSnapshot, min_s: float) -> list[tuple[float, int]]:
    """Percent of its CPUs, and their number, of each node; empty where a node does not tell it."""
    nodes = node_means(snapshot, min_s)
    time_s = snapshot.summary.time_s if snapshot.summary is not None else None
    told = [
        (100.0 * node.cpu_time_s / (time_s * node.num_cpus), node.num_cpus)
        for node in nodes
        if node.cpu_time_s is not None and node.num_cpus and time_s
    ]
    return told if len(told) == len(nodes) else []
