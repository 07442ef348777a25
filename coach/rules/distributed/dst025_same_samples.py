"""DST025: several ranks train on the same samples."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, compress, pairwise
from statistics import fmean, median

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit, Severity
from coach.model.snapshot import TargetSnapshot
from coach.model.training.metrics import Step
from coach.rules.base import Need, Rule, Threshold
from coach.rules.from_logs.quoted_evidence import ranks_text
from coach.rules.from_numbers.training_windows import newest_steps, num_parts

_MIN_AGREEMENT = 0.65
"""Share of equal signs of two courses below which the pair is not compared further. It spares almost all
pairs of independent ranks."""


class SameSamples(Rule):
    """Several ranks train on the same samples.

    What it sees
        The losses that each rank wrote, step by step (metrics/rank-<r>.jsonl). In data-parallel training all
        ranks have the same parameters, so a rank's deviation from the mean loss depends only on its samples.
        Ranks have the same samples if their deviations change together from step to step (correlation). All
        ranks have the same samples if their losses agree to the fifth digit and the program declares each
        loss as the rank's own (`loss_of: "rank"` in its start record). The number of groups is compared with
        the number of parts that the ranks report (num_samples_global over num_samples).
    Why it matters
        The extra devices raise samples per second but not progress: the effective batch is as large as with
        one device, and part of the data may never be seen. It is easy to miss: nothing fails, and the loss
        falls.
    When it stays silent
        If all ranks write the same loss without declaring it as their own: a loss that was averaged over the
        ranks (all_reduce, sync_dist, gather) looks the same. If a loss hardly changes. If ranks share samples
        by design (tensor and pipeline parallelism) and report it. On two ranks that augment the same samples
        differently: there is no third rank to compare with. On fewer steps than `min_steps`.
    What to do
        Use DistributedSampler without a `rank` argument: it then reads WORLD_SIZE and RANK. Do not pass
        LOCAL_RANK, which starts at 0 on every node, so that all nodes would read the same samples. For an
        IterableDataset, split the data and seed it by rank.
    Sources
        PyTorch, torch.utils.data.distributed.DistributedSampler; ML Engineering (Bekman), "DataLoader".
    """

    code = "DST025"
    name = "same-samples"
    cause = "same_samples"
    severity = Severity.WARNING
    needs = (Need.METRICS,)
    min_steps = Threshold(60, "steps", "chance then makes one pair in a million look alike", at_least=1)
    correlation = Threshold(
        0.7, "of the deviations' changes", "five standard deviations of chance at 60 steps"
    )
    equal_share = Threshold(
        1e-5, "of the loss", "rounding and the order of sums change one value by this much"
    )

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        ranks = history.ranks
        expected = (num_parts(history) or 1) if len(ranks) > 1 else 1
        if expected < 2:
            return
        count = int(self.min_steps)
        losses = _losses({rank: newest_steps(history.steps(rank), count + 20) for rank in ranks})
        num_steps = len(next(iter(losses.values())))
        if num_steps < max(2, count):
            return
        is_equal = self._are_all_equal(losses)
        if is_equal and not (_are_own(snapshot, ranks) and _differ(losses[ranks[0]])):
            return
        groups = [list(ranks)] if is_equal else self._groups(losses)
        if len(groups) >= min(expected, len(ranks)):
            return
        twins = max(groups, key=len)
        deviation = median(abs(a - b) for a, b in zip(losses[twins[0]], losses[twins[1]], strict=True))
        yield Hit(
            summary=(
                f"{ranks_text(twins)} train on the same samples: of {expected} parts of the data there are "
                f"{len(groups)}"
            ),
            evidence=(
                Evidence(
                    f"steps in which their losses go together, of the newest {num_steps}", value=num_steps
                ),
                Evidence(
                    f"difference of the losses of ranks {twins[0]} and {twins[1]}, median", value=deviation
                ),
                Evidence("ranks that see the same: " + "; ".join(ranks_text(group) for group in groups[:8])),
            ),
            confidence=0.8 if is_equal else 0.9,
            fixes=(
                Fix(
                    "Let DistributedSampler take WORLD_SIZE and RANK by itself, and never LOCAL_RANK",
                    changes_learning=True,
                ),
            ),
        )

    def _are_all_equal(self, losses: Mapping[int, Sequence[float]]) -> bool:
        return all(
            max(values) - min(values) <= self.equal_share * abs(values[0])
            for values in zip(*losses.values(), strict=True)
        )

    def _groups(self, losses: Mapping[int, Sequence[float]]) -> list[list[int]]:
        """Groups of ranks whose deviations from the mean of all change together.

        Changes are compared, not deviations: a rank with harder samples always deviates, and running means
        drift, so deviations may agree although the samples differ.
        """
        means = [fmean(values) for values in zip(*losses.values(), strict=True)]
        deviations = {
            rank: [value - mean for value, mean in zip(values, means, strict=True)]
            for rank, values in losses.items()
        }
        courses = {rank: _changes(values) for rank, values in deviations.items()}
        least = self.equal_share * abs(fmean(means))  # smaller changes of a smooth course are rounding
        loud = [rank for rank, course in courses.items() if max(map(abs, course)) > least]
        signs = {
            rank: sum((value > 0) << place for place, value in enumerate(course))
            for rank, course in courses.items()
        }
        group_of = {rank: rank for rank in losses}
        for a, b in combinations(loud, 2):
            agreement = 1 - (signs[a] ^ signs[b]).bit_count() / (len(means) - 1)
            if agreement < _MIN_AGREEMENT or group_of[a] == group_of[b]:
                continue
            if _correlation(courses[a], courses[b]) >= self.correlation:
                old, new = group_of[b], group_of[a]
                group_of = {rank: new if group == old else group for rank, group in group_of.items()}
        groups: dict[int, list[int]] = {}
        for rank, group in group_of.items():
            groups.setdefault(group, []).append(rank)
        return list(groups.values())


def _are_own(snapshot: TargetSnapshot, ranks: Sequence[int]) -> bool:
    """True if each rank declares that its losses are those of its own samples."""
    said = {event.rank: event.fields["loss_of"] for event in snapshot.events if "loss_of" in event.fields}
    return all(said.get(rank) == "rank" for rank in ranks)


def _differ(losses: Sequence[float]) -> bool:
    """True if the losses depend on the batch. A rounded, clipped or minimal loss is the same on all ranks for
    any samples."""
    return 2 * len(set(losses)) > len(losses)


def _losses(window: Mapping[int, Sequence[Step]]) -> dict[int, list[float]]:
    """Rank → losses of the steps that all ranks have made."""
    by_step = {
        rank: {step.step: step.loss for step in steps if step.loss is not None}
        for rank, steps in window.items()
    }
    common = sorted(set.intersection(*map(set, by_step.values())))
    losses = {rank: [found[step] for step in common] for rank, found in by_step.items()}
    if not math.isfinite(sum(map(sum, losses.values()))):
        are_finite = [all(map(math.isfinite, values)) for values in zip(*losses.values(), strict=True)]
        losses = {rank: [*compress(values, are_finite)] for rank, values in losses.items()}
    return losses


def _changes(values: Sequence[float]) -> list[float]:
    """The changes from step to step, minus their mean, which is a trend."""
    trend = (values[-1] - values[0]) / (len(values) - 1)
    return [b - a - trend for a, b in pairwise(values)]


def _correlation(a: Sequence[float], b: Sequence[float]) -> float:
    together = sum(x * y for x, y in zip(a, b, strict=True))
    scale = math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))
    return together / scale if scale else 0.0
