"""Fuzz every parser, led by coverage: `python -m tests.fuzz.guided [--seconds 60] [--only WORD]`.

atheris (libFuzzer for Python) keeps the bytes that reach new branches of coach and changes them further; the
bytes choose the values that the properties of this folder draw. Each property has its own process, with a
limit of 100 s for one example and of 2 GiB. A failure is printed with its text; add that text to the `cases`
of the property. Needs `pip install atheris`, which has wheels for Python 3.11 to 3.13 on Linux.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.harness import named, names

_PROGRESS = re.compile(r"^#(\d+)\s+\w+\s+cov: (\d+)", re.MULTILINE)
_FAILED = re.compile(
    r"^(?:FOUND .*|ERROR: libFuzzer: .*|==\d+== ERROR.*|\S*(?:Error|Exception)\b.*)$", re.MULTILINE
)
_FIRST_SIZES = (16, 64, 64, 256, 256, 256, 1024, 1024, 1024, 1024, 2048, 2048)


def fuzz_one(name: str, seconds: int, folder: str) -> None:
    """Fuzz one property in this process, which libFuzzer ends."""
    atheris: Any = import_module("atheris")
    with atheris.instrument_imports(include=["coach"], enable_loader_override=False):
        chosen = named(name).guided()
        limits = [f"-max_total_time={seconds}", "-timeout=100", "-rss_limit_mb=2048", "-max_len=4096"]
        argv = [sys.argv[0], *limits, "-len_control=0", f"-artifact_prefix={folder}/", folder]
        atheris.Setup(argv, lambda data: chosen(data) and None)
        atheris.Fuzz()


def fuzz(name: str, seconds: int) -> bool:
    """Fuzz one property in a process of its own; True if nothing failed."""
    with tempfile.TemporaryDirectory() as folder:
        for number, size in enumerate(_FIRST_SIZES):
            Path(folder, str(number)).write_bytes(Random(number).randbytes(size))
        argv = [sys.executable, "-m", "tests.fuzz.guided", "--one", name, folder, "--seconds", str(seconds)]
        done = subprocess.run(argv, capture_output=True, text=True, errors="replace", check=False)
    said = done.stdout + done.stderr
    examples, branches = (_PROGRESS.findall(said) or [("0", "0")])[-1]
    print(f"{'ok' if done.returncode == 0 else 'FAILED'}\t{name}\t{examples}\t{branches}", flush=True)
    if done.returncode:
        print(*(_FAILED.findall(said)[:6] or [said[-2000:]]), sep="\n", flush=True)
    return done.returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=int, default=60, help="for each property")
    parser.add_argument("--only", default="", metavar="WORD", help="properties whose names hold this word")
    parser.add_argument("--one", nargs=2, metavar=("NAME", "FOLDER"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        fuzz_one(args.one[0], args.seconds, args.one[1])
        return 0
    wanted = [name for name in names() if args.only in name]
    num_failed = sum(not fuzz(name, args.seconds) for name in wanted)
    return min(num_failed, 1)


if __name__ == "__main__":
    sys.exit(main())
