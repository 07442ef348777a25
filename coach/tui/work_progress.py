"""What is being worked on in threads: what it is, for how long, and how it is stopped.

What has lasted a second is told beside the keys; then the first Esc stops it. Work that changes something is
told, and never stopped halfway.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from coach.tui.render.text import KeyLabel, age

TOLD_AFTER_S = 1.0


@dataclass(slots=True, eq=False)
class Work:
    """One piece of work. `on_stop` says on its screen that it was stopped; None: it cannot be."""

    what: str
    began_s: float
    on_stop: Callable[[], object] | None
    is_stopped: bool = False


class WorkProgress:
    """All that is under way now. Used in the screens' thread alone."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._works: list[Work] = []

    def begin(self, what: str, on_stop: Callable[[], object] | None) -> Work:
        work = Work(what, self._clock_s(), on_stop)
        self._works.append(work)
        return work

    def end(self, work: Work) -> bool:
        """It came to its end. False: it was stopped before, and nobody waits for it any more."""
        if work in self._works:
            self._works.remove(work)
        return not work.is_stopped

    @property
    def _told(self) -> list[Work]:
        now_s = self._clock_s()
        return [work for work in self._works if now_s - work.began_s >= TOLD_AFTER_S]

    def words(self, label: KeyLabel) -> str:
        """What has gone on longest, for how long, and the key that stops it; empty while nothing lasts."""
        told = self._told
        if not told:
            return ""
        work = told[0]
        more = f" and {len(told) - 1} more" if len(told) > 1 else ""
        stops = f" · {label('back')} stops" if any(each.on_stop is not None for each in told) else ""
        return f"{work.what}{more} · {age(self._clock_s() - work.began_s)}{stops}"

    def stop(self) -> bool:
        """Stop what is told and can be stopped. False: there is nothing."""
        stoppable = [work for work in self._told if work.on_stop is not None]
        for work in stoppable:
            work.is_stopped = True
            self._works.remove(work)
            if work.on_stop is not None:
                work.on_stop()
        return bool(stoppable)
