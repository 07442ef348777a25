"""The past of one device, dense at its end and thinner further back.

What is looked at most is the newest; of what is long past its course is enough. So a series keeps within a bound however long a run lasts,
and the bound is the smaller the more devices share the memory.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

_Key = TypeVar("_Key", bound=Hashable)
_Sample = TypeVar("_Sample")


class SeriesByDevice(Generic[_Key, _Sample]):
    """Series that share one budget: each keeps at most its part of it, between `least` and `most` samples."""

    def __init__(self, budget: int, least: int, most: int) -> None:
        self._budget, self._least, self._most = budget, least, most
        self._by_key: dict[_Key, list[_Sample]] = {}

    @property
    def bound(self) -> int:
        """How many samples one device keeps; the newer half of them is whole."""
        return max(self._least, min(self._most, self._budget // max(1, len(self._by_key))))

    def add(self, key: _Key, sample: _Sample) -> None:
        series = self._by_key.setdefault(key, [])
        series.append(sample)
        bound = self.bound
        while len(series) > bound:
            half = len(series) // 2
            series[:half] = series[:half:2]

    def of(self, key: _Key) -> list[_Sample]:
        """Oldest first; empty for an unknown device. Only to be read."""
        return self._by_key.get(key, [])

    def keys(self) -> list[_Key]:
        return list(self._by_key)

    def copy(self) -> SeriesByDevice[_Key, _Sample]:
        other: SeriesByDevice[_Key, _Sample] = SeriesByDevice(self._budget, self._least, self._most)
        other._by_key = {key: series.copy() for key, series in self._by_key.items()}
        return other
