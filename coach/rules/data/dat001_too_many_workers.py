"""DAT001: more DataLoader workers than the job's CPUs can run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit, Severity
from coach.model.snapshot import TargetSnapshot
from coach.model.training.metrics import Step
from coach.rules.advice.launched_with import int_parameter, int_resource
from coach.rules.base import Need, Rule, Threshold
from coach.rules.from_logs.quoted_evidence import hits_of, quote
from coach.rules.from_numbers.telemetry_windows import means_of, training_host_samples
from coach.rules.from_numbers.training_windows import data_shares


@dataclass(frozen=True, slots=True)
class _Crowd:
    """The numbers of DataLoader workers and of CPUs for them."""

    num_workers: int
    """Per rank."""
    num_ranks: int
    num_cpus: int
    evidence: tuple[Evidence, ...]

    @property
    def total(self) -> int:
        return self.num_workers * self.num_ranks


class TooManyWorkers(Rule):
    """More DataLoader workers were started than the job has CPUs for.

    What it sees
        num_workers times the ranks of a node, compared with the job's CPUs there (counted by the sampler,
        else as requested). For a job that coach did not launch: torch's own warning, which names both
        numbers. Signs that it costs time are busy CPUs (all in use by the job itself, or most of them while
        tasks wait for one), steps that wait for data, and a slow first step of each epoch, in which all
        workers start.
    Why it matters
        The workers take CPU time from each other and from the training process. Each also needs memory, and
        some seconds to start in every epoch.
    When it stays silent
        Up to two workers for each CPU, because loaders that wait for a disk can share one. Without a measured
        cost it is only info. Waiting tasks on the node do not count while the job does not use most of its
        own CPUs, because other jobs may cause them.
    What to do
        Use as many workers as each rank has CPUs, minus one for the training itself; then measure with fewer.
        If samples are expensive to make, request more CPUs per task.
    Sources
        torch.utils.data, the warning of DataLoader; ML Engineering (Bekman), "DataLoader": the optimum
        measured there was 3.
    """

    code = "DAT001"
    name = "too-many-workers"
    cause = "too_many_workers"
    severity = Severity.WARNING
    needs = (Need.HOST_TELEMETRY, Need.METRICS, Need.LOG)
    workers_per_cpu = Threshold(2, "workers", "up to two share a CPU well, as one of them waits")
    cpu_pct = Threshold(90, "percent of the allotted CPUs", "no CPU is left for one more process")
    pressure_pct = Threshold(20, "percent of the time", "some task waits for a CPU")
    own_cpu_pct = Threshold(40, "percent of the allotted CPUs", "with less, mostly other programs wait")
    data_share = Threshold(0.10, "of step time", "the workers deliver too late")
    min_samples = Threshold(10, "samples", "the first samples show the start-up", at_least=1)

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        crowd = _launched(snapshot, history) or _warned_of(snapshot)
        if crowd is None or crowd.total <= self.workers_per_cpu * crowd.num_cpus:
            return
        costs = tuple(self._costs(snapshot, history))
        ranks = f" of {crowd.num_ranks} ranks" if crowd.num_ranks > 1 else ""
        wanted = max(1, crowd.num_cpus // crowd.num_ranks - 1)
        run = snapshot.run
        is_known = int_parameter(run, "num_workers") is not None
        yield Hit(
            summary=(
                f"{crowd.total} DataLoader workers{ranks} share {crowd.num_cpus} "
                f"CPU{'s' * (crowd.num_cpus > 1)}"
            ),
            evidence=(*crowd.evidence, *costs),
            confidence=0.9 if costs else 0.7,
            fixes=(
                Fix(
                    f"DataLoader workers {crowd.num_workers} → {wanted} per rank",
                    {"num_workers": wanted} if is_known else {},
                ),
            ),
            severity=None if costs else Severity.INFO,
        )

    def _costs(self, snapshot: TargetSnapshot, history: History) -> Iterable[Evidence]:
        """Evidence that the workers slow each other down."""
        for node in history.nodes:
            samples = training_host_samples(snapshot, history, node)
            if len(samples) < self.min_samples:
                continue
            cpu, pressure = means_of(samples, "cpu_pct"), means_of(samples, "cpu_pressure_pct")
            if cpu is not None and cpu >= self.cpu_pct:
                text = f"use of the allotted CPUs of {node} while it trained, mean of {len(samples)} samples"
                yield Evidence.percent(text, cpu)
            elif pressure is not None and pressure >= self.pressure_pct and (cpu or 0.0) >= self.own_cpu_pct:
                text = f"share of the time in which some task waited for a CPU of {node}"
                yield Evidence.percent(text, pressure)
        shares = data_shares(snapshot, history, self.min_samples)
        worst = max(shares, key=lambda rank: shares[rank], default=None)
        if worst is not None and shares[worst] >= self.data_share:
            text = f"share of step time spent waiting for data, rank {worst}"
            yield Evidence(text, value=round(shares[worst], 4), unit="of step time")
        for rank in history.ranks[:1]:
            share = _share_of_epoch_starts(history.steps(rank))
            if share is not None and share >= self.data_share:
                text = (
                    "share of step time in which the first step of an epoch waits for all workers, rank "
                    f"{rank}"
                )
                yield Evidence(text, value=round(share, 4), unit="of step time")


def _share_of_epoch_starts(steps: Sequence[Step]) -> float | None:
    """Share of all step time that the first steps of later epochs spend waiting for data; None before the
    third epoch."""
    starts = [after for before, after in pairwise(steps) if after.epoch != before.epoch]
    total_s = sum([step.step_time_s or 0.0 for step in islice(steps, 1, None)])
    if len(starts) < 2 or not total_s:
        return None
    return sum([step.data_time_s or 0.0 for step in starts]) / total_s


def _launched(snapshot: TargetSnapshot, history: History) -> _Crowd | None:
    workers = int_parameter(snapshot.run, "num_workers")
    counted = [host.num_cpus for node in history.nodes for host in history.host(node)[-1:] if host.num_cpus]
    cpus = min(counted, default=None) or int_resource(snapshot.run, "cpus_per_task")
    if workers is None or cpus is None:
        return None
    ranks = int_resource(snapshot.run, "nproc_per_node") or 1
    how = "that the job has on a node" if counted else "requested on a node"
    return _Crowd(
        workers,
        ranks,
        cpus,
        (
            Evidence("DataLoader workers per rank (num_workers)", value=workers),
            Evidence(f"CPUs {how}", value=cpus),
        ),
    )


def _warned_of(snapshot: TargetSnapshot) -> _Crowd | None:
    """The numbers in torch's warning, which counts the CPUs that the process may use."""
    hits = hits_of(snapshot, "DAT001")
    if not hits:
        return None
    return _Crowd(int(hits[0].fields["workers"]), 1, int(hits[0].fields["cpus"]), (quote(hits[0]),))
