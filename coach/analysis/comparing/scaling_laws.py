"""Fit scaling laws to throughput over ranks: Amdahl for fixed work, Gustafson for work that grows with the
ranks, and the Universal Scalability Law for both. Pure.

A law is fitted to the speed-ups by least squares. A forecast is a band, and only near the measurements:
fitted to 32 GPUs at most, Amdahl's law was 13 % below the measured speed-up of 64 GPUs of the same machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

STRONG, WEAK = "strong", "weak"
MIN_SIZES_USL = 5
"""The law has two parameters; with fewer sizes, noise determines one of them."""
MIN_SIZES_FORECAST = 3
MAX_REACH = 4
"""A forecast reaches to this multiple of the largest size measured."""
_Law = Callable[[float, float], float]
"""Share and number of ranks → speed-up."""
_NUM_STEPS = 60
_GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True, slots=True)
class Size:
    """One measurement: samples per second of all ranks together."""

    num_ranks: int
    throughput: float
    global_batch: int | None = None
    """Samples of one step of all ranks; None if not known."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """The speed-up on more ranks than were measured, as two bounds."""

    num_ranks: int
    low: float
    """The lowest value of Amdahl's or Gustafson's law, fitted while leaving out each measurement in turn."""
    high: float
    """Assumes the efficiency of the most ranks measured: efficiency does not rise with more ranks."""


@dataclass(frozen=True, slots=True)
class Scaling:
    """The fitted laws. Speed-ups are relative to one rank; if one rank was not measured, to the fewest ranks,
    whose speed-up is then told as their number."""

    kind: str | None
    """`strong`: the samples of a step are fixed, and shared by all ranks; `weak`: the samples per rank are
    fixed; None: neither, or not known."""
    num_sizes: int
    serial_share: float
    """The share that is not divided among the ranks: by Amdahl's law for fixed work, else by Gustafson's."""
    most: float | None
    """The speed-up that Amdahl's law never exceeds; None for Gustafson's, which has no limit, or if the work
    is not fixed."""
    contention: float | None
    """Sigma of the Universal Scalability Law; None if there are too few sizes."""
    coherence: float | None
    """Kappa of that law: the cost of each pair of ranks."""
    best_num_ranks: float | None
    """The number of ranks at that law's peak; None if it has none."""
    forecasts: tuple[Forecast, ...]


def amdahl(share: float, num_ranks: float) -> float:
    """Speed-up of fixed work, if a `share` of it runs on one rank alone."""
    return 1 / (share + (1 - share) / num_ranks)


def gustafson(share: float, num_ranks: float) -> float:
    """Work done in the same time, if each rank adds its own work and a `share` of the time is not divided."""
    return num_ranks - share * (num_ranks - 1)


def usl(contention: float, coherence: float, num_ranks: float) -> float:
    """Speed-up with contention for shared resources, and a cost for each pair of ranks."""
    return num_ranks / (1 + contention * (num_ranks - 1) + coherence * num_ranks * (num_ranks - 1))


def scaling_of(sizes: Sequence[Size]) -> Scaling | None:
    """Fit the laws; None with fewer than two numbers of ranks."""
    by_ranks = {size.num_ranks: size for size in sizes if size.throughput > 0}
    ordered = [by_ranks[number] for number in sorted(by_ranks)]
    if len(ordered) < 2:
        return None
    first = ordered[0]
    points = [(size.num_ranks, size.throughput / first.throughput * first.num_ranks) for size in ordered]
    kind = _kind(ordered)
    law = _from(amdahl if kind == STRONG else gustafson, first.num_ranks)
    share = _fitted(law, points)
    two = fit_usl(points) if len(points) >= MIN_SIZES_USL else None
    return Scaling(
        kind,
        len(points),
        share,
        law(share, math.inf) if kind == STRONG and share > 0 else None,
        two[0] if two else None,
        two[1] if two else None,
        ((1 - two[0]) / two[1]) ** 0.5 if two and two[1] > 0 and two[0] < 1 else None,
        _forecasts(points),
    )


def _from(law: _Law, fewest: int) -> _Law:
    """The law in the units of the points, in which the speed-up of the fewest ranks is their number."""
    return lambda share, num_ranks: fewest * law(share, num_ranks) / law(share, fewest)


