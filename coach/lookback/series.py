"""The past of one device: dense at its end, thinner further back.

Readers mostly need the newest samples; for older times the trend is enough. So a series has a bound on its
length, however long the run is. The bound is smaller if more devices share the memory.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Hashable, Sequence
from itertools import pairwise
from typing import Generic, Protocol, TypeVar


class Timed(Protocol):
    """Something measured at a time, in seconds since the epoch."""

    @property
    def time_s(self) -> float: ...


_Key = TypeVar("_Key", bound=Hashable)
_Sample = TypeVar("_Sample", bound=Timed)


class Series(Generic[_Sample]):
    """The samples of one device, oldest first, and beside them columns of the fields that are read often. NaN
    in a column: not measured.

    A window of a large job has 60,000 samples: reading a field from that many objects takes ten times as long
    as slicing an array.
    """

    __slots__ = ("_columns", "_incomplete", "_seconds_before", "_sums_before", "samples", "seconds", "times")

    def __init__(self, columns: Sequence[str] = ()) -> None:
        self.samples: list[_Sample] = []
        self.times = array("d")
        self.seconds = array("d")
        """The weight of each sample: seconds to its nearer neighbour, so that gaps have no weight; 1 for a
        single sample."""
        self._columns = {name: array("d") for name in columns}
        self._incomplete: set[str] = set()
        self._seconds_before = array("d", [0.0])
        self._sums_before = {name: array("d", [0.0]) for name in columns}
        """Prefix sums before each sample: seconds, and for each column its values times the seconds."""

    def is_complete(self, name: str) -> bool:
        """True if the column was measured in every sample that was ever added."""
        return name in self._columns and name not in self._incomplete

    def column(self, name: str, places: Sequence[int]) -> array[float]:
        """The values of a field at these indices."""
        values = self._columns.get(name)
        if values is None:
            return array("d", [_number(getattr(self.samples[place], name)) for place in places])
        return pick(values, places)

    def total(self, name: str, places: range) -> tuple[float, float]:
        """(sum of value times seconds, sum of seconds) over a range of a complete column."""
        if not places:
            return 0.0, 0.0
        first, last = places[0], places[-1]
        sums, before = self._sums_before[name], self._seconds_before
        seconds = self.seconds[last]
        return (
            sums[last] - sums[first] + self._columns[name][last] * seconds,
            before[last] - before[first] + seconds,
        )

    def add(self, sample: _Sample) -> None:
        if self.times:
            gap_s = max(0.0, sample.time_s - self.times[-1])
            self.seconds[-1] = min(self.seconds[-1], gap_s) if len(self.seconds) > 1 else gap_s
            self._sum_up(len(self.times) - 1)
            self.seconds.append(gap_s)
        else:
            self.seconds.append(1.0)
        self.samples.append(sample)
        self.times.append(sample.time_s)
        for name, values in self._columns.items():
            values.append(_number(getattr(sample, name)))
            if not math.isfinite(values[-1]):
                self._incomplete.add(name)

    def thin_out(self) -> None:
        """Drop every second sample of the older half."""
        half = len(self.samples) // 2
        self.samples[:half] = self.samples[:half:2]
        for values in (self.times, *self._columns.values()):
            values[:half] = values[:half:2]
        gaps = [max(0.0, after - before) for before, after in pairwise(self.times)]
        self.seconds = array("d", [gaps[0], *map(min, gaps, gaps[1:]), gaps[-1]] if gaps else [1.0])
        self._seconds_before = array("d", [0.0])
        self._sums_before = {name: array("d", [0.0]) for name in self._columns}
        for place in range(len(gaps)):
            self._sum_up(place)

    def _sum_up(self, place: int) -> None:
        """Store the prefix sums behind a sample. Its weight is final now."""
        seconds = self.seconds[place]
        self._seconds_before.append(self._seconds_before[place] + seconds)
        for name, sums in self._sums_before.items():
            sums.append(sums[place] + self._columns[name][place] * seconds)

    def copy(self) -> Series[_Sample]:
        other: Series[_Sample] = Series()
        other.samples, other.times, other.seconds = self.samples[:], self.times[:], self.seconds[:]
        other._columns = {name: values[:] for name, values in self._columns.items()}
        other._seconds_before = self._seconds_before[:]
        other._sums_before = {name: sums[:] for name, sums in self._sums_before.items()}
        other._incomplete = set(self._incomplete)
        return other


def pick(values: array[float], places: Sequence[int]) -> array[float]:
    """The values at these indices; a range is sliced at once."""
    if isinstance(places, range):
        return values[places.start : places.stop]
    return array("d", [values[place] for place in places])


def _number(value: float | None) -> float:
    return math.nan if value is None else value


class SeriesByDevice(Generic[_Key, _Sample]):
    """Series that share one budget: each keeps its share of it, between `least` and `most` samples."""

    def __init__(self, budget: int, least: int, most: int, columns: Sequence[str] = ()) -> None:
        self._budget, self._least, self._most, self._columns = budget, least, most, columns
        self._by_key: dict[_Key, Series[_Sample]] = {}

    @property
    def bound(self) -> int:
        """Largest number of samples of one device; the newer half is kept complete."""
        return max(self._least, min(self._most, self._budget // max(1, len(self._by_key))))

    def add(self, key: _Key, sample: _Sample) -> None:
        series = self._by_key.get(key)
        if series is None:
            series = self._by_key[key] = Series(self._columns)
        series.add(sample)
        bound = self.bound
        while len(series.times) > bound:
            series.thin_out()

    def of(self, key: _Key) -> Series[_Sample]:
        """The series of a device, to be read only; empty for an unknown device."""
        return self._by_key.get(key) or Series(self._columns)

    def keys(self) -> list[_Key]:
        return list(self._by_key)

    def copy(self) -> SeriesByDevice[_Key, _Sample]:
        other: SeriesByDevice[_Key, _Sample] = SeriesByDevice(
            self._budget, self._least, self._most, self._columns
        )
        other._by_key = {key: series.copy() for key, series in self._by_key.items()}
        return other
