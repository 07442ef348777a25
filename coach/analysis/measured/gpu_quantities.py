"""Compare the GPUs of one job: the spread and the curve of each quantity.

Utilization says only that some kernel ran. SM activity, or else power over its limit, shows how hard a GPU
works, so it comes first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from coach.lookback.history import History
from coach.model.training.telemetry import GpuSample

GAP_S = 30.0
"""Seconds. A longer gap breaks a curve."""

GpuKey = tuple[str, int]
"""Node, and the GPU's index within the job."""


@dataclass(frozen=True, slots=True)
class Quantity:
    name: str
    unit: str
    of: Callable[[GpuSample], float | None]
    """Read the quantity from a sample; None if it was not measured."""
    outlier: float
    """Distance from the median, in `unit`, from which a GPU is marked as an outlier."""
    top: float | None = 100.0
    """Top of the scale; None: the largest value."""


@dataclass(frozen=True, slots=True)
class Spread:
    """One quantity over the GPUs of a job at one time, and the GPUs with the lowest and the highest value."""

    quantity: Quantity
    low: float
    low_gpu: GpuKey
    middle: float
    high: float
    high_gpu: GpuKey
    num_measured: int


@dataclass(frozen=True, slots=True)
class Band:
    """The lowest value, the median and the highest value of several GPUs at one time. None breaks the
    curve."""

    time_s: float
    low: float | None
    middle: float | None
    high: float | None


def _share(part: float | None, whole: float | None) -> float | None:
    share = 100.0 * part / whole if part is not None and whole else math.inf
    return share if math.isfinite(share) else None


SM_ACTIVITY = Quantity("SM activity", "%", lambda gpu: gpu.sm_activity_pct, 25)
POWER = Quantity("power over limit", "%", lambda gpu: _share(gpu.power_w, gpu.power_limit_w), 25)
UTILIZATION = Quantity("utilization", "%", lambda gpu: gpu.utilization_pct, 25)
MEMORY = Quantity("memory used", "%", lambda gpu: _share(gpu.memory_used_mib, gpu.memory_total_mib), 25)
TEMPERATURE = Quantity("temperature", "°C", lambda gpu: gpu.temperature_c, 15)
CLOCK = Quantity("SM clock over max", "%", lambda gpu: _share(gpu.sm_clock_mhz, gpu.max_sm_clock_mhz), 15)
QUANTITIES = (SM_ACTIVITY, POWER, UTILIZATION, MEMORY, TEMPERATURE, CLOCK)


def measured_quantities(samples: Iterable[GpuSample]) -> list[Quantity]:
    """The quantities that at least one sample holds, the best measure of load first."""
    known = list(samples)
    return [each for each in QUANTITIES if any(each.of(sample) is not None for sample in known)]


def spread(quantity: Quantity, samples: Iterable[GpuSample]) -> Spread | None:
    """The spread of a quantity over `samples`, one of each GPU; None if no sample holds it."""
    known = [
        (value, (sample.node, sample.gpu)) for sample in samples if (value := quantity.of(sample)) is not None
    ]
    if not known:
        return None
    (low, low_gpu), (high, high_gpu) = (
        min(known, key=lambda item: item[0]),
        max(known, key=lambda item: item[0]),
    )
    return Spread(quantity, low, low_gpu, median(value for value, _ in known), high, high_gpu, len(known))


def bands(
    history: History,
    gpus: Sequence[GpuKey],
    quantities: Sequence[Quantity],
    start_s: float,
    end_s: float,
    num_points: int,
) -> dict[str, list[Band]]:
    """Name of the quantity → its curve between two times: at most `num_points` points, and the breaks between
    them."""
    width = max((end_s - start_s) / max(1, num_points), 1e-9)
    found: dict[str, dict[int, list[float]]] = {each.name: {} for each in quantities}
    for key in gpus:
        for sample in history.gpu(*key):
            if not start_s <= sample.time_s <= end_s:
                continue
            place = min(int((sample.time_s - start_s) / width), num_points - 1)
            for each in quantities:
                value = each.of(sample)
                if value is not None:
                    found[each.name].setdefault(place, []).append(value)
    return {name: _joined(places, start_s, width) for name, places in found.items()}


def _joined(places: dict[int, list[float]], start_s: float, width: float) -> list[Band]:
    order = sorted(places)
    gaps = [after - before for before, after in pairwise(order)]
    rows: list[Band] = []
    for index, place in enumerate(order):
        values, time_s = places[place], start_s + (place + 0.5) * width
        if index and _is_silence(gaps, index - 1, width):
            rows.append(Band(time_s, None, None, None))
        rows.append(Band(time_s, min(values), median(values), max(values)))
    return rows


def _is_silence(gaps: list[int], index: int, width: float) -> bool:
    """True if no GPU was measured during a gap. The history thins older samples, so their gaps widen step by
    step; a pause is much wider than the gaps beside it."""
    beside = max(gaps[max(0, index - 1) : index] + gaps[index + 1 : index + 2], default=0)
    return gaps[index] * width > GAP_S and gaps[index] > 4 * max(1, beside)
