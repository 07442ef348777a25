"""The targets that a session follows or that left the screen just now, and streams from inside jobs.

Streams continue when their job is not on the screen.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from coach.poller import SourceFactory
from coach.sources.slurm.overlap_step import StreamSource
from coach.workflows.judging.targets import Target

LINGER_S = 300.0
"""A target that left the screen keeps its place in every file for this long, in case it comes back."""
MAX_LINGERING = 3


class FollowedTargets:
    """Resolved targets by name. One thread changes them; any thread may ask if one lingers."""

    def __init__(self) -> None:
        self._targets: dict[str, Target] = {}
        self._lingering: dict[str, float] = {}
        """Target → when it left the screen."""

    def __iter__(self) -> Iterator[Target]:
        return iter(self._targets.values())

    def is_lingering(self, name: str) -> bool:
        return name in self._lingering

    def follow(self, names: Sequence[str], locate: Callable[[str], Target]) -> None:
        """Follow exactly these. The newest of the targets dropped linger."""
        now_s = time.monotonic()
        for name in self._targets:
            if name not in names:
                self._lingering.setdefault(name, now_s)
        self._lingering = {name: left_s for name, left_s in self._lingering.items() if name not in names}
        while len(self._lingering) > MAX_LINGERING:
            del self._lingering[min(self._lingering, key=lambda name: self._lingering[name])]
        kept = {name: self._targets[name] for name in self._lingering if name in self._targets}
        followed = {name: self._targets.get(name) or locate(name) for name in names}
        self._targets = {**followed, **kept}

    def expire(self) -> bool:
        """Drop targets that lingered long enough. Returns True if there were any."""
        since_s = time.monotonic() - LINGER_S
        expired = [name for name, left_s in self._lingering.items() if left_s < since_s]
        for name in expired:
            del self._lingering[name]
            self._targets.pop(name, None)
        return bool(expired)


class AttachedStreams:
    """Target → its streams. Any thread may attach or forget them."""

    def __init__(self) -> None:
        self._streams: dict[str, tuple[StreamSource, ...]] = {}
        self._lock = threading.Lock()

    @property
    def targets(self) -> tuple[str, ...]:
        with self._lock:
            return tuple(self._streams)

    def attach(self, target: str, streams: Sequence[StreamSource]) -> None:
        """Follow a target by these streams. A target that has streams keeps them."""
        with self._lock:
            self._streams.setdefault(target, tuple(streams))

    def forget_ended(self, target: str) -> bool:
        """Forget a target's streams if all have ended, so that none restarts by itself.

        Returns True if it did.
        """
        with self._lock:
            streams = self._streams.get(target, ())
            if not streams or not all(stream.has_ended for stream in streams):
                return False
            del self._streams[target]
            return True

    def sources(self) -> Mapping[str, SourceFactory]:
        with self._lock:
            return {
                f"stream {number}:{target}": partial(_same, stream)
                for target, streams in self._streams.items()
                for number, stream in enumerate(streams)
            }


def _same(stream: StreamSource) -> StreamSource:
    return stream
