"""What GPUs and nodes did while the run trained: the windows that the rules on telemetry judge by, each worked out once.

Start-up, evaluation, compilation and checkpoints are left out here, so that no rule forgets one of them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import mul, sub
from statistics import fmean

from coach.model.history import History
from coach.model.snapshot import TargetSnapshot
from coach.model.telemetry import GpuSample, HostSample
from coach.rules.base import Threshold
from coach.rules.windows import Phases, phases, training_samples

WINDOW_S = Threshold("window_s", 120, "seconds", "shorter stretches catch single checkpoints and evaluations")
MIN_SAMPLES = Threshold(
    "min_samples", 60, "samples", "fewer vary too much: utilization jumps between 0 and 100"
)
STARTUP_S = Threshold(
    "startup_s", 900, "seconds", "without metrics: data preparation may take this long before the GPU is used"
)
WINDOW = (WINDOW_S, MIN_SAMPLES, STARTUP_S)


@dataclass(frozen=True, slots=True)
class GpuUse:
    """How one GPU was used in its window. A share is None where it was not measured."""

    node: str
    gpu: int
    samples: Sequence[GpuSample]
    """All with a utilization."""
    weights: Sequence[float]
    """The seconds that each stands for: of what is long past fewer samples are kept."""
    mean_pct: float

    @property
    def power_share(self) -> float | None:
        """Of the power limit."""
        return self._share([s.power_w for s in self.samples], [s.power_limit_w for s in self.samples])

    @property
    def memory_share(self) -> float | None:
        return self._share(
            [s.memory_used_mib for s in self.samples], [s.memory_total_mib for s in self.samples]
        )

    def _share(self, used: Sequence[float | None], limits: Sequence[float | None]) -> float | None:
        limit = limits[0]
        if limit and limits.count(limit) == len(limits):  # nearly always, and several times as fast
            mean_used = _weighted(used, self.weights)
            return None if mean_used is None else mean_used / limit
        shares = [
            value / most if most and value is not None else None
            for value, most in zip(used, limits, strict=True)
        ]
        return _weighted(shares, self.weights)

    @property
    def is_never_used(self) -> bool:
        return all(sample.utilization_pct == 0 for sample in self.samples)

    @property
    def span_s(self) -> float:
        return self.samples[-1].time_s - self.samples[0].time_s

    def mean(self, value: Callable[[GpuSample], float | None]) -> float | None:
        """Of the samples that have it."""
        return _weighted(list(map(value, self.samples)), self.weights)


def gpu_uses(
    snapshot: TargetSnapshot, history: History, window_s: float, min_samples: float, startup_s: float
) -> list[GpuUse]:
    """Each GPU over the newest `window_s` seconds of training; of a run that has ended over all that was kept."""

    def make() -> list[GpuUse]:
        found = training_phases(snapshot, history)
        length_s = None if snapshot.has_ended else window_s
        uses = []
        for node, gpu in history.gpus:
            series = history.gpu(node, gpu)
            mine = series if history.ranks else _after_startup(series, startup_s)
            samples = training_samples(mine, found, length_s)
            if len(samples) >= max(1, min_samples) and _is_long_enough(samples, window_s):
                weights = _seconds_of(samples, mine)
                used = _weighted([sample.utilization_pct for sample in samples], weights)
                uses.append(GpuUse(node, gpu, samples, weights, used or 0.0))
        return uses

    key = ("gpu_uses", *_state(snapshot), window_s, min_samples, startup_s)
    return history.derived(key, make)


def training_phases(snapshot: TargetSnapshot, history: History) -> Phases:
    """When the run trained, worked out once for all rules."""
    return history.derived(("phases", *_state(snapshot)), lambda: phases(snapshot, history))


def _state(snapshot: TargetSnapshot) -> tuple[int, float | None, bool]:
    """What phases depend on beside the history."""
    newest_s = snapshot.events[-1].time_s if snapshot.events else None
    return len(snapshot.events), newest_s, snapshot.has_ended


def host_window(
    snapshot: TargetSnapshot, history: History, node: str, window_s: float, min_samples: float
) -> Sequence[HostSample]:
    """A node's newest `window_s` seconds of training; empty where they hold too few samples."""
    series = history.host(node)
    if not series:
        return ()
    start = bisect_right(series, series[-1].time_s - window_s, key=lambda sample: sample.time_s)
    kept = _training(snapshot, history, series[start:])
    return kept if len(kept) >= max(1, min_samples) else ()


def training_host_samples(snapshot: TargetSnapshot, history: History, node: str) -> Sequence[HostSample]:
    """All that was kept of a node while it trained."""
    return _training(snapshot, history, history.host(node))


def _training(
    snapshot: TargetSnapshot, history: History, samples: Sequence[HostSample]
) -> Sequence[HostSample]:
    found = training_phases(snapshot, history)
    if samples and found.is_all_training(samples[0].time_s, samples[-1].time_s):
        return samples
    return [sample for sample in samples if found.is_training(sample.time_s)]


def mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _seconds_of(samples: Sequence[GpuSample], series: Sequence[GpuSample]) -> Sequence[float]:
    """How long each of some samples of a series stands for: to its nearer neighbour, so that a silence counts for nobody."""
    start = bisect_left(series, samples[0].time_s, key=lambda sample: sample.time_s)
    times = [sample.time_s for sample in series[start:]]
    if len(times) < 2:
        return [1.0] * len(samples)
    steps = list(map(sub, times[1:], times))
    nearer = [before if before < after else after for before, after in pairwise(steps)]
    seconds = [steps[0], *nearer, steps[-1]]
    if len(seconds) == len(samples):
        return seconds
    at = dict(zip(times, seconds, strict=True))
    return [at[sample.time_s] for sample in samples]


def _weighted(values: Sequence[float | None], weights: Sequence[float]) -> float | None:
    """The mean of what is known; where no time passed, each counts alike."""
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        weights = [weight for value, weight in zip(values, weights, strict=True) if value is not None]
    total = sum(weights)
    return sum(map(mul, known, weights)) / total if total > 0.0 else mean(known)


def means_of(samples: Sequence[HostSample], value: Callable[[HostSample], float | None]) -> float | None:
    """The mean where at least half of the samples have the value."""
    known = [found for sample in samples if (found := value(sample)) is not None]
    return fmean(known) if known and 2 * len(known) >= len(samples) else None


def quarters(values: Sequence[float]) -> list[float]:
    """The mean of each quarter; empty for fewer than eight values."""
    if len(values) < 8:
        return []
    bounds = [len(values) * part // 4 for part in range(5)]
    return [fmean(values[a:b]) for a, b in pairwise(bounds)]


def _is_long_enough(samples: Sequence[GpuSample], window_s: float) -> bool:
    # Each sample stands for the interval before it: n samples cover one interval more than lies between the first and the last.
    span = samples[-1].time_s - samples[0].time_s
    return span * len(samples) / max(1, len(samples) - 1) >= 0.98 * window_s


def _after_startup(samples: Sequence[GpuSample], startup_s: float) -> Sequence[GpuSample]:
    """Without metrics, training begins when the GPU is first used, and at the latest after `startup_s`."""
    if not samples:
        return ()
    latest = samples[0].time_s + startup_s
    start = next((s.time_s for s in samples if (s.utilization_pct or 0) > 0 or s.time_s >= latest), None)
    return () if start is None else samples[bisect_left(samples, start, key=lambda sample: sample.time_s) :]
