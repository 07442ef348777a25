"""DAT006: the training waits for storage, and meanwhile no task on the node runs."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit, Severity, Subject
from coach.model.snapshot import TargetSnapshot
from coach.rules.base import Need, Rule, Threshold
from coach.rules.from_numbers.telemetry_windows import (
    WINDOW,
    gpu_uses,
    host_window,
    means_of,
    use_meanwhile,
    uses_by_node,
)


class SlowStorage(Rule):
    """The training waits for storage.

    What it sees
        The kernel's I/O stall on the node: the share of time in which all tasks waited for reads and writes
        at once, over the newest window of training, while the GPUs there have little to do. The finding also
        shows the network file systems that the node used, with the time of a request.
    Why it matters
        If the file system is the limit, neither more workers nor more CPUs help.
    When it stays silent
        While the GPUs are busy; without GPUs; if the kernel does not report pressure; in checkpoints,
        evaluation and start-up.
    What to do
        Copy the data to the node's own disk before the training (the recipe `staged`), in few large files
        instead of many small ones.
    Sources
        SageMaker Debugger's IOBottleneck; kernel documentation, pressure stall information; datapath-doctor's
        latency bands (15 and 50 ms).
    """

    code = "DAT006"
    name = "slow-storage"
    cause = "slow_storage"
    severity = Severity.WARNING
    needs = (frozenset({Need.GPU_TELEMETRY, Need.HOST_TELEMETRY}),)
    keep_s = 10.0
    stall_pct = Threshold(25, "percent of the time", "for a quarter of the time every task stood still")
    gpu_pct = Threshold(70, "percent", "GPUs that are busier do not wait for storage")
    window_s, min_samples, startup_s = WINDOW

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        uses = gpu_uses(snapshot, history, self.values)
        for node, of_node in uses_by_node(uses).items():
            hosts = host_window(snapshot, history, node, self.values)
            means = use_meanwhile(of_node, hosts)
            if not means or fmean(means) >= self.gpu_pct:
                continue
            stall = means_of(hosts, "io_stall_pct")
            if stall is None or stall < self.stall_pct:
                continue
            mounts = sorted(history.mounts(node), key=lambda mount: -(mount.wait_ms or 0.0))
            yield Hit(
                summary=(
                    f"The training waits for storage: {stall:.0f} % of the time all tasks on {node} waited "
                    "for I/O"
                ),
                evidence=(
                    Evidence.percent(
                        f"share of the time in which all tasks of {node} waited for I/O, mean of "
                        f"{len(hosts)} samples",
                        stall,
                    ),
                    Evidence.percent("utilization of its GPUs meanwhile, mean", fmean(means)),
                    *(
                        Evidence(
                            f"{mount.path} ({mount.type or 'network file system'}): time of a request",
                            value=mount.wait_ms,
                            unit="ms",
                        )
                        for mount in mounts[:3]
                        if mount.wait_ms is not None
                    ),
                ),
                confidence=0.85 if mounts and (mounts[0].wait_ms or 0.0) >= 15 else 0.75,
                subject=Subject(node=node),
                fixes=(
                    Fix(
                        "Copy the data to the node's own disk first (as the recipe `staged` does), in "
                        "few large files"
                    ),
                ),
                since_s=hosts[0].time_s,
            )
