"""Compare a run with earlier ones: earlier attempts, nodes that fail, throughput reached before. Pure.

The rules explain a single failure. That it is the fifth of its kind can be seen only from the few values that
earlier runs left: everything here works on a `PastRun`.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import NormalDist, fmean, median, stdev
from typing import Any

from coach.analysis.comparing.steady_state import t95
from coach.analysis.comparing.two_runs import throughput, world_size
from coach.lookback.history import History
from coach.model.judging.finding import Diagnosis, Finding, Severity, Verdict
from coach.model.judging.verdict import LENGTH_PARAMETERS, Across, NodeRecord, Pace, PastRun
from coach.model.slurm.cluster import Job
from coach.model.snapshot import TargetSnapshot
from coach.model.training.run import Run

MAX_ATTEMPTS = 50
PACE_DAYS = 14
"""Older throughputs are not compared: drivers, libraries and data may have changed since."""
MIN_PACES = 3
"""The scatter between runs cannot be estimated from fewer."""

_DAY_S = 86400.0
_MIN_FAILED = 3
_OF_NODES = frozenset(
    {
        *("slurm_node_fail", "xid_hw_error", "gpu_memory_errors", "nvlink_down", "pcie_degraded"),
        *("all_gpus_busy", "cuda_unavailable", "driver_too_old", "stale_nfs"),
    }
)
"""Causes that more often lie in the machine than in the program: if other nodes do not have them, it is the
machine."""
_CAUSES = {"NODE_FAIL": "slurm_node_fail", "BOOT_FAIL": "slurm_node_fail", "OUT_OF_MEMORY": "host_oom"}
"""Slurm state → its cause."""
_NUMBER = re.compile(r"\d+")


def work_of(run: Run | None, job: Job | None) -> str | None:
    """A key for attempts at the same work; None if nothing identifies the work."""
    if run is not None:
        return f"recipe {run.recipe}{_place_of(run)}"
    if job is None or job.work_dir is None:
        return None
    return _NUMBER.sub("#", f"{job.command or job.name} in {job.work_dir}")


def _place_of(run: Run) -> str:
    """The path and the directory of an own program: many programs are called train.py. Empty for a recipe."""
    own = run.launch.get("own")
    if not isinstance(own, Mapping):
        return ""
    words, directory = own.get("words"), own.get("directory")
    program = words[0] if isinstance(words, list | tuple) and words else run.recipe
    return _NUMBER.sub("#", f" ({program} in {directory})")


def seen_run(job: Job, nodes: tuple[str, ...], end_s: float | None) -> PastRun | None:
    """A job as the queue alone describes it."""
    work = work_of(None, job)
    if work is None:
        return None
    cause = _CAUSES.get(job.state)
    asked = {"partition": job.partition, "num_nodes": job.num_nodes, "num_gpus": job.num_gpus}
    return PastRun(
        *(job.job_id, work, job.state, job.submit_time_s, job.start_time_s, end_s, nodes),
        cause=cause,
        is_judged=False,
        resources={**asked, "num_cpus": job.num_cpus, "time_limit_s": job.time_limit_s, "qos": job.qos},
    )


def past_run(
    snapshot: TargetSnapshot, history: History, diagnosis: Diagnosis, nodes: tuple[str, ...]
) -> PastRun | None:
    """The values of a target to remember; None if it is neither a run nor a job. `nodes` are the job's."""
    run, job = snapshot.run, snapshot.job
    end_s = snapshot.now_s if snapshot.has_ended else None
    work = work_of(run, job)
    if work is None:
        return None
    known = seen_run(job, nodes, end_s) if job is not None else None
    past = known or PastRun(snapshot.target, work, snapshot.state, ended_s=end_s)
    past = replace(
        _with_finding(past, diagnosis.findings),
        work=work,
        is_judged=True,
        has_gone_well=diagnosis.health is Verdict.HEALTHY,
        state=snapshot.state,
        nodes=nodes or history.nodes,
        memory_used_mib=_peak(history, "memory_used_mib"),
        memory_asked_mib=_peak(history, "memory_limit_mib"),
        world_size=world_size(snapshot, history),
        others_cpu_pct=_others_cpu_pct(history),
    )
    rate = throughput(snapshot, history)
    if rate is not None and rate.noise is not None:
        past = replace(past, samples_per_s=rate.value, samples_per_s_noise=rate.noise)
    return past if run is None else _as_launched(past, run)


def _with_finding(past: PastRun, findings: Iterable[Finding]) -> PastRun:
    """Add its first finding above info. Without one, also drop a cause derived from its state."""
    found = next((each for each in findings if each.severity > Severity.INFO), None)
    if found is None:
        past = replace(past, rule=None, cause=None, summary=None, severity=None)
        return replace(past, confidence=None, name=None, node=None)
    return replace(
        past,
        rule=found.rule,
        cause=found.cause,
        summary=found.summary,
        severity=found.severity.word,
        confidence=found.confidence,
        name=found.name,
        node=found.subject.node,
    )


def _as_launched(past: PastRun, run: Run) -> PastRun:
    """Add the launch as the run's own record has it."""
    device = run.device.get("name") or run.device.get("type")
    return replace(
        past,
        target=run.run_id,
        submitted_s=run.created_time_s,
        started_s=run.started_time_s or past.started_s,
        parameters=run.parameters,
        resources=run.resources,
        versions=run.versions,
        device=device if isinstance(device, str) else None,
    )