def _kind(sizes: Sequence[Size]) -> str | None:
    batches = [size.global_batch for size in sizes]
    if None in batches:
        return None
    if len(set(batches)) == 1:
        return STRONG
    return (
        WEAK
        if len({size.global_batch / size.num_ranks for size in sizes if size.global_batch}) == 1
        else None
    )


def _forecasts(points: Sequence[tuple[int, float]]) -> tuple[Forecast, ...]:
    if len(points) < MIN_SIZES_FORECAST:
        return ()
    most, speedup = points[-1]
    # Leaving out the first point changes nothing: each law meets it by definition.
    fewer = [[*points[:place], *points[place + 1 :]] for place in range(1, len(points))]
    laws = [_from(law, points[0][0]) for law in (amdahl, gustafson)]
    fits = [(law, _fitted(law, each)) for law in laws for each in (points, *fewer)]
    made = []
    for times in (2, MAX_REACH):
        number = most * times
        high = speedup / most * number
        made.append(Forecast(number, min(high, *(law(share, number) for law, share in fits)), high))
    return tuple(made)


def _fitted(law: _Law, points: Sequence[tuple[int, float]]) -> float:
    """The share from 0 to 1 with the least squared error of the speed-ups."""
    return _least(lambda share: sum((law(share, number) - told) ** 2 for number, told in points))


def fit_usl(points: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """Sigma and kappa, both at least 0, with the least squared error of the speed-ups."""
    fewest = points[0][0]

    def error(contention: float, coherence: float) -> float:
        scale = fewest / usl(contention, coherence, fewest)
        return sum((scale * usl(contention, coherence, number) - told) ** 2 for number, told in points)

    def best_coherence(contention: float) -> float:
        # Kappa is small: the search is over its square root, so that 1e-5 is found as well as 0.1.
        return _least(lambda root: error(contention, root**2)) ** 2

    contention = _least(lambda root: error(root**2, best_coherence(root**2))) ** 2
    return contention, best_coherence(contention)


def _least(error: Callable[[float], float]) -> float:
    """The place from 0 to 1 of the minimum of an error with one valley, by golden-section search."""
    low, high = 0.0, 1.0
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = error(left), error(right)
    for _ in range(_NUM_STEPS):
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - _GOLDEN * (high - low)
            at_left = error(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + _GOLDEN * (high - low)
            at_right = error(right)
    found = (low + high) / 2
    return 0.0 if error(0.0) <= error(found) else found


def scaling_words(scaling: Scaling) -> tuple[str, ...]:
    """The fitted laws in sentences."""
    share = f"{scaling.serial_share:.2%}"
    if scaling.kind == STRONG:
        limit = f": no number of ranks is more than {scaling.most:.3g} times as fast" if scaling.most else ""
        told = [f"strong scaling, the ranks share the same samples. Amdahl: {share} is not divided{limit}"]
    else:
        how = "neither strong nor weak scaling is known"
        if scaling.kind == WEAK:
            how = "weak scaling, each rank keeps its samples"
        each = 1 - scaling.serial_share
        told = [
            f"{how}. Gustafson: {share} is not divided: each further rank adds {each:.2f} of a rank's work"
        ]
    if scaling.contention is not None and scaling.coherence is not None:
        peak = (
            f", the most at {scaling.best_num_ranks:.0f} ranks"
            if scaling.best_num_ranks is not None
            else ", no peak"
        )
        told.append(
            f"Universal Scalability Law: contention {scaling.contention:.2g}, coherence "
            f"{scaling.coherence:.2g}{peak}"
        )
    else:
        told.append(
            f"Universal Scalability Law: needs {MIN_SIZES_USL} numbers of ranks, "
            f"there are {scaling.num_sizes}"
        )
    told += [
        f"{each.num_ranks} ranks: a speed-up of {each.low:.3g} to {each.high:.3g}, if nothing else changes"
        for each in scaling.forecasts
    ]
    if not scaling.forecasts:
        told.append(f"no forecast: it needs {MIN_SIZES_FORECAST} numbers of ranks")
    return tuple(told)
