"""Numbers that the kernel counts up, for all parts of the sampler."""

from __future__ import annotations

from typing import Dict, Hashable, Iterable, Optional, Tuple


class Rates:
    """Remembers each counter's last value. A new counter, or one that was reset, has no rate yet."""

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
    """True for a whole number in the kernel's form: at most 20 digits."""
    return text.isdecimal() and len(text) <= 20
