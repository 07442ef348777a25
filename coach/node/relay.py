"""Which signals the training still has to be given: each one exactly once.

A signal to the supervisor may have been for it alone (`kill PID`), for its whole process group (Ctrl-C,
`timeout`) or for every process of the job step (`scancel --signal`). In the last two cases the training has
it already, and a second one breaks torchrun's orderly shutdown: it would leave before its workers have
written their checkpoint. The kernel does not say which case it is, so a witness stands beside the training,
in the same process group and the same step: what the witness got, the training got too.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import struct
import time
from typing import Dict, FrozenSet

from coach.node.processes import die_with_parent

FORWARDED: FrozenSet[signal.Signals] = frozenset(
    {
        signal.SIGTERM,
        signal.SIGINT,
        signal.SIGHUP,
        signal.SIGQUIT,
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGCONT,
    }
)

# One kill() of a group, or one walk over a step's processes, reaches everybody within milliseconds; this
# allows for a busy node. A signal that was for the supervisor alone is that much late, which nobody notices.
_WITNESS_WAIT_S = 1.0
_NOTE = struct.Struct("=Bd")


class Witness:
    """A forked child that does nothing but note the signals it gets. All FORWARDED signals must be blocked
    when it is made."""

    def __init__(self) -> None:
        supervisor = os.getpid()
        self._notes, notes = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _stand_witness(supervisor, notes)
        os.close(notes)
        self._noted_at: Dict[int, float] = {}

    def has_got(self, signum: int) -> bool:
        """True when the witness got this signal too, at about this time. A note counts once, and an old one
        not at all."""
        now = time.monotonic()
        deadline = now + _WITNESS_WAIT_S
        while self._noted_at.pop(signum, 0.0) < now - 1.0:
            remaining = deadline - time.monotonic()
            if remaining <= 0 or not select.select([self._notes], [], [], remaining)[0]:
                return False
            note = os.read(self._notes, _NOTE.size)
            if len(note) < _NOTE.size:
                return False
            noted, time_s = _NOTE.unpack(note)
            self._noted_at[noted] = time_s
        return True

    def end(self) -> None:
        """End the witness and reap it."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
        os.close(self._notes)


def _stand_witness(supervisor: int, notes: int) -> None:
    try:
        # It must hold nothing open that the training's reader waits on, such as the pipe of `coach run … |
        # tee`.
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        die_with_parent(supervisor)
        while True:
            os.write(notes, _NOTE.pack(signal.sigwait(FORWARDED), time.monotonic()))
    finally:
        os._exit(0)
