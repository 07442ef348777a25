"""An outage of Slurm is known in one place: one probe for all, nothing else is asked, and its end is told to
all at once.

Each source for itself would put its own question to a controller that is away, and would notice its return
only when its own pause is over. So whoever fails asks this, and a probe goes out at a pace that does not
depend on how many wait: a few RPCs a minute, and a return is seen soon.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

from coach.model.reading import Reading
from coach.sources.io import CommandResult, Io, Query
from coach.sources.polite.passing_io import PassingIo
from coach.sources.polite.shared_cache import PROBE_KEPT_S, SharedIo
from coach.sources.slurm.client import PING_TIMEOUT_S, tells_down
from coach.sources.slurm.configuration import PING_QUERY

PROBE_EVERY_S = PROBE_KEPT_S
"""The controller is probed once in this time while it does not answer: four RPCs a minute at
most."""

UP_KEPT_S = 3.0
"""A probe that found the controller answers for this long for all who wait for it."""

_WATCH_S = 1.0
"""How often it is looked whether a probe is due. That costs nothing."""


class Outage:
    """What is known of a controller that does not answer. All that ask it in one coach share this.

    `on_return` is called when a probe has found it again.
    """

    def __init__(self, on_return: Callable[[], object] = lambda: None) -> None:
        self.on_return = on_return
        self._io: Io | None = None
        self._shared: SharedIo | None = None
        self._last: CommandResult | None = None
        """The last probe; None where a new one is due."""
        self._is_down = False
        self._lock = threading.Lock()

    @property
    def is_down(self) -> bool:
        return self._is_down

    def spare(self, io: Io, has_late: Callable[[], bool] = lambda: False) -> Io:
        """An Io that asks the controller nothing but probes while it is away."""
        return OutageIo(io, self, has_late)

    def probe_by(self, io: Io) -> None:
        """Send the probes through this. What other coaches found is heard where it is shared."""
        self._io = io
        self._shared = io if isinstance(io, SharedIo) else None

    def hear(self) -> None:
        """Take over what another coach has found: no question is needed to notice it."""
        heard = self._shared.heard_probe(PING_QUERY) if self._shared is not None else None
        if heard is not None and tells_down(heard):
            with self._lock:
                self._last, self._is_down = heard, True

    def probe(self) -> CommandResult | None:
        """Look for the controller, or tell what was seen just now. One probe at a time. None: nobody can."""
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
        """A question had no answer, or a person wants to know: what the last probe found no longer counts."""
        with self._lock:
            self._last = None


class OutageIo(PassingIo):
    """Wraps an Io: while the controller is away, it is probed, and asked nothing."""

    def __init__(self, io: Io, outage: Outage, has_late: Callable[[], bool] = lambda: False) -> None:
        """`has_late` says whether an answer has come after its limit, and waits to be used: who has just
        answered is up."""
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
    """Has the controller probed while it is away, however long the pauses of those are that wait for it."""

    name = "outage"
    interval_s = _WATCH_S

    def __init__(self, outage: Outage) -> None:
        self._outage = outage

    def poll(self) -> Iterator[Reading]:
        """Says nothing itself: whoever was not answered says so."""
        if self._outage.is_down:
            self._outage.probe()
        yield from ()


def _refused(query: Query, probe: CommandResult) -> CommandResult:
    first = probe.stdout.decode("utf-8", "replace").partition("\n")[0]
    words = f"{query.argv[0]} was not asked, Slurm is away: {first.strip() or probe.error}"
    return CommandResult(query, None, b"", "", probe.time_s, 0.0, words)
