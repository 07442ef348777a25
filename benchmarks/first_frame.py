"""How long a person waits for the first frame with data: `coach --backend local` in a real pseudo-terminal,
median of ten.

Beside it stands `python -c "import textual.app"` on the same machine, taken in turns with it: what no program
on Textual can be under. The time counts from starting the process until the wanted text is in what it has
painted.

    python benchmarks/first_frame.py [--rounds 10] [--wanted REGEX] [-- COACH ARGUMENTS]
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import re
import select
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Mapping, Sequence

BUDGET_S = 0.6
TIMEOUT_S = 20.0
NODE_STATE = r"\b(idle|mixed|allocated)\b"
"""The state of this machine as a node: the header may name the machine before anything has been read."""
ROWS, COLUMNS = 36, 120

_ESCAPE = re.compile(
    rb"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[PX^_].*?\x1b\\|[@-Z\\-_])", re.DOTALL
)


def seconds_until_painted(argv: Sequence[str], env: Mapping[str, str], wanted: re.Pattern[str]) -> float:
    """Start a program in a new terminal; the time until `wanted` is in the text that it has painted."""
    started_s = time.perf_counter()
    pid, terminal = pty.fork()
    if pid == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        os.execvpe(argv[0], list(argv), dict(env))
    painted = b""
    try:
        while (left_s := started_s + TIMEOUT_S - time.perf_counter()) > 0:
            if not select.select([terminal], [], [], left_s)[0]:
                break
            try:
                painted += os.read(terminal, 65536)
            except OSError:  # the program has ended, and with it the terminal
                break
            text = _ESCAPE.sub(b"", painted).decode(errors="replace")
            if wanted.search(text):
                return time.perf_counter() - started_s
        shown = _ESCAPE.sub(b"", painted).decode(errors="replace").strip()
        raise SystemExit(
            f"{' '.join(argv)} did not paint {wanted.pattern!r} in {TIMEOUT_S:g} s; it "
            f"painted:\n{shown[-2000:]}"
        )
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)


def seconds_to_run(argv: Sequence[str], env: Mapping[str, str]) -> float:
    """How long a command takes from start to end."""
    started_s = time.perf_counter()
    subprocess.run(argv, env=env, check=True)
    return time.perf_counter() - started_s


def row(name: str, times_s: Sequence[float]) -> str:
    """One line of the result."""
    return (
        f"{name:<40} median {statistics.median(times_s):.3f} s   min {min(times_s):.3f}   max "
        f"{max(times_s):.3f}   n {len(times_s)}"
    )


def main() -> int:
    """Measure, print, and say whether the budget is kept. Exit status 1 when it is not."""
    parser = argparse.ArgumentParser(description="Time to the first frame with data.")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--wanted", default=NODE_STATE, help="pattern that only a frame with data has")
    parser.add_argument(
        "arguments", nargs="*", default=[], help="coach's arguments (default: --backend local)"
    )
    args = parser.parse_args()
    coach = [sys.executable, "-m", "coach", *(args.arguments or ["--backend", "local"])]
    textual = [sys.executable, "-c", "import textual.app"]
    home = tempfile.mkdtemp(prefix="coach-first-frame-")
    env = {**os.environ, "COACH_HOME": home, "TERM": "xterm-256color", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}
    wanted = re.compile(args.wanted)
    frames_s, imports_s = [], []
    try:
        seconds_until_painted(coach, env, wanted)  # once to write the bytecode, as any earlier start has
        for _ in range(args.rounds):
            frames_s.append(seconds_until_painted(coach, env, wanted))
            imports_s.append(seconds_to_run(textual, env))
    finally:
        shutil.rmtree(home, ignore_errors=True)
    is_kept = statistics.median(frames_s) <= BUDGET_S
    print(row("first frame with data", frames_s))
    print(row('python -c "import textual.app"', imports_s))
    print(f"{'within' if is_kept else 'OVER'} the budget of {BUDGET_S:g} s")
    return 0 if is_kept else 1


if __name__ == "__main__":
    sys.exit(main())
