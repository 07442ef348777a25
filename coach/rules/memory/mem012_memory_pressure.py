"""MEM012: the node's memory is too small for its processes: they wait for memory, and pages go to swap."""

from __future__ import annotations

from collections.abc import Iterable

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit, Severity, Subject
from coach.model.snapshot import TargetSnapshot
from coach.rules.base import Need, Rule, Threshold
from coach.rules.from_numbers.telemetry_windows import host_window, means_of


class MemoryPressure(Rule):
    """The processes of a node wait for memory.

    What it sees
        The kernel's memory pressure on the node: the share of time in which all tasks waited for memory at
        once, over the newest two minutes of training. The finding also shows the memory that went to swap
        meanwhile.
    Why it matters
        The training becomes so slow that it looks like a hang. Next, the kernel may kill a process.
    When it stays silent
        If the kernel does not report pressure. On swap that is merely in use: unused pages do no harm there.
        The values cover the whole node, not only the job; the finding says so.
    What to do
        Use fewer DataLoader workers, a lower prefetch_factor or memory-mapped data. Or request more memory,
        or a whole node (`--exclusive`).
    Sources
        Kernel documentation, pressure stall information (full); systemd-oomd acts at 60 % over 30 s.
    """

    code = "MEM012"
    name = "memory-pressure"
    cause = "memory_pressure"
    severity = Severity.WARNING
    needs = (Need.HOST_TELEMETRY,)
    keep_s = 30.0
    stall_pct = Threshold(10, "percent of the time", "for a tenth of the time every task stood still")
    critical_stall_pct = Threshold(40, "percent of the time", "near to where systemd-oomd kills (60 %)")
    window_s = Threshold(120, "seconds", "long enough to leave out single bursts")
    min_samples = Threshold(20, "samples", "fewer may be chance", at_least=1)

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        for node in history.nodes:
            hosts = host_window(snapshot, history, node, self.values)
            stall = means_of(hosts, "memory_stall_pct")
            if stall is None or stall < self.stall_pct:
                continue
            first, last = hosts[0].swap_used_mib, hosts[-1].swap_used_mib
            evidence = [
                Evidence.percent(
                    f"share of the time in which all tasks of {node} waited for memory, mean of "
                    f"{len(hosts)} samples",
                    stall,
                )
            ]
            if first is not None and last is not None:
                evidence.append(
                    Evidence("more swap in use than at its start", value=last - first, unit="MiB")
                )
            if hosts[-1].memory_available_mib is not None:
                evidence.append(
                    Evidence("memory available on the node", value=hosts[-1].memory_available_mib, unit="MiB")
                )
            yield Hit(
                summary=f"Memory is short on {node}: {stall:.0f} % of the time all tasks there wait for it",
                evidence=tuple(evidence),
                confidence=0.85 if snapshot.has_ended or last is None or not last else 0.9,
                subject=Subject(node=node),
                fixes=(
                    Fix("Use less: fewer DataLoader workers, a lower prefetch_factor, memory-mapped data"),
                    Fix("Ask for more memory (--mem), or for the node alone (--exclusive)"),
                ),
                severity=Severity.CRITICAL if stall >= self.critical_stall_pct else None,
                since_s=hosts[0].time_s,
            )
