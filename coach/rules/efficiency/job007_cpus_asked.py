"""JOB007: most of the requested CPUs were idle."""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import fmean

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit, Severity
from coach.model.snapshot import TargetSnapshot
from coach.model.training.run import Run
from coach.rules.advice.launched_with import int_parameter, int_resource
from coach.rules.base import Need, Rule, Threshold
from coach.rules.from_numbers.job_means import CONFIDENCE, MEAN, cpu_means
from coach.rules.from_numbers.telemetry_windows import has_all_nodes, training_host_samples


class CpusAsked(Rule):
    """A completed run used few of its CPUs.

    What it sees
        The use of the job's CPUs on each node, over all kept samples of training. For a job that coach did
        not launch: the CPU time that the site's jobstats left in the accounting.
    Why it matters
        Idle CPUs keep other jobs off the node, and then its other GPUs stay idle too.
    When it stays silent
        Unless the run completed; on few CPUs and short runs; if each CPU has a rank or a DataLoader worker.
        If a node was sampled for a short time, not up to the run's end, or not at all: its use is not known.
        It is never more than info: many sites give a fixed number of CPUs with each GPU.
    What to do
        Request twice the CPUs that were used, and at least one for each rank and each of its DataLoader
        workers.
    Sources
        slurmpast (below 15 % of the cores); Princeton jobstats.
    """

    code = "JOB007"
    name = "cpus-asked"
    cause = "cpu_over_request"
    severity = Severity.INFO
    needs = (
        frozenset({Need.HOST_TELEMETRY, Need.JOB_STATE}),
        frozenset({Need.CPU_SUMMARY, Need.JOB_STATE}),
    )
    used_pct = Threshold(15, "percent of the CPUs", "slurmpast's bound")
    min_cpus = Threshold(16, "CPUs on a node", "fewer come with a GPU, and keep no other job off it")
    min_s = Threshold(300, "seconds of training", "shorter runs are mostly start")

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        if snapshot.state != "COMPLETED":
            return
        # A sampler that was attached to a job has seen only a part of it.
        is_sampled = snapshot.run is not None and bool(history.nodes)
        used = self._sampled(snapshot, history) if is_sampled else []
        means = [] if is_sampled else cpu_means(snapshot, self.min_s)
        if not used and not means:
            return
        mean_pct, cpus = max(used or means)
        if mean_pct >= self.used_pct or cpus < self.min_cpus:
            return
        wanted = max(_num_busy(snapshot.run), math.ceil(2 * cpus * mean_pct / 100))
        if wanted >= cpus:
            return
        how = "while it trained, mean" if used else MEAN
        yield Hit(
            summary=f"Of {cpus} CPUs per node, {mean_pct:.0f} % were used on the busiest node",
            evidence=(Evidence.percent(f"use of the allotted CPUs {how}", mean_pct),),
            confidence=0.8 if used else CONFIDENCE,
            fixes=(
                Fix(
                    f"CPUs per task → {wanted} the next time, where the site lets you choose",
                    {"cpus_per_task": wanted} if int_resource(snapshot.run, "cpus_per_task") else {},
                ),
            ),
        )

    def _sampled(self, snapshot: TargetSnapshot, history: History) -> list[tuple[float, int]]:
        """(CPU use in percent, number of CPUs) of each node. Empty if a node was sampled for too short a
        time or not at all, or if its samples stop long before the run's end."""
        used: list[tuple[float, int]] = []
        ended_s = snapshot.run.ended_time_s if snapshot.run is not None else None
        for node in history.nodes:
            if ended_s is not None and ended_s - history.host(node)[-1].time_s > self.min_s:
                return []
            samples = [
                s
                for s in training_host_samples(snapshot, history, node)
                if s.cpu_pct is not None and s.num_cpus
            ]
            if not samples or samples[-1].time_s - samples[0].time_s < self.min_s:
                return []
            used.append((fmean([s.cpu_pct or 0.0 for s in samples]), samples[-1].num_cpus or 0))
        return used if has_all_nodes(snapshot, history.nodes) else []


def _num_busy(run: Run | None) -> int:
    """Ranks and DataLoader workers of a node: each may need a CPU of its own."""
    ranks, workers = int_resource(run, "nproc_per_node") or 1, int_parameter(run, "num_workers") or 0
    return ranks * (1 + workers)
