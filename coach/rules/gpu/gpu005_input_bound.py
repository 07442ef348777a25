"""GPU005: the steps wait for their data. It reads the trainer's own step times, so it works on CPUs as
well."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from statistics import median

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit, Severity, Subject
from coach.model.snapshot import TargetSnapshot
from coach.model.training.metrics import Step
from coach.model.training.run import Run
from coach.rules.advice.launched_with import cpus_per_rank, int_parameter, int_resource
from coach.rules.advice.remedies import workers
from coach.rules.base import Need, Rule, Threshold
from coach.rules.from_logs.quoted_evidence import ranks_text
from coach.rules.from_numbers.stack_bursts import burst_evidence, newest_bursts
from coach.rules.from_numbers.telemetry_windows import (
    mean_of,
    means_of,
    training_host_samples,
    training_phases,
)
from coach.rules.from_numbers.training_windows import (
    MIN_LINES,
    SteadySteps,
    newest_steady_steps,
    places_in_training,
)


class InputBound(Rule):
    """The steps wait for their data: the loader is slower than the training.

    What it sees
        The share of step time that ranks spend waiting for the next batch (data_time_s over step_time_s),
        summed over the newest steady steps, because DataLoader workers deliver in bursts that a median over
        steps would hide. The rank that waits most decides, because the others wait for it in the collective.
        If the training reports no such times: the share of sampled stacks in the data loader, on at least
        half of the ranks.
    Why it matters
        GPUs train nothing while they wait. The waiting share is the most that a faster data path can gain.
    When it stays silent
        On the first steps of the run, of an epoch and after a resume, when workers start. On fewer steady
        steps than `min_steps`, or fewer lines of a log than `min_lines` that stand for so many, in less time
        than `min_window_s`, and on waits too short to be worth a worker.
        While the GPUs are busy (`busy_gpu_pct`): their queue of kernels then hides the wait. In a training on
        CPUs it is info up to `starved_share` while the job uses all its CPUs, or has workers while other jobs
        use the rest of the node: loaders and training then compete for CPUs, and one more worker would not
        help.
    What to do
        Use more DataLoader workers, up to the CPUs of each rank; beyond that ask for more CPUs per task. Set
        pin_memory and persistent_workers, stage the data on the node in few large files, decode less per
        sample.
    Sources
        TraceML's input-wait bands (10 % and 20 %); gpu-idle's guard on busy GPUs; the PyTorch performance
        tuning guide.
    """

    code = "GPU005"
    name = "input-bound"
    cause = "input_bound"
    severity = Severity.WARNING
    needs = (Need.METRICS, Need.STACKS)
    keep_s = 10.0
    warning_share = Threshold(
        0.10, "of step time", "a tenth of the time is worth one more worker", at_least=0.001
    )
    critical_share = Threshold(
        0.20, "of step time", "a fifth of the allocation trains nothing", at_least=0.001
    )
    min_steps = Threshold(20, "steps", "fewer steady steps vary too much to judge", at_least=1)
    min_lines = Threshold(
        MIN_LINES, "lines", "where a line stands for many steps: fewer may be a cold start", at_least=1
    )
    min_window_s = Threshold(
        5, "seconds of steps", "within a shorter time the start of workers and caches still shows"
    )
    window_steps = Threshold(
        200,
        "steps",
        "long enough to span the bursts of all workers, short enough to follow changes",
        at_least=1,
    )
    skip_steps = Threshold(
        3, "steps", "starting workers is paid at the beginning of an epoch, not in every step"
    )
    min_wait_s = Threshold(0.001, "seconds", "handing over a batch always costs some hundred microseconds")
    busy_gpu_pct = Threshold(
        80, "percent", "a GPU this busy has work queued: waiting for data costs it nothing"
    )
    stack_share = Threshold(
        0.5, "of the stacks", "half of 20 stacks is not chance if the true share is below 0.3"
    )
    full_cpu_pct = Threshold(90, "percent", "no CPU is left for one more worker")
    starved_share = Threshold(
        0.35, "of step time", "a lack of CPUs slows the training as well as its loaders"
    )

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        if any(_tells_its_waits(history.steps(rank)) for rank in history.ranks):
            yield from self._by_steps(snapshot, history)
        else:
            yield from self._by_stacks(snapshot, history)

    def _by_steps(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        """Hits from the time that each step waited for its batch."""
        waits = [
            wait
            for rank in history.ranks
            if (wait := self._newest(snapshot, history, rank)).is_long(
                self.min_steps, self.min_window_s, self.min_lines
            )
        ]
        slow = [wait for wait in waits if self._is_slow(wait)]
        if not slow:
            return
        worst = max(slow, key=lambda wait: wait.data_share)
        busy = _gpu_utilization(snapshot, history, worst)
        if busy is not None and busy >= self.busy_gpu_pct:
            return
        is_critical = worst.data_share >= self.critical_share
        bound = self.critical_share if is_critical else self.warning_share
        cpus = self._full_cpus(snapshot, history) if worst.data_share < self.starved_share else None
        ranks = sorted(wait.rank for wait in slow)
        severity = Severity.CRITICAL if is_critical else Severity.WARNING
        if cpus is not None:
            severity = Severity.INFO
        yield Hit(
            summary=f"Input-bound: {worst.data_share:.0%} of each step waits for data" + _of(ranks, history),
            evidence=tuple(_evidence(worst, waits, busy, cpus)),
            confidence=round(
                min(
                    0.97,
                    0.6
                    + 0.2 * min(1.0, worst.data_share / bound - 1)
                    + 0.2 * min(1.0, len(worst.steps) / 60),
                ),
                2,
            ),
            subject=Subject(rank=ranks[0] if len(ranks) == 1 and len(history.ranks) > 1 else None),
            fixes=tuple(_fixes(snapshot.run, history, worst.data_s, worst.total_s)),
            severity=severity,
            since_s=worst.steps[0].time_s,
        )

    def _by_stacks(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        """Hits from the stacks that were sampled once after warm-up."""
        bursts = newest_bursts(snapshot, is_stall=False)
        slow = [burst for burst in bursts if burst.share("data") >= self.stack_share]
        if not slow or 2 * len(slow) < len(bursts):
            return
        start_s = min(burst.time_s for burst in slow)
        busy = [_busy_around(history, key, start_s) for key in history.gpus]
        if any(pct is not None and pct >= self.busy_gpu_pct for pct in busy):
            return
        worst = max(slow, key=lambda burst: burst.share("data"))
        share = worst.share("data")
        cpus = self._full_cpus(snapshot, history) if share < 1 - self.starved_share else None
        yield Hit(
            summary=f"Input-bound: {share:.0%} of the stacks of {worst.label} stand in the data loader, "
            f"{worst.place}",
            evidence=burst_evidence(slow),
            confidence=0.8,
            fixes=tuple(_fixes(snapshot.run, history, min(share, 0.95), 1.0)),
            severity=Severity.INFO if cpus is not None else Severity.WARNING,
            since_s=start_s,
        )

    def _full_cpus(self, snapshot: TargetSnapshot, history: History) -> Evidence | None:
        """The use of the busiest CPUs, if loaders and training on CPUs compete for too few CPUs; else
        None."""
        is_on_cpus = not history.gpus or (snapshot.run is not None and snapshot.run.num_gpus == 0)
        if not is_on_cpus:
            return None
        has_workers = int_parameter(snapshot.run, "num_workers") != 0
        found: list[tuple[float, str]] = []
        for node in history.nodes:
            samples = training_host_samples(snapshot, history, node)
            own_pct, node_pct = means_of(samples, "cpu_pct"), means_of(samples, "node_cpu_pct")
            found += [] if own_pct is None else [(own_pct, f"the job's CPUs on {node}")]
            # Without workers, other jobs on the node do not matter.
            found += [] if node_pct is None or not has_workers else [(node_pct, f"all CPUs of {node}")]
        fullest, whose = max(found, default=(0.0, ""))
        if fullest < self.full_cpu_pct:
            return None
        return Evidence.percent(f"use of {whose} during the training, mean", fullest)

    def _newest(self, snapshot: TargetSnapshot, history: History, rank: int) -> SteadySteps:
        """The newest steady steps of one rank; more of them if the steps are so fast that they cover too
        little time."""
        count, skip = int(self.window_steps), int(self.skip_steps)
        while True:
            found = newest_steady_steps(snapshot, history, rank, count, skip)
            if found.total_s >= self.min_window_s or count >= len(history.steps(rank)):
                return found
            count *= 4

    def _is_slow(self, wait: SteadySteps) -> bool:
        mean_s = wait.data_s / len(wait.steps)
        return wait.data_share >= self.warning_share and mean_s >= self.min_wait_s


def _gpu_utilization(snapshot: TargetSnapshot, history: History, wait: SteadySteps) -> float | None:
    """Mean utilization of the least busy GPU while these steps ran."""
    start, end = wait.steps[0].time_s, wait.steps[-1].time_s
    if start is None or end is None:
        return None
    found = training_phases(snapshot, history)
    means = []
    for key in history.gpus:
        series = history.gpu_series(*key)
        meanwhile = range(bisect_left(series.times, start), bisect_right(series.times, end))
        places = places_in_training(series, found, meanwhile)
        used = mean_of(series, "utilization_pct", places)
        if used is not None:
            means.append(used)
    return min(means, default=None)


def _of(ranks: Sequence[int], history: History) -> str:
    return f" ({ranks_text(ranks)} of {len(history.ranks)})" if len(history.ranks) > 1 else ""


def _tells_its_waits(steps: Sequence[Step]) -> bool:
    """True if the newest step has both times: a wait alone is no share of the step."""
    return bool(steps) and steps[-1].data_time_s is not None and steps[-1].step_time_s is not None


def _busy_around(history: History, key: tuple[str, int], start_s: float) -> float | None:
    """Mean utilization of one GPU over the ten seconds of a burst."""
    series = history.gpu_series(*key)
    meanwhile = range(bisect_left(series.times, start_s - 10), bisect_right(series.times, start_s + 10))
    return mean_of(series, "utilization_pct", meanwhile)


def _evidence(
    worst: SteadySteps, waits: list[SteadySteps], busy: float | None, cpus: Evidence | None
) -> Iterable[Evidence]:
    first, last = worst.steps[0].step, worst.steps[-1].step
    window = f"rank {worst.rank}, steps {first} to {last}"
    yield Evidence(
        f"share of step time spent waiting for data ({window})",
        value=round(worst.data_share, 4),
        unit="of step time",
    )
    yield Evidence(
        f"data time, median ({window})", value=median(s.data_time_s or 0.0 for s in worst.steps), unit="s"
    )
    yield Evidence(
        f"step time, median ({window})", value=median(s.step_time_s or 0.0 for s in worst.steps), unit="s"
    )
    if len(waits) > 1:
        least = min(waits, key=lambda wait: wait.data_share)
        yield Evidence(
            f"the same share on rank {least.rank}, which waits least",
            value=round(least.data_share, 4),
            unit="of step time",
        )
    if busy is not None:
        yield Evidence.percent("utilization of the least busy GPU meanwhile, mean", busy)
    if cpus is not None:
        yield cpus


def _fixes(run: Run | None, history: History, data_s: float, total_s: float) -> Iterable[Fix]:
    """`data_s` of `total_s` seconds were spent waiting for data."""
    now = int_parameter(run, "num_workers")
    if run is None or now is None:
        yield Fix(
            "More DataLoader workers, up to the CPUs that each rank has, with persistent_workers and "
            "pin_memory"
        )
        return
    compute_s = max(total_s - data_s, 0.01 * total_s)
    # `now` loaders (for 0 the training process itself) deliver one batch per present step. `needed` loaders
    # keep up with the compute time alone.
    busy_s = total_s if now else data_s
    needed = math.ceil(round(max(now, 1) * busy_s / compute_s, 3)) + (0 if now else 1)
    cpus = cpus_per_rank(run, _cpus_allotted(history))
    more = tuple(workers(run, needed, cpus)) if needed > now else ()
    if cpus is not None and needed > cpus and run.backend == "slurm":
        wanted = needed * (int_resource(run, "nproc_per_node") or 1)
        with_cpus = Fix(
            f"CPUs per task → {wanted}, or all that a node has, with {needed} workers per rank: the loaders "
            "need about that many",
            {"cpus_per_task": wanted, "num_workers": needed},
        )
        has_too_few = 2 * cpus <= needed  # as many workers as these CPUs would hardly be faster
        yield from (with_cpus, *more) if has_too_few else (*more, with_cpus)
    else:
        yield from more
    if not more:
        yield Fix(
            "Make each sample cheaper: decode and augment less, or prepare the data once in few large "
            "files on the node"
        )


def _cpus_allotted(history: History) -> int | None:
    counts = [
        host.num_cpus for node in history.nodes for host in list(history.host(node))[-1:] if host.num_cpus
    ]
    return min(counts, default=None)
