"""Streams from inside jobs. They continue when their job is not on the screen."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import partial

from coach.poller import SourceFactory
from coach.sources.slurm.overlap_step import RecordedStream, StreamSource

Stream = StreamSource | RecordedStream


class AttachedStreams:
    """Target → its streams. Any thread may attach or forget them."""

    def __init__(self) -> None:
        self._streams: dict[str, tuple[Stream, ...]] = {}
        self._lock = threading.Lock()

    @property
    def targets(self) -> tuple[str, ...]:
        with self._lock:
            return tuple(self._streams)

    def attach(self, target: str, streams: Sequence[Stream]) -> None:
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


def _same(stream: Stream) -> Stream:
    return stream
