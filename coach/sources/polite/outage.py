"""Detect an outage of Slurm once for all sources: one probe for all, no other request, and all learn at once
when it ends.

On its own, each source would send its own request to a controller that is away, and would notice the
controller's return only after its own pause. So a source whose request failed asks here. Probes are sent at a
pace that does not depend on the number of waiting sources: a few RPCs per minute, and a return is noticed
soon.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

from coach.model.reading import Reading
from coach.sources.io import CommandResult, Io, PassingIo, Query
from coach.sources.polite.shared_cache import PROBE_KEPT_S, SharedIo
from coach.sources.slurm.client import PING_TIMEOUT_S, tells_down
from coach.sources.slurm.configuration import PING_QUERY

PROBE_EVERY_S = PROBE_KEPT_S
"""Seconds between probes while the controller does not answer: at most four RPCs per minute."""

UP_KEPT_S = 3.0
"""Seconds for which a probe that found the controller is valid for all waiting sources."""

_WATCH_S = 1.0
"""Seconds between checks if a probe is due. A check costs no RPC."""


class Outage:
    """The state of a controller that may not answer; shared by all sources of one coach.

    `on_return` is called when a probe has found the controller again.
    """

    def __init__(self, on_return: Callable[[], object] = lambda: None) -> None:
        self.on_return = on_return
        self._io: Io | None = None
        self._shared: SharedIo | None = None
        self._last: CommandResult | None = None
        """The last probe; None if a new one is due."""
        self._is_down = False
        self._lock = threading.Lock()

    @property
    def is_down(self) -> bool:
        return self._is_down

    def spare(self, io: Io, has_late: Callable[[], bool] = lambda: False) -> Io:
        """An Io that sends only probes while the controller is away."""
        return OutageIo(io, self, has_late)

    def probe_by(self, io: Io) -> None:
        """Send probes through this Io. If it is shared, probes of other coaches are used too."""
        self._io = io
        self._shared = io if isinstance(io, SharedIo) else None

    def hear(self) -> None:
        """Take over the probe of another coach: noticing an outage this way costs no request."""
        heard = self._shared.heard_probe(PING_QUERY) if self._shared is not None else None
        if heard is not None and tells_down(heard):
            with self._lock:
                self._last, self._is_down = heard, True

    def probe(self) -> CommandResult | None:
        """Probe the controller, or return the last probe if it is still valid. One probe at a time. None: no
        Io is set."""
        if self._io is None:
            return None
        with self._lock:
            last = self._last
            kept_s = PROBE_EVERY_S if self._is_down else UP_KEPT_S
            if last is not None and 0 <= self._io.now() - last.time_s < kept_s:
                return last
            found = self._last = self._io.run(PING_QUERY, PING_TIMEOUT_S)
            has_returned = self._is_down and not tells_down(found)
            self._is_down = tells_down(found)
        if has_returned:
            self.on_return()
        return found

    def doubt(self) -> None:
        """Discard the last probe: a request had no answer, or the user wants a new look."""
        with self._lock:
            self._last = None


class OutageIo(PassingIo):
    """Wraps an Io: while the controller is away, it receives only probes."""

    def __init__(self, io: Io, outage: Outage, has_late: Callable[[], bool] = lambda: False) -> None:
        """`has_late` returns True if an answer came after its time limit and waits to be used: a controller
        that has just answered is up."""
        super().__init__(io)
        self._outage = outage
        self._has_late = has_late

    def run(self, query: Query, timeout_s: float | None = None) -> CommandResult:
        is_probe = query.kind == PING_QUERY.kind
        if is_probe and self._has_late():
            return CommandResult(query, 0, b"Slurmctld is UP\n", "", self.now(), 0.0)
        if is_probe:
            return self._outage.probe() or self._io.run(query, timeout_s)
        if not query.num_rpcs:
            return self._io.run(query, timeout_s)
        if not self._outage.is_down:
            self._outage.hear()
        if self._outage.is_down and not self._has_late():
            probe = self._outage.probe()
            if probe is not None and tells_down(probe):
                return _refused(query, probe)
        result = self._io.run(query, timeout_s)
        if result.returncode != 0 and not self._outage.is_down:
            self._outage.doubt()
        return result


class OutageSource:
    """Probes the controller while it is away, independent of the pauses of the waiting sources."""

    name = "outage"
    interval_s = _WATCH_S

    def __init__(self, outage: Outage) -> None:
        self._outage = outage

    def poll(self) -> Iterator[Reading]:
        """Emits nothing: each source reports its own failure."""
        if self._outage.is_down:
            self._outage.probe()
        yield from ()


def _refused(query: Query, probe: CommandResult) -> CommandResult:
    first = probe.text.partition("\n")[0]
    words = (
        f"{query.argv[0]} was not run, the Slurm controller does not answer: {first.strip() or probe.error}"
    )
    return CommandResult(query, None, b"", "", probe.time_s, 0.0, words)
