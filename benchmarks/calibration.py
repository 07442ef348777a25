"""Measure the share of right findings by the confidence that their rule gives them: python -m
benchmarks.calibration

The labelled logs are the corpus that COACH_LOG_CORPUS names (`score_corpus.py`). The cause of a log's primary
finding is compared with its label. The interval is Wilson's, at 95 %.
"""

from __future__ import annotations

import csv
import math
import os
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from benchmarks.score_corpus import findings_in
from coach.model.judging.finding import Severity
from coach.rules.engine import Engine
from coach.rules.registry import build

_BANDS = ((0.95, 1.01), (0.9, 0.95), (0.7, 0.9), (0.0, 0.7))
_Z = 1.96


def judged(corpus: Path) -> Iterable[tuple[str, float, bool]]:
    """Rule, confidence and rightness of the primary finding of each log that has one at warning or above."""
    rules = build()
    with open(corpus / "labels.tsv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    for row in rows:
        found = findings_in(corpus / "dev" / f"{row['id']}.log", Engine(rules))
        first = next((each for each in found if each.severity >= Severity.WARNING), None)
        if first is not None:
            yield first.rule, first.confidence, first.cause in (row["label"], row["secondary"])


def interval(right: int, of: int) -> tuple[float, float]:
    """Wilson's interval of a share, at 95 %, of one log or more."""
    share = right / of
    middle = share + _Z**2 / (2 * of)
    half = _Z * math.sqrt(share * (1 - share) / of + _Z**2 / (4 * of**2))
    return tuple((middle + sign * half) / (1 + _Z**2 / of) for sign in (-1, 1))  # type: ignore[return-value]


def lines(found: list[tuple[str, float, bool]]) -> Iterable[str]:
    """The table, and how small the sample of each rule is."""
    yield "| confidence | right | of | share, 95 % interval |"
    yield "|---|---|---|---|"
    for low, high in _BANDS:
        of_band = [is_right for _, confidence, is_right in found if low <= confidence < high]
        if not of_band:
            yield f"| {low:g} to {min(high, 1):g} | 0 | 0 | no log |"
            continue
        least, most = interval(sum(of_band), len(of_band))
        yield f"| {low:g} to {min(high, 1):g} | {sum(of_band)} | {len(of_band)} | {least:.0%} to {most:.0%} |"
    per_rule = Counter(rule for rule, _, _ in found)
    most_logs = max(per_rule.values(), default=1)
    yield ""
    yield f"{len(found)} findings of {len(per_rule)} rules; the most of one rule: {most_logs}"
    yield f"all {most_logs} right would still be {interval(most_logs, most_logs)[0]:.0%} to 100%"


def main() -> int:
    folder = os.environ.get("COACH_LOG_CORPUS")
    if not folder:
        print("COACH_LOG_CORPUS is not set: it names the folder with labels.tsv and dev/", file=sys.stderr)
        return 2
    for line in lines(list(judged(Path(folder)))):
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
