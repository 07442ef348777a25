"""MEM007: the host memory of the job was not enough. Host memory is separate from GPU memory, so a smaller
GPU batch does not help."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit, Severity, Subject
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.model.training.run import RankExit, Run
from coach.rules.advice.circumstances import fixes_of_wording
from coach.rules.advice.remedies import ask_for_memory, fewer_workers, more_memory
from coach.rules.base import Need, Rule, Threshold
from coach.rules.from_logs.aftermath import went_on
from coach.rules.from_logs.quoted_evidence import earliest, hits_of, own_frame, parse_mib, quote, size_text
from coach.rules.from_numbers.telemetry_windows import quarters, training_host_samples

_KILLED_STATES = frozenset(
    {"CANCELLED", "TIMEOUT", "PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "DEADLINE", "REQUEUED"}
)
"""States in which Slurm itself kills the processes: a killed worker then says nothing about memory."""

_ARRAY = re.compile(
    r"Unable to allocate (?P<size>[\d.]{1,12}) (?P<unit>[KMGTPE]iB) for an array"
    r"(?P<form> with shape \([\d, ]{1,200}\) and data type [\w<>=|]{1,40})?"
    r"|DefaultCPUAllocator: .{0,60}? allocate (?P<bytes>\d{1,20}) bytes"
)
_FAR_TOO_MUCH = 4.0
"""An array of at least this many times the memory limit is a mistake in its shape or its dtype."""
_LARGE_MIB = 32 * 1024.0
"""The size from which an array is taken for such a mistake if no limit is known."""


@dataclass(frozen=True, slots=True)
class _Peak:
    """The peak resident memory that was sampled on one node, and the limit there."""

    node: str
    used_mib: float
    limit_mib: float | None
    time_s: float


class HostOutOfMemory(Rule):
    """The job used more host memory than it was given, and was killed for it.

    What it sees
        The state OUT_OF_MEMORY; the kernel's own count of processes that it killed in the job's memory
        cgroup, which `exit.json` keeps; the lines of slurmstepd, srun and the kernel in all versions
        ("Detected 1 oom_kill event", "Detected 1 oom-kill event(s)", "task 0: Out Of Memory", "exceeded
        memory limit (… > …), being killed", "Killed process"), PBS's and LSF's messages about jobs killed for
        their memory, Ray's and joblib's about their workers; a failed allocation of host memory (MemoryError,
        DefaultCPUAllocator, errno 12, TensorFlow's on the CPU, DuckDB's); a DataLoader worker or a rank that
        was killed by signal 9 while the sampler saw memory near its limit.
    Why it matters
        The kernel kills a process before it can print anything. The other ranks then report a collective
        timeout, which hides the cause.
    When it stays silent
        On CUDA out of memory (another pool). On a killed process if Slurm killed the job for another reason
        (CANCELLED, TIMEOUT, PREEMPTED, NODE_FAIL). A lone SIGKILL without a memory measurement is left to
        MEM008 and DAT005, which claim less.
    What to do
        If memory grew during the whole training, find the data that each step keeps: more memory would be
        used up too. If one array alone is far larger than the memory, correct its shape or dtype. A
        MemoryError without a kill may come from `ulimit -v`. Else request 1.3 times the measured peak. Or use
        less: fewer DataLoader workers (each holds its own copies), a lower prefetch_factor, memory-mapped
        data. A smaller GPU batch does not help.
    Sources
        slurmstepd's messages (Slurm 18 to 24, cgroup v1 and v2, jobacct_gather OverMemoryKill); torch
        DataLoader; kernel oom_kill.
    """

    code = "MEM007"
    name = "host-out-of-memory"
    cause = "host_oom"
    severity = Severity.CRITICAL
    needs = (Need.LOG, Need.JOB_STATE)
    headroom = Threshold(
        1.3, "times the peak", "a sampled peak is a floor: bursts between two samples are missed", at_least=1
    )
    blind_growth = Threshold(
        2.0, "times the request", "without a measured peak, doubling finds the need in few attempts"
    )
    growth = Threshold(
        1.2, "times the first quarter", "a training that grew by a fifth to its end has a leak"
    )
    growth_samples = Threshold(
        12, "samples of training", "fewer are caches and workers that fill", at_least=1
    )
    near_limit_share = Threshold(
        0.9, "of the limit", "closer than this, one more batch per worker reaches the limit"
    )

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        explicit = hits_of(
            snapshot, self.code, "oom_kill_event", "task_out_of_memory", "over_limit", "kernel"
        )
        failed = [hit for hit in hits_of(snapshot, self.code, "allocation") if not went_on(hit, snapshot)]
        workers = hits_of(snapshot, self.code, "worker_killed")
        is_killed = snapshot.exit is not None and any(map(_is_killed, snapshot.exit.ranks))
        counted = _counted(snapshot)
        is_told = snapshot.state == "OUT_OF_MEMORY" or bool(explicit) or bool(counted)
        if not (is_told or failed or workers or is_killed):
            return
        peak = _peak(history, _asked_mib(snapshot.run))
        if is_told:
            hits, confidence, how = (
                [*explicit, *workers],
                0.98,
                "killed for using more memory than it was given",
            )
        elif failed:
            hits, confidence, how = failed, 0.85, "an allocation of host memory failed"
        elif snapshot.state in _KILLED_STATES:
            return
        elif workers and peak is not None and self._is_near_limit(peak):
            hits, confidence, how = workers, 0.8, "a DataLoader worker was killed with memory near its limit"
        elif is_killed and peak is not None and self._is_near_limit(peak):
            hits, confidence, how = [], 0.9, "a rank was killed by signal 9 with memory near its limit"
        else:
            return
        growth = self._growth(snapshot, history)
        nodes = sorted({*counted, *(hit.fields["node"] for hit in hits if "node" in hit.fields)})
        node = nodes[0] if len(nodes) == 1 else peak.node if peak and len(history.nodes) == 1 else None
        yield Hit(
            summary=f"Host memory ran out{f' on {node}' if node else ''}: {how}",
            evidence=(*_evidence(snapshot, hits, counted, peak), *_grown(growth)),
            confidence=confidence,
            subject=Subject(node=node),
            fixes=self._all_fixes(snapshot, hits, growth, peak, history),
            severity=Severity.WARNING if snapshot.state == "COMPLETED" else None,
            since_s=earliest(hits).time_s if hits else None,
        )

    def _is_near_limit(self, peak: _Peak) -> bool:
        return peak.limit_mib is not None and peak.used_mib >= self.near_limit_share * peak.limit_mib

    def _growth(self, snapshot: TargetSnapshot, history: History) -> list[float]:
        """Memory in each quarter of the training, in MiB, if it grew to the end. Empty otherwise, also for a
        cache whose growth slowed down."""
        for node in history.nodes:
            used = [
                sample.memory_used_mib
                for sample in training_host_samples(snapshot, history, node)
                if sample.memory_used_mib is not None
            ]
            if history.ranks and len(used) >= self.growth_samples:
                parts = quarters(used)
                first, *_, last = (b - a for a, b in pairwise(parts))
                if parts == sorted(parts) and parts[-1] >= self.growth * parts[0] and 2 * last >= first:
                    return parts
        return []

    def _all_fixes(
        self,
        snapshot: TargetSnapshot,
        hits: list[LogHit],
        growth: list[float],
        peak: _Peak | None,
        history: History,
    ) -> tuple[Fix, ...]:
        known = fixes_of_wording(hits[0], snapshot) if hits else ()
        return known or (*_found_leak(growth), *self._fixes(snapshot.run, hits, peak, history))

    def _fixes(
        self, run: Run | None, hits: list[LogHit], peak: _Peak | None, history: History
    ) -> Iterable[Fix]:
        array = _largest_array(hits)
        limit = peak.limit_mib if peak is not None else _asked_mib(run)
        if array is not None and array[0] >= (_FAR_TOO_MUCH * limit if limit is not None else _LARGE_MIB):
            yield Fix(
                "Look at the shape and the dtype of the array: it alone takes "
                f"{size_text(array[0])}{array[1]}. Load it in parts, memory-map it, or use a smaller dtype "
                "or a sparse format"
            )
            if limit is None:
                yield Fix(
                    "See how much memory the nodes have",
                    command="sinfo -o '%P %D %m'",
                    needs=("scheduler:slurm",),
                )
            return
        if any(hit.text.strip() == "MemoryError" for hit in hits):
            yield Fix(
                "Print the limit of address space in the batch script: an exhausted --mem kills a process, "
                "and rarely raises MemoryError",
                command="ulimit -v",
            )
        wanted = self._wanted_mib(run, hits, peak)
        if wanted is None and _mem_option(run) == 0:
            yield Fix(
                "Use less memory, or nodes with more: the job had all the memory of its nodes (--mem=0)",
                command="sinfo -o '%P %D %m'",
            )
        elif wanted is None:
            yield from ask_for_memory("about 1.3 times its peak, which `coach run -- COMMAND` measures")
        else:
            yield from more_memory(run, *wanted, history)
        yield from fewer_workers(run)
        if run is None:
            yield Fix(
                "Use fewer DataLoader workers: each holds its own copies of the data set's Python objects",
                needs=("dataloader",),
            )

    def _wanted_mib(
        self, run: Run | None, hits: list[LogHit], peak: _Peak | None
    ) -> tuple[float, str] | None:
        """The memory to request and the reason. After a kill at the limit the need is above it, even if the
        samples were lower."""
        used = [peak.used_mib] if peak is not None else []
        used += [
            value / 1048576
            for hit in hits
            if "used" in hit.fields and (value := float(hit.fields["used"])) > 1e8
        ]
        limit = peak.limit_mib if peak is not None else _asked_mib(run)
        if used and (limit is None or max(used) >= self.near_limit_share * limit):
            need = max([*used, limit or 0.0])
            return need * self.headroom, f"{self.headroom:g} times the peak of {size_text(need)}"
        if limit is not None:
            return limit * self.blind_growth, f"{self.blind_growth:g} times the {size_text(limit)} asked"
        return None


def _largest_array(hits: list[LogHit]) -> tuple[float, str] | None:
    """The size in MiB of the largest array or tensor that could not be allocated, and its form in words."""
    found = [match for hit in hits if (match := _ARRAY.search(hit.text)) is not None]
    sizes = [
        (parse_mib(match["bytes"] or f"{match['size'].rstrip('.')} {match['unit']}"), match["form"] or "")
        for match in found
    ]
    return max(((size, form) for size, form in sizes if size is not None), default=None)


def _counted(snapshot: TargetSnapshot) -> Mapping[str, int]:
    """Node → number of killed processes, as the kernel counted them in the job's cgroup. Empty for a run that
    went well, and outside of Slurm, where the cgroup may belong to a whole session."""
    told, run = snapshot.exit, snapshot.run
    if told is None or snapshot.state == "COMPLETED" or run is None or run.job_id is None:
        return {}
    return told.oom_kills


def _is_killed(rank: RankExit) -> bool:
    return not rank.is_bystander and (rank.signal == 9 or rank.exit_code in (-9, 137))


def _found_leak(growth: list[float]) -> Iterable[Fix]:
    if growth:
        yield Fix(
            "Look for objects that are kept per step (tensors in a list, losses with their graph): more "
            "memory would only fill up later"
        )


def _grown(growth: list[float]) -> Iterable[Evidence]:
    if growth:
        yield Evidence(
            "resident memory by quarters of the training, growing to the end: "
            + ", ".join(size_text(part) for part in growth)
        )


def _asked_mib(run: Run | None) -> float | None:
    """Memory per node that the launch requested, in MiB. None if that is unknown, or all that the node has
    (`--mem=0`)."""
    return _mem_option(run) or None


def _mem_option(run: Run | None) -> float | None:
    """The value of `--mem` in MiB."""
    return parse_mib(run.resources.get("mem"), "M") if run is not None else None


def _peak(history: History, asked_mib: float | None) -> _Peak | None:
    """The highest peak with its limit. The requested memory is the limit, even if the node has more."""
    highest = [
        max(history.host(node), key=lambda sample: sample.memory_used_mib or 0.0) for node in history.nodes
    ]
    peak = max(highest, key=lambda sample: sample.memory_used_mib or 0.0, default=None)
    if peak is None or peak.memory_used_mib is None:
        return None
    return _Peak(peak.node, peak.memory_used_mib, asked_mib or peak.memory_limit_mib, peak.time_s)


def _evidence(
    snapshot: TargetSnapshot, hits: list[LogHit], counted: Mapping[str, int], peak: _Peak | None
) -> Iterable[Evidence]:
    if snapshot.state == "OUT_OF_MEMORY":
        yield Evidence("state OUT_OF_MEMORY")
    for node, count in counted.items():
        yield Evidence(
            f"processes that the kernel killed on {node} because the job's memory was used up", value=count
        )
    shown: set[str] = set()
    for hit in hits:
        if hit.signature not in shown:
            shown.add(hit.signature)
            yield quote(hit)
            if hit.signature == "allocation" and (frame := own_frame(hit)):
                yield frame
    if peak is not None:
        yield Evidence(
            f"peak of the job's resident memory on {peak.node}, sampled", value=peak.used_mib, unit="MiB"
        )
        if peak.limit_mib is not None:
            yield Evidence(f"memory limit on {peak.node}", value=peak.limit_mib, unit="MiB")
