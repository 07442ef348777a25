"""Decides which signals the supervisor must still pass to the training, so that each arrives exactly once.

A signal to the supervisor may have gone to it alone (`kill PID`), to its whole process group (Ctrl-C,
`timeout`) or to each process of the job step (`scancel --signal`). In the last two cases the training has it
already. A second copy breaks torchrun's orderly shutdown: torchrun would end before its workers have written
their checkpoint. The kernel does not tell these cases apart, so a witness process stands beside the training,
in the same process group and step: a signal that reached the witness reached the training too.
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

# A signal to a group, or to a step's processes, reaches all of them within milliseconds; this allows for a
# busy node. A signal for the supervisor alone is delayed by this long, which is no harm.
_WITNESS_WAIT_S = 1.0
_NOTE = struct.Struct("=Bd")


class Witness:
    """A forked child that only records the signals it gets. All FORWARDED signals must be blocked when it is
    made."""

    def __init__(self) -> None:
        supervisor = os.getpid()
        self._notes, notes = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _stand_witness(supervisor, notes)
        os.close(notes)
        self._noted_at: Dict[int, float] = {}

    def has_got(self, signum: int) -> bool:
        """True if the witness got this signal too, at about this time. A record counts once, and an old one
        is ignored."""
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
        # Close descriptors that the training's reader waits for, such as the pipe of `coach run … | tee`.
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        die_with_parent(supervisor)
        while True:
            os.write(notes, _NOTE.pack(signal.sigwait(FORWARDED), time.monotonic()))
    finally:
        os._exit(0)
