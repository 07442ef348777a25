"""Into how many parts the ranks share out the samples, as they say themselves.

It tells ranks that do the same work on samples of their own from the stages and slices of one model, whatever the program is called.
"""

from __future__ import annotations

from coach.lookback.history import History


def num_parts(history: History) -> int | None:
    """How many ranks have samples of their own, by what is said of the newest step; None where nothing is."""
    newest = history.steps(history.ranks[0])[-1] if history.ranks else None
    if newest is None or not newest.num_samples or not newest.num_samples_global:
        return None
    return round(newest.num_samples_global / newest.num_samples)


def share_samples(history: History) -> bool:
    """Whether ranks say that several of them work on the same samples: then their work may differ by design."""
    parts = num_parts(history)
    return parts is not None and parts < len(history.ranks)
