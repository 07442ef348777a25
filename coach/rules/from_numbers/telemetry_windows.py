"""Select the telemetry of GPUs and nodes during training, in windows that rules share; each is computed once.

Start-up, evaluation, compilation and checkpoints are excluded here, so no rule can forget one of them.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter, mul
from statistics import fmean

from coach.lookback.history import History
from coach.lookback.series import Series, pick
from coach.model.snapshot import TargetSnapshot
from coach.model.training.telemetry import GpuSample, HostSample
from coach.rules.advice.launched_with import int_resource
from coach.rules.base import Threshold
from coach.rules.from_numbers.training_windows import Phases, phases, training_places

WINDOW_S = Threshold(120, "seconds", "shorter stretches catch single checkpoints and evaluations")
MIN_SAMPLES = Threshold(60, "samples", "fewer vary too much: utilization jumps between 0 and 100", at_least=1)
STARTUP_S = Threshold(
    900, "seconds", "without metrics: data preparation may take this long before the GPU is used"
)
WINDOW = (WINDOW_S, MIN_SAMPLES, STARTUP_S)
"""The thresholds `window_s`, `min_samples` and `startup_s` of a rule that asks for `gpu_uses`."""


@dataclass(frozen=True, slots=True)
class GpuUse:
    """Use of one GPU in its window. Shares are 0 to 1, or None if not measured."""

    node: str
    gpu: int
    series: Series[GpuSample]
    """All kept samples of this GPU."""
    places: Sequence[int]
    """Indices in `series` of the window's samples; each of them has a utilization."""
    mean_pct: float

    @property
    def first(self) -> GpuSample:
        return self.series.samples[self.places[0]]

    @property
    def newest(self) -> GpuSample:
        return self.series.samples[self.places[-1]]

    @property
    def num_samples(self) -> int:
        return len(self.places)

    @property
    def span_s(self) -> float:
        return self.newest.time_s - self.first.time_s

    @property
    def power_share(self) -> float | None:
        """Mean power draw over the power limit, 0 to 1; None if not measured."""
        return self._share("power_w", self.newest.power_limit_w)

    @property
    def memory_share(self) -> float | None:
        return self._share("memory_used_mib", self.newest.memory_total_mib)

    def _share(self, name: str, limit: float | None) -> float | None:
        used = self.mean(name) if limit else None
        return None if used is None or not limit else used / limit

    @property
    def is_idle(self) -> bool:
        """True if no kernel ran in the window."""
        return not any(self.series.column("utilization_pct", self.places))

    @property
    def is_never_used(self) -> bool:
        """True if no kernel ran in any kept sample."""
        everything = range(len(self.series.times))
        return self.is_idle and not any(v > 0 for v in self.series.column("utilization_pct", everything))

    def mean(self, name: str) -> float | None:
        """Mean of the field `name` over the samples that have it, weighted by the time that each covers."""
        return mean_of(self.series, name, self.places)


def gpu_uses(snapshot: TargetSnapshot, history: History, values: Mapping[str, float]) -> list[GpuUse]:
    """The use of each GPU over the newest `window_s` seconds of training. If the run has ended, over all kept
    samples. `values` are those of a rule with the thresholds of WINDOW."""
    window_s, min_samples, startup_s = (values[name] for name in ("window_s", "min_samples", "startup_s"))

    def make() -> list[GpuUse]:
        found = training_phases(snapshot, history)
        length_s = None if snapshot.has_ended else window_s
        uses = []
        for node, gpu in history.gpus:
            series = history.gpu_series(node, gpu)
            begin = 0 if history.ranks else _first_after_startup(series, startup_s)
            places = training_places(series, found, length_s, begin)
            if len(places) >= max(1, min_samples) and _is_long_enough(series, places, window_s):
                used = mean_of(series, "utilization_pct", places)
                uses.append(GpuUse(node, gpu, series, places, used or 0.0))
        return uses

    key = ("gpu_uses", *_state(snapshot), window_s, min_samples, startup_s)
    return history.derived(key, make)


def training_phases(snapshot: TargetSnapshot, history: History) -> Phases:
    """The time spans in which the run trained; computed once for all rules."""
    return history.derived(("phases", *_state(snapshot)), lambda: phases(snapshot, history))


def _state(snapshot: TargetSnapshot) -> tuple[int, float | None, bool]:
    """The data besides the history that phases depend on."""
    newest_s = snapshot.events[-1].time_s if snapshot.events else None
    return len(snapshot.events), newest_s, snapshot.has_ended


def host_window(
    snapshot: TargetSnapshot, history: History, node: str, values: Mapping[str, float]
) -> Sequence[HostSample]:
    """A node's samples of the newest `window_s` seconds of training. Empty for fewer than `min_samples`: both
    are thresholds of the rule whose `values` are given."""
    window_s = values["window_s"]

    def make() -> Sequence[HostSample]:
        series = history.host(node)
        if not series:
            return ()
        start = bisect_right(series, series[-1].time_s - window_s, key=lambda sample: sample.time_s)
        return _training(snapshot, history, series[start:])

    kept = history.derived(("host_window", *_state(snapshot), node, window_s), make)
    return kept if len(kept) >= max(1, values["min_samples"]) else ()


