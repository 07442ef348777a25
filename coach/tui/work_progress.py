"""Work under way in threads: its name, its duration, and how to stop it.

Work that has lasted a second is shown beside the keys; then the first Esc stops it. Work that changes
something is shown, but cannot be stopped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from coach.render.text import KeyLabel, age

TOLD_AFTER_S = 1.0


@dataclass(slots=True, eq=False)
class Work:
    """One piece of work. `on_stop` shows on its screen that it was stopped; None if it cannot be stopped."""

    what: str
    began_s: float
    on_stop: Callable[[], object] | None
    is_stopped: bool = False


class WorkProgress:
    """All work under way. Used only in the screens' thread."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._works: list[Work] = []

    def begin(self, what: str, on_stop: Callable[[], object] | None) -> Work:
        work = Work(what, self._clock_s(), on_stop)
        self._works.append(work)
        return work

    def end(self, work: Work) -> bool:
        """Note that work has ended. Returns False if it was stopped before, so that its result is dropped."""
        if work in self._works:
            self._works.remove(work)
        return not work.is_stopped

    @property
    def _told(self) -> list[Work]:
        now_s = self._clock_s()
        return [work for work in self._works if now_s - work.began_s >= TOLD_AFTER_S]

    def words(self, label: KeyLabel) -> str:
        """The name and duration of the longest work, and the key that stops it; empty if none has lasted a
        second."""
        told = self._told
        if not told:
            return ""
        work = told[0]
        more = f" and {len(told) - 1} more" if len(told) > 1 else ""
        stops = f" · {label('back')} stops" if any(each.on_stop is not None for each in told) else ""
        return f"{work.what}{more} · {age(self._clock_s() - work.began_s)}{stops}"

    def stop(self) -> bool:
        """Stop the work that is shown and can be stopped. Returns False if there is none."""
        stoppable = [work for work in self._told if work.on_stop is not None]
        for work in stoppable:
            work.is_stopped = True
            self._works.remove(work)
            if work.on_stop is not None:
                work.on_stop()
        return bool(stoppable)
