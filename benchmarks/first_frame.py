"""Measure the wait for the first frame with data: `coach --backend local` in a real pseudo-terminal, median
of ten.

`python -c "import textual.app"` is measured in turns with it: the lower bound of any program on Textual. The
time runs from the start of the process until the painted text contains the wanted text.

    python benchmarks/first_frame.py [--rounds 10] [--wanted REGEX] [-- COACH ARGUMENTS]

Then it measures the processor seconds and the file operations (by `strace -f -c`, if installed) until a key
was obeyed, and the same for a bare Textual app with a header, a footer and one key. Other programs on the
machine change wall-clock seconds, but neither of these two.
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
from pathlib import Path

BUDGET_S = 0.6
TIMEOUT_S = 20.0
NODE_STATE = r"\b(idle|mixed|allocated)\b"
"""The state of this machine as a node: the header may name the machine before anything has been read."""
ROWS, COLUMNS = 36, 120

MOST_PROCESSOR, MOST_FILES = 1.5, 1.3
"""Of coach, as a multiple of the bare app's."""
BARE = """
from textual.app import App
from textual.widgets import Footer, Header, Static

class Bare(App):
    BINDINGS = [("question_mark", "obey", "Obey")]
    def compose(self):
        yield Header()
        yield Static("idle")
        yield Footer()
    def action_obey(self):
        self.query_one(Static).update("Keys on")

Bare().run()
"""
FOOTER = re.compile(r"keys.*quit")
"""The first frame of coach has it; data may come later."""
OBEYED = re.compile("Keys on")
"""Painted by the bare app, and by coach's help, after `?`."""

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


def processor_of(pid: int) -> float:
    """Processor seconds of a process so far, those of its ended children included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def cost_until_obeyed(
    argv: Sequence[str], env: Mapping[str, str], wanted: re.Pattern[str]
) -> tuple[float, float]:
    """Start a program, press `?` once `wanted` is painted and wait for `OBEYED`; processor seconds, those of
    its ended children included, and wall-clock seconds."""
    started_s = time.perf_counter()
    pid, terminal = pty.fork()
    if pid == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        os.execvpe(argv[0], list(argv), dict(env))
    painted, awaited, is_obeyed = b"", wanted, False
    while not is_obeyed and time.perf_counter() - started_s < 3 * TIMEOUT_S:
        if select.select([terminal], [], [], 1.0)[0]:
            painted += os.read(terminal, 65536)
        if awaited.search(_ESCAPE.sub(b"", painted).decode(errors="replace")):
            is_obeyed = awaited is OBEYED
            if not is_obeyed:
                awaited, painted = OBEYED, b""
                os.write(terminal, b"?")
    wall_s, processor_s = time.perf_counter() - started_s, processor_of(pid)
    os.write(terminal, b"\x11")  # Ctrl-Q, because a signal would end the tracer and not the traced program
    while True:  # its remaining output has to be read, or it never ends
        try:
            if not os.read(terminal, 65536):
                break
        except OSError:
            break
    os.waitpid(pid, 0)
    os.close(terminal)
    if not is_obeyed:
        raise SystemExit(f"{' '.join(argv)} did not obey a key in {3 * TIMEOUT_S:g} s")
    return processor_s, wall_s


def file_operations(argv: Sequence[str], env: Mapping[str, str], wanted: re.Pattern[str]) -> int:
    """System calls that name a file or list a folder, until a key was obeyed and the program has ended."""
    with tempfile.NamedTemporaryFile("r") as counts:
        tracing = ["strace", "-f", "-c", "-qq", "-e", "trace=%file,getdents64", "-o", counts.name]
        cost_until_obeyed([*tracing, *argv], env, wanted)
        total = next(line.split() for line in counts.read().splitlines() if line.endswith(" total"))
    return int(total[3])  # % time, seconds, microseconds a call, calls


def compare_costs(coach: Sequence[str], env: Mapping[str, str], wanted: re.Pattern[str], rounds: int) -> bool:
    """Print the cost of coach and of the bare app, measured in turns. True if both ratios are within their
    limits."""
    bare, idle = [sys.executable, "-c", BARE], re.compile("idle")
    costs = [
        (cost_until_obeyed(coach, env, wanted)[0], cost_until_obeyed(bare, env, idle)[0])
        for _ in range(rounds)
    ]
    ours, its = (statistics.median(column) for column in zip(*costs, strict=True))
    print(f"processor until a key is obeyed: {ours:.2f} s; a bare Textual app {its:.2f} s ({ours / its:.2f})")
    if shutil.which("strace") is None:
        print("file operations: not measured, strace is not installed")
        return ours <= MOST_PROCESSOR * its
    files, its_files = file_operations(coach, env, wanted), file_operations(bare, env, idle)
    print(f"file operations: {files}; a bare Textual app {its_files} ({files / its_files:.2f})")
    return ours <= MOST_PROCESSOR * its and files <= MOST_FILES * its_files


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
        is_light = compare_costs(coach, env, FOOTER, args.rounds)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    is_kept = statistics.median(frames_s) <= BUDGET_S
    print(row("first frame with data", frames_s))
    print(row('python -c "import textual.app"', imports_s))
    print(f"{'within' if is_kept else 'OVER'} the budget of {BUDGET_S:g} s")
    if not is_light:
        print(f"OVER {MOST_PROCESSOR:g} times the processor or {MOST_FILES:g} times the files of a bare app")
    return 0 if is_kept and is_light else 1


if __name__ == "__main__":
    sys.exit(main())
