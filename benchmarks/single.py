"""Measure coach from one file: its size, the time of a start, and the speed of its pure-Python stand-ins.

    make single; python benchmarks/single.py [--python /usr/bin/python3.11] [--rounds 5]

The interpreter must not have coach, psutil or ahocorasick-rs. Each time is the median of the rounds:
wall-clock time and, for a command that ends by itself, processor time. With strace, the first frame is
measured again with 2 ms more for each system call that names a file or lists a folder, as on a slow home.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from first_frame import FOOTER, NODE_STATE, file_operations, seconds_until_painted

ROOT = Path(__file__).resolve().parents[1]
CALLS = "%file,getdents64"
DELAYED = ("strace", "-f", "--seccomp-bpf", "-o", "/dev/null", "-e", f"trace={CALLS}")
DELAYED += ("-e", f"inject={CALLS}:delay_enter=2000")
NATIVE = ("psutil", "ahocorasick_rs")
LOG_LINES = 100_000


def main() -> int:
    """Measure, and print a line for each number."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--file", type=Path, default=ROOT / "coach.pyz")
    parser.add_argument("--python", default="/usr/bin/python3.11")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    print(f"size: {args.file.stat().st_size / 1e6:.1f} MB")
    with tempfile.TemporaryDirectory() as home:
        env = {"HOME": home, "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "TERM": "xterm-256color"}
        env["COACH_AS_ROOT"] = "1"
        one_file = [args.python, str(args.file)]
        installed = [sys.executable, "-m", "coach"]
        subprocess.run(
            [*one_file, "run", "--", "sh", "-c", "exit 3"], env=env, check=False, capture_output=True
        )
        for words in (("--version",), ("why",)):
            for name, coach in (("one file", one_file), ("installed", installed)):
                print(f"coach {' '.join(words)}, {name}: {timed([*coach, *words], env, args.rounds)}")
        frames(one_file, installed, env, args.rounds)
        stand_ins(one_file, env, Path(home))
    return 0


def timed(argv: Sequence[str], env: Mapping[str, str], rounds: int) -> str:
    """The median wall-clock and processor seconds of a command."""
    walls, processors = [], []
    for _ in range(rounds):
        before, started_s = os.times(), time.perf_counter()
        subprocess.run(argv, env=dict(env), capture_output=True, check=False)
        walls.append(time.perf_counter() - started_s)
        after = os.times()
        processors.append(
            after.children_user + after.children_system - before.children_user - before.children_system
        )
    return f"{statistics.median(walls):.2f} s, processor {statistics.median(processors):.2f} s"


def frames(one_file: list[str], installed: list[str], env: Mapping[str, str], rounds: int) -> None:
    """The first frame, and the first with data."""
    for name, coach in (("one file", one_file), ("installed", installed)):
        argv = [*coach, "--backend", "local"]
        print(f"first frame, {name}: {painted(argv, env, FOOTER, rounds)}")
        print(f"first frame with data, {name}: {painted(argv, env, re.compile(NODE_STATE), rounds)}")
        if shutil.which("strace"):
            print(f"file operations until a key was obeyed, {name}: {file_operations(argv, env, FOOTER)}")
            if coach is one_file:  # an installed coach takes longer than anybody waits
                print(f"first frame, 2 ms more, {name}: {painted([*DELAYED, *argv], env, FOOTER, rounds)}")


def painted(argv: Sequence[str], env: Mapping[str, str], wanted: re.Pattern[str], rounds: int) -> str:
    """The median until a text is painted, with the least and the most."""
    times = [seconds_until_painted(argv, env, wanted) for _ in range(rounds)]
    return f"{statistics.median(times):.2f} s (min {min(times):.2f}, max {max(times):.2f})"


def stand_ins(one_file: list[str], env: Mapping[str, str], home: Path) -> None:
    """A log of a long training, read with the stand-ins, and with the native packages on the path."""
    chance = random.Random(1)
    log = home / "training.log"
    with log.open("w") as file:
        for step in range(LOG_LINES):
            loss, rate = chance.random(), 1000 * chance.random()
            file.write(
                f"[rank{step % 8}]: 2026-11-25 10:{step // 60 % 60:02d}:{step % 60:02d} INFO "
                f"epoch {step // 1000} step {step} loss {loss:.4f} lr 1e-4 "
                f"samples/s {rate:.1f} data_time {loss / 9:.3f} s\n"
            )
        file.write('Traceback (most recent call last):\n  File "train.py", line 7, in <module>\n')
        file.write("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.\n")
    found = next(Path(entry) for entry in sys.path if (Path(entry) / NATIVE[0]).is_dir())
    packages = home / "native"
    packages.mkdir()
    for name in NATIVE:
        (packages / name).symlink_to(found / name)
    print(f"log of {log.stat().st_size / 1e6:.1f} MB")
    argv = [*one_file, "check", str(log), "--format", "json"]
    said = []
    for name, more in (("stand-ins", {}), ("native packages", {"PYTHONPATH": str(packages)})):
        here = {**env, **more}
        said.append(subprocess.run(argv, env=here, capture_output=True, check=False).stdout)
        print(f"coach check of it, {name}: {timed(argv, here, 3)}")
    print(f"the same findings: {said[0] == said[1] and len(said[0]) > 100}")


if __name__ == "__main__":
    sys.exit(main())
