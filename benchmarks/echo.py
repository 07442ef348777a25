"""Measure the time from a key to its character on the screen, over a line with latency:
`python benchmarks/echo.py`.

coach plays its demo in its own terminal; keys and painted output each arrive `--delay-ms` later. Characters
are typed faster than the line answers, into the filter of the queue and into the form of a recipe. It prints
the time from a key to its character, without the line's own delay.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import statistics
import struct
import sys
import tempfile
import termios
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
_ESCAPE = re.compile(rb"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07]*\x07|.)")
TYPED = "~^`@~^`@~^`@~^`@"
PAUSE_S = 0.05


class Line:
    """A terminal behind a line: each direction takes `delay_s`."""

    def __init__(self, argv: list[str], delay_s: float) -> None:
        self.delay_s = delay_s
        self.seen: list[tuple[float, bytes]] = []
        """What was painted, with the time at which it is seen."""
        self._keys: list[tuple[float, bytes]] = []
        home = tempfile.mkdtemp()
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.environ |= {"TERM": "xterm-256color", "COACH_HOME": home, "LANG": "C.UTF-8"}
            os.chdir(REPOSITORY)
            os.execv(argv[0], argv)
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))

    def press(self, key: bytes) -> float:
        now_s = time.monotonic()
        self._keys.append((now_s + self.delay_s, key))
        return now_s

    def wait(self, seconds: float) -> None:
        """Carry keys and paint for so long."""
        end_s = time.monotonic() + seconds
        while (left_s := end_s - time.monotonic()) > 0:
            while self._keys and self._keys[0][0] <= time.monotonic():
                os.write(self._fd, self._keys.pop(0)[1])
            if select.select([self._fd], [], [], min(left_s, 0.005))[0]:
                self.seen.append((time.monotonic() + self.delay_s, os.read(self._fd, 65536)))

    def close(self) -> None:
        os.kill(self.pid, signal.SIGTERM)
        with contextlib.suppress(OSError):  # the other end of the terminal is gone
            self.wait(5.0)
        os.waitpid(self.pid, 0)


def measure(line: Line) -> list[float]:
    """Type, and return how long each character took beyond the line."""
    pressed: list[tuple[float, bytes]] = []
    for letter in TYPED:
        line.seen = line.seen if pressed else []
        pressed.append((line.press(letter.encode()), letter.encode()))
        line.wait(PAUSE_S)
    line.wait(2 * line.delay_s + 3.0)
    painted = [(seen_s, byte) for seen_s, chunk in line.seen for byte in _ESCAPE.sub(b"", chunk)]
    took: list[float] = []
    place = 0
    for at_s, letter in pressed:
        # Nothing that was painted before the key had arrived is its character.
        arrived_s = at_s + 2 * line.delay_s
        while place < len(painted) and (painted[place][1] != letter[0] or painted[place][0] < arrived_s):
            place += 1
        if place == len(painted):
            break
        took.append(painted[place][0] - at_s - 2 * line.delay_s)
        place += 1
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--delay-ms", type=float, default=100.0, help="of each direction (default: 100)")
    args = parser.parse_args()
    line = Line([sys.executable, "-m", "coach", "--demo"], args.delay_ms / 1000)
    line.wait(8.0)
    for name, keys in (("filter of the queue", [b"/"]), ("form of a recipe", [b"\x1b", b"R", b"\t", b"\t"])):
        for key in keys:
            line.press(key)
            line.wait(1.5)
        took = measure(line)
        middle, most = statistics.median(took or [float("nan")]), max(took, default=float("nan"))
        sys.stdout.write(
            f"{name}: {len(took)} of {len(TYPED)} characters, {1000 * middle:.0f} ms beyond the line "
            f"(median), {1000 * most:.0f} ms at most\n"
        )
    line.close()


if __name__ == "__main__":
    main()