def training_host_samples(snapshot: TargetSnapshot, history: History, node: str) -> Sequence[HostSample]:
    """All kept samples of a node during training."""
    return _training(snapshot, history, history.host(node))


def _training(
    snapshot: TargetSnapshot, history: History, samples: Sequence[HostSample]
) -> Sequence[HostSample]:
    found = training_phases(snapshot, history)
    if samples and found.is_all_training(samples[0].time_s, samples[-1].time_s):
        return samples
    return [sample for sample in samples if found.is_training(sample.time_s)]


def has_all_nodes(snapshot: TargetSnapshot, nodes: Collection[str]) -> bool:
    """True if these are all nodes of the run, or if their number is unknown. A node that was not measured may
    do the work for which the others wait."""
    asked = int_resource(snapshot.run, "num_nodes")
    if asked is None and snapshot.job is not None:
        asked = snapshot.job.num_nodes
    return len(nodes) >= (asked or 1)


def mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def mean_of(series: Series[GpuSample], name: str, places: Sequence[int]) -> float | None:
    """The mean of the known values, weighted by the time that each covers; unweighted if they cover none."""
    if isinstance(places, range) and series.is_complete(name):
        together, total = series.total(name, places)
        return together / total if total > 0.0 else mean(series.column(name, places))
    values, weights = series.column(name, places), pick(series.seconds, places)
    together, total = sum(map(mul, values, weights)), sum(weights)
    if math.isnan(together):  # some samples lack the value
        known = [(value, weight) for value, weight in zip(values, weights, strict=True) if value == value]
        values, weights = array("d", [value for value, _ in known]), array("d", [w for _, w in known])
        together, total = sum(map(mul, values, weights)), sum(weights)
    return together / total if total > 0.0 else mean(values)


def uses_by_node(uses: Iterable[GpuUse]) -> dict[str, list[GpuUse]]:
    found: dict[str, list[GpuUse]] = {}
    for use in uses:
        found.setdefault(use.node, []).append(use)
    return found


def use_meanwhile(uses: Iterable[GpuUse], hosts: Sequence[HostSample]) -> list[float]:
    """The mean use of each GPU while these host samples were taken. Without a sample of that time, a GPU is
    left out."""
    means = []
    for use in uses if hosts else ():
        time_of = use.series.times.__getitem__
        begin = bisect_left(use.places, hosts[0].time_s, key=time_of)
        end = bisect_right(use.places, hosts[-1].time_s, key=time_of)
        if begin < end:
            means.append(mean_of(use.series, "utilization_pct", use.places[begin:end]) or 0.0)
    return means


def means_of(samples: Sequence[HostSample], name: str) -> float | None:
    """The mean of the field `name`; None if fewer than half of the samples have it."""
    known = [value for value in map(attrgetter(name), samples) if value is not None]
    return fmean(known) if known and 2 * len(known) >= len(samples) else None


def quarters(values: Sequence[float]) -> list[float]:
    """The mean of each quarter; empty for fewer than eight values."""
    if len(values) < 8:
        return []
    bounds = [len(values) * part // 4 for part in range(5)]
    return [fmean(values[a:b]) for a, b in pairwise(bounds)]


@dataclass(frozen=True, slots=True)
class Growth:
    """How a value grew over four equal parts of a time span."""

    by_quarters: tuple[float, ...]
    pace_per_s: float
    """Growth per second in the last quarter."""


def steady_growth(
    values: Sequence[float], times_s: Sequence[float], least: Mapping[str, float]
) -> Growth | None:
    """The growth of a value that rises in every quarter. None if it pauses or slows down, as a cache that
    fills does: the last pace must be at least half of the mean pace. None also below a threshold of `least`,
    the values of the rule: `min_s`, `growth` (times the first quarter), `min_growth_mib`."""
    used, times = quarters(values), quarters(times_s)
    if not used or times[-1] <= times[0]:
        return None
    paces = [(b - a) / (t - s) for (a, b), (s, t) in zip(pairwise(used), pairwise(times), strict=True)]
    mean_pace = (used[-1] - used[0]) / (times[-1] - times[0])
    is_steady = min(paces) > 0 and paces[-1] >= 0.5 * mean_pace
    is_long = times_s[-1] - times_s[0] >= least["min_s"]
    is_much = used[-1] >= least["growth"] * used[0] and used[-1] - used[0] >= least["min_growth_mib"]
    return Growth(tuple(used), paces[-1]) if is_steady and is_long and is_much else None


def _is_long_enough(series: Series[GpuSample], places: Sequence[int], window_s: float) -> bool:
    # Each sample covers the interval before it, so n samples cover one interval more than the span from the
    # first to the last.
    span = series.times[places[-1]] - series.times[places[0]]
    return span * len(places) / max(1, len(places) - 1) >= 0.98 * window_s


def _first_after_startup(series: Series[GpuSample], startup_s: float) -> int:
    """Without metrics, training begins when the GPU is first used, and at the latest after `startup_s`."""
    latest = series.times[0] + startup_s
    begins = (at for at, s in enumerate(series.samples) if (s.utilization_pct or 0) > 0 or s.time_s >= latest)
    return next(begins, len(series.times))
