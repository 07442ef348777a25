"""MEM013: the job used more host memory than it requested, on a site that does not enforce the request."""

from __future__ import annotations

from collections.abc import Iterable

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit, Severity, Subject
from coach.model.snapshot import TargetSnapshot
from coach.model.training.run import Run
from coach.model.training.telemetry import HostSample, ProcessSample
from coach.rules.advice.remedies import more_memory
from coach.rules.base import Need, Rule, Threshold
from coach.rules.from_logs.quoted_evidence import parse_mib, size_text

_MEANS = (
    "on a site that enforces it, the job would be killed, and on this one it takes memory of others on its "
    "node"
)
_MAY_MEAN = "if the site enforces it, the job is killed, and if not, it takes memory of others on its node"
"""For a job that runs or ended badly: Slurm may look at its memory only every half minute."""


class MemoryAboveRequest(Rule):
    """One process of the job alone used more memory than the whole job requested on its node.

    What it sees
        The anonymous memory of a process, as coach's sampler reads it from the kernel: what the process
        itself wrote to its memory. It is compared with the `--mem` of the launch, or with the memory that
        Slurm reserved for the job on that node. The largest value of the whole run counts.
    Why it matters
        Where Slurm enforces the request, it would kill the job. Where it does not, the job takes memory that
        Slurm has promised to other jobs on the node, and their processes may be killed.
    When it stays silent
        With `--mem=0`, for a job that has all cores of a node without a `--mem` of its launch (such as
        `--exclusive`), and for a request of nearly the whole node. For several processes that are above the
        request only together: the sum of their memory counts shared pages several times. For a process that
        maps a large file: the kernel drops such pages as soon as it needs memory. Outside of Slurm. For a
        sampler that was added to a running job: its step may have a request of its own.
    What to do
        Request 1.3 times the peak of the job, or use less: fewer DataLoader workers, memory-mapped data.
    Sources
        sbatch(1), --mem; slurm.conf(5), TaskPlugin and JobAcctGatherParams: without task/cgroup or
        OverMemoryKill a request is not enforced; proc(5), /proc/pid/statm.
    """

    code = "MEM013"
    name = "memory-above-request"
    cause = "memory_above_request"
    severity = Severity.WARNING
    needs = (Need.HOST_TELEMETRY,)
    over = Threshold(1.05, "times the request", "some sites allow a job a few percent more")
    whole_node_share = Threshold(0.8, "of the node's memory", "hardly any other job fits beside it")
    headroom = Threshold(1.3, "times the peak", "a sampled peak is a floor: bursts are missed", at_least=1)

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        above = []
        for node in history.nodes:
            largest, hosts = history.largest_process(node), history.host(node)
            asked = _asked_mib(snapshot.run, hosts[-1]) if hosts else None
            if largest is None or not asked or self._is_whole_node(asked, hosts[-1]):
                continue
            if (largest.anonymous_mib or 0.0) >= self.over * asked:
                above.append((largest, asked))
        if above:
            yield self._hit(snapshot, history, above)

    def _is_whole_node(self, asked_mib: float, host: HostSample) -> bool:
        """True also if the node's memory is unknown."""
        total = host.node_memory_total_mib
        return total is None or asked_mib >= self.whole_node_share * total

    def _hit(
        self, snapshot: TargetSnapshot, history: History, above: list[tuple[ProcessSample, float]]
    ) -> Hit:
        largest, asked = max(above, key=lambda each: (each[0].anonymous_mib or 0.0) - each[1])
        node, used = largest.node, largest.anonymous_mib or 0.0
        job_peak = max((host.memory_used_mib or 0.0 for host in history.host(node)), default=0.0)
        peak = max(used, job_peak)
        more = f" (and so on {len(above) - 1} more)" if len(above) > 1 else ""
        return Hit(
            summary=(
                f"One process alone used {size_text(used)} of memory on {node}{more}, where the job "
                f"requested {size_text(asked)}: {_MEANS if snapshot.state == 'COMPLETED' else _MAY_MEAN}"
            ),
            evidence=(
                Evidence(
                    f"peak of PID {largest.pid} ({largest.name}) on {node}, without files and shared memory, "
                    f"by coach's sampler{_age(snapshot.now_s, largest.time_s)}",
                    value=used,
                    unit="MiB",
                ),
                Evidence(f"memory requested on {node}", value=asked, unit="MiB"),
                Evidence(
                    f"peak of the job's resident memory on {node}, sampled; pages that processes share are "
                    "counted for each",
                    value=peak,
                    unit="MiB",
                ),
            ),
            confidence=0.9,
            subject=Subject(node=node, rank=largest.rank),
            fixes=tuple(self._fixes(snapshot.run, peak, history)),
            since_s=largest.time_s,
        )

    def _fixes(self, run: Run | None, peak_mib: float, history: History) -> Iterable[Fix]:
        headroom = self.headroom
        why = f"{headroom:g} times the peak of {size_text(peak_mib)}"
        yield from more_memory(run, peak_mib * headroom, why, history)
        yield Fix("Or use less: fewer DataLoader workers, a lower prefetch_factor, memory-mapped data")


def _asked_mib(run: Run | None, host: HostSample) -> float | None:
    """The memory per node that the launch requested, or that Slurm reserved for the job there."""
    asked = run.resources.get("mem") if run is not None and run.backend == "slurm" else None
    if isinstance(asked, str):
        return parse_mib(asked, "M")
    return host.memory_request_mib


def _age(now_s: float | None, time_s: float) -> str:
    """How long ago a sample was taken, before the newest of the data."""
    return "" if now_s is None else f", {max(0.0, now_s - time_s):.0f} s before the newest data"
