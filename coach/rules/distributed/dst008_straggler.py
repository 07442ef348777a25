"""DST008: one rank is slower than the others, and all wait for it in every step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit, Severity, Subject
from coach.model.snapshot import TargetSnapshot
from coach.model.training.metrics import Step
from coach.model.training.stacks import StackBurst
from coach.rules.advice.launched_with import has_uneven_ranks
from coach.rules.advice.remedies import leave_out
from coach.rules.base import Need, Rule, Threshold
from coach.rules.from_logs.quoted_evidence import ranks_text
from coach.rules.from_numbers.stack_bursts import burst_evidence, newest_bursts, waiting_share
from coach.rules.from_numbers.training_windows import newest_steps, share_samples

_NUM_PARTS = 8
_MIN_PARTS = 7
"""Number of the window's eight parts in which the rank must be late. By chance this happens in at most one of
25 windows, and hardly ever twice to the same rank."""

_NUM_FIRST = 48
"""Steps of the first look."""

_Measure = Callable[[Step], float | None]
_WHOLE = "step time"


@dataclass(frozen=True, slots=True)
class _Late:
    """One rank's delay per step, compared with the others."""

    rank: int
    lag_s: float
    own_s: float
    others_s: float


class Straggler(Rule):
    """One rank is slower than the others, and all wait for it in every step.

    What it sees
        The time that each rank itself needs for a step: step time minus the wait for the other ranks'
        gradients (comm_time_s). If that wait was not measured: the rank's wait for its own data, or the whole
        step time if ranks do not wait for each other. The same steps of all ranks are compared in eight parts
        of the newest window; the rank must be behind the median of the others in seven. If no rank reports
        times: sampled stacks in which one rank stands in its data loader or its own code while the others
        wait in a collective.
    Why it matters
        In data-parallel training all ranks finish a step together, so every GPU of the job waits for one slow
        rank.
    When it stays silent
        On noise: single slow steps, or a different slow rank each time. If more than half of the ranks are
        behind, because then the others are unusually fast. If the ranks differ by design (pipeline, 3-D), or
        report that several of them work on the same samples. If neither the wait nor the data time shows a
        difference.
    What to do
        Find the difference of this rank: its part of the data (larger or slower samples), its node (other
        programs, clocks, disk), work that it does for all (logging, saving). If the same node is slow again
        with other ranks, leave it out.
    Sources
        NVIDIA resiliency extension (a rank's score below 0.75); TraceML's straggler rule; PyTorch,
        DistributedDataParallel's runtime statistics.
    """

    code = "DST008"
    name = "straggler"
    cause = "straggler"
    severity = Severity.WARNING
    needs = (Need.METRICS, Need.STACKS)
    keep_s = 10.0
    lag_share = Threshold(0.15, "of step time", "between TraceML's bands (0.1 and 0.2)", at_least=0.001)
    min_lag_s = Threshold(0.002, "seconds", "less is the scheduling of the operating system")
    min_window_s = Threshold(5, "seconds of steps", "a shorter time may be one hiccup")
    min_steps = Threshold(16, "steps in which it was measured", "two for each part of the window", at_least=1)
    window_steps = Threshold(250, "steps", "long enough to span the bursts of all loaders", at_least=1)
    stack_share = Threshold(
        0.5, "of the stacks", "half of 20 stacks is not chance if the true share is below 0.3"
    )
    skip_steps = Threshold(10, "steps at the start", "libraries are loaded and kernels chosen in them")

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        if has_uneven_ranks(snapshot.run):
            return
        if len(history.ranks) < 2:
            yield from self._by_stacks(snapshot)
            return
        if share_samples(history):
            return
        newest = {rank: newest_steps(history.steps(rank), _NUM_FIRST) for rank in history.ranks}
        measures = {
            what: measure for what, measure in _MEASURES.items() if self._may_be_late(newest, measure)
        }
        if not measures:
            return
        count = int(self.window_steps)
        window = {rank: newest_steps(history.steps(rank), count) for rank in history.ranks}
        for what, measure in measures.items():
            late = self._late(window, measure)
            if late and 2 * len(late) <= len(window):
                behind = self._late(window, _wait_for_data) if measure is not _wait_for_data else late
                by_data = any(found.rank == late[0].rank for found in behind)
                yield self._hit(snapshot, what, late, median(_step_times(window)), by_data)
                return

    def _by_stacks(self, snapshot: TargetSnapshot) -> Iterable[Hit]:
        """Hits from the stacks that were sampled once after warm-up."""
        bursts, least = newest_bursts(snapshot, is_stall=False), self.stack_share
        if not all(burst.has_steps for burst in bursts):
            return  # one rank prepares the data for all before the first step
        late = [burst for burst in bursts if self._keeps_others(burst)]
        others = [burst for burst in bursts if burst not in late]
        is_waited_for = 0 < len(late) <= len(others)
        if is_waited_for and all(waiting_share(each) >= least for each in others):
            yield _hit_by_stacks(snapshot, late, others, least)

    def _keeps_others(self, burst: StackBurst) -> bool:
        """True if the rank hardly waits for others and does something else than they do."""
        is_apart = burst.share("data", "other") >= self.stack_share
        return burst.rank is not None and is_apart and waiting_share(burst) < 1 - self.stack_share

    def _late(self, window: Mapping[int, Sequence[Step]], measure: _Measure) -> list[_Late]:
        """The ranks that are late by this measure, the slowest first."""
        values = {
            rank: {s.step: value for s in steps if (value := measure(s)) is not None}
            for rank, steps in window.items()
        }
        common = sorted(set.intersection(*(set(found) for found in values.values())))
        common = [step for step in common if step > self.skip_steps]
        if len(common) < max(_NUM_PARTS, self.min_steps):
            return []
        step_s = median(_step_times(window))
        if (common[-1] - common[0]) * step_s < self.min_window_s:
            return []
        bounds = [len(common) * part // _NUM_PARTS for part in range(_NUM_PARTS + 1)]
        parts = [common[a:b] for a, b in pairwise(bounds)]
        means = {rank: [fmean([found[s] for s in part]) for part in parts] for rank, found in values.items()}
        least = max(self.lag_share * step_s, self.min_lag_s)
        late = []
        for rank, mine in means.items():
            others = [median(of[part] for r, of in means.items() if r != rank) for part in range(_NUM_PARTS)]
            lags = [own - other for own, other in zip(mine, others, strict=True)]
            if median(lags) >= least and sum(lag >= least / 2 for lag in lags) >= _MIN_PARTS:
                late.append(_Late(rank, median(lags), median(mine), median(others)))
        return sorted(late, key=lambda found: -found.lag_s)

    def _may_be_late(self, newest: Mapping[int, Sequence[Step]], measure: _Measure) -> bool:
        """Fast path: False if the means of the newest steps show no late rank."""
        means = []
        for steps in newest.values():
            known = [value for step in steps if (value := measure(step)) is not None]
            if not known:
                return False
            means.append(sum(known) / len(known))
        step_times = _step_times(newest)
        least_s = 0.25 * self.lag_share * median(step_times) if step_times else 0.0
        return bool(step_times) and max(means) - median(means) >= least_s

    def _hit(
        self, snapshot: TargetSnapshot, what: str, late: list[_Late], step_s: float, by_data: bool
    ) -> Hit:
        worst = late[0]
        node = _only_one([_node_of(snapshot, found.rank) for found in late])
        who = ranks_text(sorted(found.rank for found in late)) + (f" on {node}" if node else "")
        share = worst.lag_s / step_s
        job = snapshot.job.job_id if snapshot.job is not None else snapshot.target
        is_known = snapshot.state is not None and not snapshot.has_ended
        told = f"All ranks wait for {who}: {share:.0%} of each step"
        if what == _WHOLE and worst.others_s > 0:  # of ranks that wait for each other, it is the same
            times = f"{worst.own_s / worst.others_s:.1f} times the step time of the others"
            told = f"{who[0].upper()}{who[1:]} {'needs' if len(late) == 1 else 'need'} {times}"
        return Hit(
            summary=told
            + (f", because {'its' if len(late) == 1 else 'their'} data come later" if by_data else ""),
            evidence=(
                Evidence(f"{what}, rank {worst.rank}, per step", value=round(worst.own_s, 4), unit="s"),
                Evidence(f"{what}, median of the other ranks", value=round(worst.others_s, 4), unit="s"),
                Evidence("step time, median of all ranks", value=round(step_s, 4), unit="s"),
            ),
            confidence=round(min(0.95, 0.75 + 0.2 * min(1.0, share / self.lag_share - 1)), 2),
            subject=Subject(node=node, rank=worst.rank) if len(late) == 1 else Subject(),
            fixes=(
                Fix(
                    f"Look at the data of rank {worst.rank}: larger samples, a slower disk, too few CPUs "
                    "for its workers"
                ),
            )
            if by_data
            else (
                Fix(
                    (
                        f"Find out how rank {worst.rank} differs from the others: its node, or work that "
                        "it does for all"
                    ),
                    command=f"coach stacks {job}" if is_known else None,
                ),
                *leave_out(snapshot.run, node, "if it is slow again with other ranks"),
            ),
        )


def _hit_by_stacks(
    snapshot: TargetSnapshot, late: Sequence[StackBurst], others: Sequence[StackBurst], least: float
) -> Hit:
    worst = max(late, key=lambda burst: burst.share("data"))
    by_data = worst.share("data") >= least
    who = ranks_text(sorted(burst.rank for burst in late if burst.rank is not None))
    stands = "it" if len(late) == 1 else f"rank {worst.rank}"
    return Hit(
        summary=f"All ranks wait for {who}: {stands} stands in {worst.place}"
        + (", in its data loader" if by_data else ""),
        evidence=burst_evidence([*late, *others]),
        confidence=0.8,
        subject=Subject(node=worst.node, rank=worst.rank) if len(late) == 1 else Subject(),
        fixes=(Fix(f"Look at the data of rank {worst.rank}: larger samples, a slower disk, too few workers"),)
        if by_data
        else (
            Fix(f"Find out how rank {worst.rank} differs there from the others"),
            *leave_out(
                snapshot.run,
                _only_one([burst.node for burst in late]),
                "if it is slow again with other ranks",
            ),
        ),
        since_s=worst.time_s,
    )


def _own_time(step: Step) -> float | None:
    if step.step_time_s is None or step.comm_time_s is None:
        return None
    return max(0.0, step.step_time_s - step.comm_time_s)


def _wait_for_data(step: Step) -> float | None:
    return step.data_time_s


_MEASURES: Mapping[str, _Measure] = {
    "own work, without the wait for the others": _own_time,
    "wait for its data": _wait_for_data,
    _WHOLE: lambda step: step.step_time_s,
}


def _step_times(window: Mapping[int, Sequence[Step]]) -> list[float]:
    """The newest step times of each rank, as many as a median needs."""
    return [step.step_time_s for steps in window.values() for step in steps[-32:] if step.step_time_s]


def _only_one(nodes: Sequence[str | None]) -> str | None:
    """The node of all late ranks; None if they are on several, or one is not known."""
    return nodes[0] if len(set(nodes)) == 1 else None


def _node_of(snapshot: TargetSnapshot, rank: int) -> str | None:
    for event in snapshot.events:
        node = event.fields.get("node") if event.event == "start" and event.rank == rank else None
        if isinstance(node, str) and node:
            return node
    return None
