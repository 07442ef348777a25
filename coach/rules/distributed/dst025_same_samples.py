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
"""Of the signs of two courses: a cheap look that sends hardly any pair of independent ranks to the closer
one."""


class SameSamples(Rule):
    """Several ranks train on the same samples.

    What it sees
        The losses of the ranks, step by step, as each wrote its own (metrics/rank-<r>.jsonl). In
        data-parallel training all ranks have the same parameters, so that a rank's deviation from the mean of
        all is its samples' doing: ranks whose deviations change together from step to step (correlation) have
        the same samples; so have all, where their losses are the same to the fifth digit and the program says
        that each is its rank's own (`loss_of: "rank"` in its start record). Counted against the number of
        parts that the ranks themselves say there are (num_samples_global over num_samples).
    Why it matters
        Twice the devices make twice the samples per second, and learn nothing more from it: the batch is as
        large as before, and a part of the data may never be seen. Nothing fails, and the loss falls.
    When it stays silent
        Where all ranks write the same loss and nobody says whose it is: a loss that was averaged over the
        ranks before it was written (all_reduce, sync_dist, gather) looks like that, too. Where a loss hardly
        changes. Where ranks share their samples by design (tensor and pipeline parallelism): they say so. On
        two ranks that augment the same samples each in its own way: then there is no third one to compare
        with. On fewer steps than `min_steps`.
    What to do
        DistributedSampler without a rank of its own: it takes WORLD_SIZE and RANK. LOCAL_RANK starts at 0 on
        every node, so that nodes read the same. A sampler and a seed per rank for an IterableDataset.
    Sources
        PyTorch, torch.utils.data.distributed.DistributedSampler; ML Engineering (Bekman), "DataLoader".
    """

    code = "DST025"
    name = "same-samples"
    cause = "same_samples"
    severity = Severity.WARNING
    needs = (frozenset({Need.METRICS}),)
    thresholds = (
        Threshold("min_steps", 60, "steps", "chance then makes one pair in a million look alike"),
        Threshold(
            "correlation", 0.7, "of the deviations' changes", "five standard deviations of chance at 60 steps"
        ),
        Threshold(
            "equal_share", 1e-5, "of the loss", "what rounding and the order of sums make of one value"
        ),
    )

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        ranks = history.ranks
        expected = (num_parts(history) or 1) if len(ranks) > 1 else 1
        if expected < 2:
            return
        count = int(self.values["min_steps"])
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
            max(values) - min(values) <= self.values["equal_share"] * abs(values[0])
            for values in zip(*losses.values(), strict=True)
        )

    def _groups(self, losses: Mapping[int, Sequence[float]]) -> list[list[int]]:
        """The ranks by whose deviations from the mean of all change together.

        Changes, because a rank with harder samples deviates always, and a running mean drifts: that is alike
        without the samples being so.
        """
        means = [fmean(values) for values in zip(*losses.values(), strict=True)]
        deviations = {
            rank: [value - mean for value, mean in zip(values, means, strict=True)]
            for rank, values in losses.items()
        }
        courses = {rank: _changes(values) for rank, values in deviations.items()}
        least = self.values["equal_share"] * abs(
            fmean(means)
        )  # below it, what is left of a smooth course is rounding
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
            if _correlation(courses[a], courses[b]) >= self.values["correlation"]:
                old, new = group_of[b], group_of[a]
                group_of = {rank: new if group == old else group for rank, group in group_of.items()}
        groups: dict[int, list[int]] = {}
        for rank, group in group_of.items():
            groups.setdefault(group, []).append(rank)
        return list(groups.values())


def _are_own(snapshot: TargetSnapshot, ranks: Sequence[int]) -> bool:
    """Whether each rank says that its losses are those of its own samples."""
    said = {event.rank: event.fields["loss_of"] for event in snapshot.events if "loss_of" in event.fields}
    return all(said.get(rank) == "rank" for rank in ranks)


def _differ(losses: Sequence[float]) -> bool:
    """Whether a loss tells its batch: one that is rounded, clipped or at its floor is the same on all ranks
    whatever they read."""
    return 2 * len(set(losses)) > len(losses)


def _losses(window: Mapping[int, Sequence[Step]]) -> dict[int, list[float]]:
    """The losses of the steps that all ranks have made."""
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
    """From step to step, without their mean: a trend."""
    trend = (values[-1] - values[0]) / (len(values) - 1)
    return [b - a - trend for a, b in pairwise(values)]


def _correlation(a: Sequence[float], b: Sequence[float]) -> float:
    together = sum(x * y for x, y in zip(a, b, strict=True))
    scale = math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))
    return together / scale if scale else 0.0
