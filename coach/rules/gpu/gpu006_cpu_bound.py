"""GPU006: the CPUs are the limit: all CPUs of the job are busy, and its GPUs wait for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit, Severity, Subject
from coach.model.snapshot import TargetSnapshot
from coach.model.training.run import Run
from coach.model.training.telemetry import ProcessSample
from coach.rules.advice.launched_with import cpus_per_rank, int_parameter, int_resource
from coach.rules.advice.remedies import workers
from coach.rules.base import Need, Rule, Threshold
from coach.rules.from_numbers.telemetry_windows import (
    WINDOW,
    gpu_uses,
    host_window,
    means_of,
    use_meanwhile,
    uses_by_node,
)


class CpuBound(Rule):
    """The CPUs of a node are at their limit while its GPUs wait.

    What it sees
        The use of the job's CPUs on a node, and the utilization of its GPUs there, both over the newest
        window of training. If the kernel reports CPU pressure, the finding shows how long tasks waited for a
        CPU: more threads run than there are CPUs. If tasks wait and the ranks of a node have
        `threads_per_cpu` threads per CPU, it shows the numbers of threads.
    Why it matters
        Without a free CPU more DataLoader workers do not help: they only take CPU time from each other.
    When it stays silent
        Without GPUs: a training on CPUs should use them fully. While the GPUs are busy. In start-up,
        evaluation, checkpoints and compilation.
    What to do
        Ask for more CPUs per task. If there are none: decode and augment less per sample or on the GPU,
        prepare the data once, and set OMP_NUM_THREADS so that ranks × threads do not exceed the CPUs.
    Sources
        SageMaker Debugger's CPUBottleneck (CPU above 90 %); kernel documentation, pressure stall information.
    """

    code = "GPU006"
    name = "cpu-bound"
    cause = "cpu_bound"
    severity = Severity.WARNING
    needs = (frozenset({Need.GPU_TELEMETRY, Need.HOST_TELEMETRY}),)
    keep_s = 10.0
    cpu_pct = Threshold(90, "percent of the allotted CPUs", "SageMaker's limit: no CPU is left")
    gpu_pct = Threshold(70, "percent", "GPUs that are busier do not wait for the CPUs")
    critical_gpu_pct = Threshold(30, "percent", "two thirds of the GPUs' time are then lost")
    threads_per_cpu = Threshold(
        4, "threads", "autograd, loaders and NCCL bring some threads that mostly sleep"
    )
    pressure_pct = Threshold(20, "percent of the time", "less is the waiting of any busy node")
    window_s, min_samples, startup_s = WINDOW

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        uses = gpu_uses(snapshot, history, self.values)
        for node, of_node in uses_by_node(uses).items():
            hosts = host_window(snapshot, history, node, self.values)
            means = use_meanwhile(of_node, hosts)
            if not means or (gpu_pct := fmean(means)) >= self.gpu_pct:
                continue
            cpu_pct = means_of(hosts, "cpu_pct")
            if cpu_pct is None or cpu_pct < self.cpu_pct:
                continue
            cpus, pressure = hosts[-1].num_cpus, means_of(hosts, "cpu_pressure_pct")
            window = f"{node}, mean of {len(hosts)} samples"
            evidence = [
                Evidence.percent(f"use of the {cpus or 'allotted'} CPUs on {window}", cpu_pct),
                Evidence.percent(f"utilization of {len(means)} GPU{'s' * (len(means) > 1)} there", gpu_pct),
            ]
            if pressure is not None:
                text = f"share of the time in which some task waited for a CPU of {node}"
                evidence.append(Evidence.percent(text, pressure))
            crowd = self._crowd(history.processes(node), cpus, pressure)
            if crowd is not None:
                evidence.append(crowd.evidence)
            yield Hit(
                summary=(
                    f"The CPUs of {node} are at their limit ({cpu_pct:.0f} %), and its GPUs wait "
                    f"({gpu_pct:.0f} % busy)"
                ),
                evidence=tuple(evidence),
                confidence=0.85 if pressure is None or pressure < self.pressure_pct else 0.92,
                subject=Subject(node=node),
                fixes=(*([crowd.fix] if crowd is not None else ()), *_fixes(snapshot.run)),
                severity=Severity.CRITICAL if gpu_pct < self.critical_gpu_pct else None,
                since_s=hosts[0].time_s,
            )

    def _crowd(
        self, processes: Sequence[ProcessSample], num_cpus: int | None, pressure_pct: float | None
    ) -> _Crowd | None:
        """The excess of threads over CPUs if the ranks of a node run far too many; None if too little is
        known."""
        threads = [each.num_threads for each in processes if each.rank is not None and each.num_threads]
        if len(threads) < 2 or not num_cpus or (pressure_pct or 0.0) < self.pressure_pct:
            return None
        if sum(threads) < self.threads_per_cpu * num_cpus:
            return None
        each = max(1, num_cpus // len(threads))
        return _Crowd(
            Evidence(
                f"threads of {len(threads)} ranks on {num_cpus} CPUs",
                value=float(sum(threads)),
                unit="threads",
            ),
            Fix(
                f"OMP_NUM_THREADS={each}: the threads of {len(threads)} ranks then fit into {num_cpus} CPUs",
                {"env": {"OMP_NUM_THREADS": str(each)}},
            ),
        )


@dataclass(frozen=True, slots=True)
class _Crowd:
    """Evidence for more threads than CPUs, and the fix."""

    evidence: Evidence
    fix: Fix


def _fixes(run: Run | None) -> Iterable[Fix]:
    cpus, now = int_resource(run, "cpus_per_task"), int_parameter(run, "num_workers")
    if cpus:
        yield Fix(f"CPUs per task {cpus} → {cpus * 2}", {"cpus_per_task": cpus * 2})
    else:
        yield Fix("Ask for more CPUs per task (--cpus-per-task)")
    own = cpus_per_rank(run, None)
    if own is not None and now is not None and now > own:
        yield from workers(run, own, own, ": one per CPU of its rank")
    yield Fix("Do less per sample on the CPU: prepare the data once, or decode and augment on the GPU")
