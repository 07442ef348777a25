"""The evaluations of a training, and whether its accuracy is that of guessing.

The first loss of a classifier is the logarithm of the number of its classes, as long as it has learned
nothing. So it tells the accuracy of guessing without any word about the classes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from coach.lookback.history import History
from coach.model.snapshot import TargetSnapshot
from coach.model.training.metrics import Counter

_LEAST = 4
"""Fewer accuracies may lie before the first success."""
_BETTER = 0.5
"""How far above the accuracy of guessing evenly a guess may be: classes have unequal sizes. Of the accuracy
times its distance from 1."""
_OF_TWO_CLASSES = 0.6
"""No classifier begins below it: ln 2 is 0.69. A model that has learned before does."""


def accuracies(snapshot: TargetSnapshot, history: History) -> list[float]:
    """The accuracies beside the training losses, else those of the evaluations, in order."""
    steps = [step.accuracy for rank in history.ranks[:1] for step in history.steps(rank)]
    beside = [each for each in steps if each is not None]
    return beside or evaluated(snapshot, "accuracy")


def num_beside_steps(snapshot: TargetSnapshot) -> int:
    """Number of evaluations that are numbered by steps. A program may print the last one beside each step."""
    evaluations = (event for event in snapshot.events if event.event == "eval")
    return sum(event.counter is not Counter.EPOCH for event in evaluations)


def are_guesses(values: Iterable[float], history: History) -> bool:
    """True if no accuracy of a classifier is better than guessing among as many classes as its first loss
    tells."""
    first, shares = first_loss(history), list(values)
    if first is None or not _OF_TWO_CLASSES <= first < math.inf or len(shares) < _LEAST:
        return False
    even = math.exp(-first)
    return min(shares) > 0 and max(shares) <= even + _BETTER * even * (1 - even)


def first_loss(history: History) -> float | None:
    """The first loss of the lowest rank; None if its first steps are no longer known."""
    for rank in history.ranks[:1]:
        steps = history.steps(rank)
        if len(steps) == history.num_steps(rank):
            return next((step.loss for step in steps if step.loss is not None), None)
    return None


def evaluated(snapshot: TargetSnapshot, field: str) -> list[float]:
    """The values of a field (`loss`, `accuracy`) of the evaluations, in order."""
    told = (event.fields.get(field) for event in snapshot.events if event.event == "eval")
    return [float(each) for each in told if isinstance(each, (int, float))]
