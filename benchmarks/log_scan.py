"""How fast a log is read: every byte once, looking for all signatures of all rules.

`python benchmarks/log_scan.py` prints MB/s, the median of nine, for a log without a metric and for one whose every line has a loss.
"""

from __future__ import annotations

import statistics
import time

from coach.rules.registry import build, signatures
from coach.sources.log_scanner import LogScanner

PLAIN = b"2026-11-21 03:00:01 INFO train: step %d, 1234.5 samples/s, lr 0.05, data 0.001 s, epoch 3\n"
LOSSES = b"2026-11-21 03:00:01 INFO train: step %d, 1234.5 samples/s, lr 0.05, loss 0.5312, epoch 3\n"
BITE_BYTES = 1 << 20


def megabytes_per_second(line: bytes) -> float:
    block = b"".join(line % step for step in range(40_000))
    rates = []
    for _ in range(9):
        scanner = LogScanner(signatures(build()), "log")
        start = time.perf_counter()
        for place in range(0, len(block), BITE_BYTES):
            scanner.feed(block[place : place + BITE_BYTES])
        rates.append(len(block) / 1e6 / (time.perf_counter() - start))
    return statistics.median(rates)


if __name__ == "__main__":
    print(f"no metric in any line:  {megabytes_per_second(PLAIN):7.1f} MB/s")
    print(f"a loss in every line:   {megabytes_per_second(LOSSES):7.1f} MB/s")
