"""How fast logs are diagnosed: what a reader of all rules' signatures does, beside `grep -c -E` with the same literals.

`python benchmarks/diagnosis.py [MB]` writes logs of that size (200) into a temporary directory and prints MB/s of the scanner alone,
of `grep`, and wall-clock seconds and peak memory of `coach check` on the same file.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from coach.rules.registry import build, signatures
from coach.sources.log import BITE_BYTES
from coach.sources.log_scanner import LogScanner

_draw = random.Random(7)
_WORDS = ["".join(_draw.choices("abcdefghijklmnopqrstuvwxyz", k=_draw.randint(2, 9))) for _ in range(5000)]
_STAMP = "2026-11-21 03:00:01 INFO train: step"


def _some(count: int) -> str:
    return " ".join(_draw.choices(_WORDS, k=count))


CASES: dict[str, Callable[[int], str]] = {
    "no metric in any line": lambda i: f"{_STAMP} {i}, 1234.5 samples/s, lr 0.05, data 0.001 s, epoch 3\n",
    "a loss in every line": lambda i: f"{_STAMP} {i}, 1234.5 samples/s, lr 0.05, loss {_draw.random():.4f}\n",
    "Error: and loss in every line": lambda i: (
        f"{_STAMP} {i} Error: none so far, loss is fine, {i * 7919} x\n"
    ),
    "progress without a newline": lambda i: (
        f"\r {i % 100}%|###    | {i}/10000 [00:01<01:00, 12.3it/s, loss={_draw.random():.3f}]"
    ),
    "one line": lambda i: f"abc Error: loss {i} and no end ",
    "no line like another": lambda i: f"{_some(15)}\n",
    "no line like another, and three literals in each": lambda i: f"{_some(7)} loss Error: inf {_some(6)}\n",
}


def write(path: Path, line: Callable[[int], str], num_bytes: int) -> None:
    """A log of about this size; what is drawn by chance repeats after 30 MB, in another order of bites."""
    block = "".join(line(number) for number in range(300_000)).encode()
    with open(path, "wb") as file:
        while file.tell() < num_bytes:
            file.write(block[: num_bytes - file.tell()])


def scan_s(path: Path) -> float:
    scanner = LogScanner(signatures(build()), str(path))
    start = time.perf_counter()
    with open(path, "rb") as file:
        while data := file.read(BITE_BYTES):
            scanner.feed(data)
    scanner.flush()
    return time.perf_counter() - start


def grep_s(path: Path) -> float:
    literals = {literal for signature in signatures(build()) for literal in signature.literals}
    pattern = "|".join(re.sub(r"([][\\.^$*+?(){}|])", r"\\\1", literal) for literal in sorted(literals))
    start = time.perf_counter()
    # Not to /dev/null: grep knows it, and would stop at the first match.
    subprocess.run(["grep", "-a", "-c", "-E", pattern, path], capture_output=True, check=False)
    return time.perf_counter() - start


def check_s(path: Path) -> tuple[float, float]:
    """Seconds and peak MB of `coach check`."""
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "coach", "check", str(path), "--format", "json"], stdout=subprocess.DEVNULL
    )
    _, _, used = os.wait4(process.pid, 0)
    return time.perf_counter() - start, used.ru_maxrss / 1024


def main(num_megabytes: int) -> None:
    wanted = signatures(build())
    print(
        f"{len(wanted)} signatures, {sum(len(s.literals) for s in wanted)} literals, {num_megabytes} MB each"
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "job.log")
        for name, line in CASES.items():
            write(path, line, num_megabytes * 1_000_000)
            scan, grep = num_megabytes / scan_s(path), num_megabytes / grep_s(path)
            seconds, peak = check_s(path)
            print(
                f"{name:50} scanner {scan:6.0f} MB/s   grep {grep:6.0f} MB/s   coach check {seconds:5.1f} s {peak:4.0f} MB",
                flush=True,
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
