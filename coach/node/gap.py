"""Measurements that are missing, in words for the person at the screen."""

from __future__ import annotations

from typing import Dict, Iterable, List, Optional, Tuple

Gap = Tuple[str, str, str]
"""(what is not measured, because, how to get it)."""


class Failures:
    """The values that could not be read in one look. Eight GPUs that lack the same value make one gap, not
    eight.

    Fields of a group share one gap: a device without NVLink lacks all values about NVLink.
    """

    def __init__(self) -> None:
        self._devices: Dict[Tuple[str, str, str], Dict[int, List[str]]] = {}
        self._others: List[Gap] = []

    def gap(self, gap: Gap) -> None:
        """Note another gap of the same look."""
        self._others.append(gap)

    def add(self, name: str, group: Optional[str], index: int, error: object, how: str) -> None:
        """Note one field that one device lacks."""
        devices = self._devices.setdefault((f"gpu.{group or name}", str(error), how), {})
        devices.setdefault(index, []).append(name.replace("_", " "))

    def gaps(self) -> List[Gap]:
        """All gaps; devices that lack the same field share one."""
        found = list(self._others)
        for (what, error, how), devices in self._devices.items():
            alike: Dict[str, List[int]] = {}
            for index, names in devices.items():
                alike.setdefault(", ".join(names), []).append(index)
            found += [
                (what, f"{names} of GPU {ranges(indices)}: {error}", how) for names, indices in alike.items()
            ]
        return found


def ranges(numbers: Iterable[int]) -> str:
    """`0-2,5`."""
    parts: List[List[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ",".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)