def _peak(history: History, name: str) -> float | None:
    values = (getattr(sample, name) for node in history.nodes for sample in history.host(node))
    return max((value for value in values if value is not None), default=None)


def _others_cpu_pct(history: History) -> float | None:
    """Percent of the node's CPUs used by others than the job; the largest node mean. A lower bound: the job's
    percentage refers to its own CPUs, and is at least its share of the whole node."""
    means = []
    for node in history.nodes:
        rest = [
            host.node_cpu_pct - host.cpu_pct
            for host in history.host(node)
            if host.node_cpu_pct is not None and host.cpu_pct is not None
        ]
        means += [max(0.0, fmean(rest))] if rest else []
    return max(means, default=None)


def across(this: PastRun, known: Sequence[PastRun]) -> Across:
    """Facts about this run from earlier ones. `known` are the user's, each once, in any order."""
    begin_s = this.started_s if this.started_s is not None else this.submitted_s
    others = [each for each in known if (each.target, each.submitted_s) != (this.target, this.submitted_s)]
    before = [each for each in others if begin_s is not None and _ended_before(each, begin_s)]
    same = [each for each in before if each.work == this.work]
    return Across(this, _in_turn(this, same), _records(this, others), _pace(this, same))


def _ended_before(past: PastRun, time_s: float) -> bool:
    return past.ended_s is not None and past.ended_s <= time_s


def _in_turn(this: PastRun, same: Iterable[PastRun]) -> tuple[PastRun, ...]:
    """Attempts that followed one another. The tasks of an array, or jobs submitted before the previous one
    failed, are no further attempts."""
    chain: list[PastRun] = []
    next_s = this.submitted_s if this.submitted_s is not None else this.started_s
    for each in sorted(same, key=lambda past: past.ended_s or 0.0, reverse=True):
        if len(chain) < MAX_ATTEMPTS and next_s is not None and (each.ended_s or math.inf) <= next_s:
            chain.append(each)
            next_s = each.submitted_s if each.submitted_s is not None else each.started_s
    return tuple(reversed(chain))


def _records(this: PastRun, others: Sequence[PastRun]) -> tuple[NodeRecord, ...]:
    known = [each for each in (*others, this) if each.nodes]
    num_runs = Counter(node for each in known for node in {*each.nodes})
    failed: dict[str, list[PastRun]] = {}
    for each in known:
        node = each.node or (each.nodes[0] if len(each.nodes) == 1 else None)
        if node in each.nodes and each.cause in _OF_NODES and each.failure is not None:
            failed.setdefault(str(node), []).append(each)
    num_failed, num_all = sum(map(len, failed.values())), sum(num_runs.values())
    found = []
    for node in this.nodes:
        mine = failed.get(node, [])
        if len(mine) >= _MIN_FAILED:
            # The worst of many nodes is picked, so the interval widens with the number of nodes (Bonferroni).
            low, high = wilson(len(mine), num_runs[node], num_intervals=len(num_runs))
            peers = (num_failed - len(mine), num_all - num_runs[node])
            found.append(NodeRecord(node, len(mine), num_runs[node], low, high, *peers, tuple(mine)))
    return tuple(found)


def wilson(num_hits: int, num_all: int, num_intervals: int = 1) -> tuple[float, float]:
    """Wilson's 95 % interval of a rate, widened so that `num_intervals` of them hold together
    (Bonferroni)."""
    z = NormalDist().inv_cdf(1 - 0.025 / max(1, num_intervals))
    rate, spread = num_hits / num_all, z * z / num_all
    middle = (rate + spread / 2) / (1 + spread)
    half = z / (1 + spread) * math.sqrt(rate * (1 - rate) / num_all + spread / (4 * num_all))
    return max(0.0, middle - half), min(1.0, middle + half)


def _pace(this: PastRun, same: Iterable[PastRun]) -> Pace | None:
    rate, begin_s = this.samples_per_s, this.started_s
    if not rate or begin_s is None or this.samples_per_s_noise is None:
        return None
    since_s = begin_s - PACE_DAYS * _DAY_S
    like = [
        each
        for each in same
        if each.samples_per_s and (each.ended_s or 0.0) >= since_s and _speed_by(each) == _speed_by(this)
    ]
    rates = [each.samples_per_s for each in like if each.samples_per_s]
    if len(rates) < MIN_PACES:
        return None
    logs = [math.log(each) for each in rates]
    scatter = t95(len(logs)) * stdev(logs) * math.sqrt(1 + 1 / len(logs))
    half = math.hypot(scatter, this.samples_per_s_noise / rate)
    middle = math.log(rate) - fmean(logs)
    return Pace(rate, tuple(like), rate / median(rates), math.exp(middle - half), math.exp(middle + half))


def _speed_by(past: PastRun) -> tuple[Mapping[str, Any], str | None, int | None]:
    """The values, beside machine and code, that determine the throughput."""
    parameters = {name: value for name, value in past.parameters.items() if name not in LENGTH_PARAMETERS}
    return parameters, past.device, past.world_size
