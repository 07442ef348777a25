"""The kernel's small files and counters, as every part of the sampler reads them.

Which files exist differs from kernel to kernel, and a process may end between two looks: neither is an error
here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Dict, Hashable, Iterable, Optional, Tuple, Union


class Rates:
    """Remembers each counter's last value. The first sight of a counter, and one that was reset, have no
    rate."""

    def __init__(self) -> None:
        self._last: Dict[Hashable, Tuple[float, float]] = {}

    def of(self, key: Hashable, counter: Optional[float], time_s: float) -> Optional[float]:
        """Growth per second since the last call. `time_s` is a monotonic clock."""
        if counter is None:
            self._last.pop(key, None)
            return None
        last_time_s, last = self._last.get(key, (time_s, counter))
        self._last[key] = (time_s, counter)
        return (counter - last) / (time_s - last_time_s) if time_s > last_time_s and counter >= last else None

    def keep_only(self, keys: Iterable[Hashable]) -> None:
        """Forget all other counters, for example those of processes that have ended."""
        self._last = {key: self._last[key] for key in keys if key in self._last}


def is_number(text: str) -> bool:
    """True for a whole number as the kernel writes one: at most 20 digits."""
    return text.isdecimal() and len(text) <= 20


def read_small(path: Union[str, Path]) -> str:
    """The whole text without blanks around it; empty when it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read().strip()
    except (OSError, ValueError):  # a name with a zero byte is no file's
        return ""
