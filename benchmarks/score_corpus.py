"""Score the diagnosis on a corpus of real logs: count right causes, missed causes and false alarms.

The corpus is other people's logs and stays outside the project: COACH_LOG_CORPUS names its folder (labels.tsv
and dev/NNN.log). A log counts as right when its first finding at warning or above has the label, or the
secondary label, as its cause.
"""

from __future__ import annotations

import csv
import os
import sys
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from coach.lookback.history import History
from coach.model.judging.finding import Finding, Severity
from coach.model.snapshot import TargetSnapshot
from coach.rules.engine import Engine
from coach.rules.registry import build, signatures
from coach.sources.logs.log_source import BITE_BYTES
from coach.sources.logs.scanner import LogScanner

HEALTHY = "healthy"


@dataclass(frozen=True, slots=True)
class Score:
    """One log: its label, and the first finding."""

    log: str
    labels: tuple[str, ...]
    found: str | None

    @property
    def is_healthy(self) -> bool:
        return self.labels[0] == HEALTHY

    @property
    def is_right(self) -> bool:
        return self.found is None if self.is_healthy else self.found in self.labels


def score(corpus: Path) -> list[Score]:
    """Diagnose every log of the corpus."""
    rules = build()
    with open(corpus / "labels.tsv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    found = []
    for row in rows:
        path = corpus / "dev" / f"{row['id']}.log"
        labels = tuple(label for label in (row["label"], row["secondary"]) if label != "-")
        found.append(Score(path.name, labels, _first_cause(path, Engine(rules))))
    return found


def _first_cause(path: Path, engine: Engine) -> str | None:
    return next((f.cause for f in findings_in(path, engine) if f.severity >= Severity.WARNING), None)


def findings_in(path: Path, engine: Engine) -> tuple[Finding, ...]:
    """The findings in one log, without a job.

    The log is read in pieces and never held as a whole.
    """
    scanner = LogScanner(signatures(engine.rules), str(path))
    hits = []
    with open(path, "rb") as file:
        while piece := file.read(BITE_BYTES):
            hits += scanner.feed(piece)
    hits += scanner.flush()
    snapshot = TargetSnapshot(str(path), None, log_hits=tuple(hits), log_tails=(scanner.tail(),))
    return engine.diagnose(snapshot, History()).findings


def main() -> int:
    folder = os.environ.get("COACH_LOG_CORPUS")
    if not folder:
        print("COACH_LOG_CORPUS is not set: it names the folder with labels.tsv and dev/", file=sys.stderr)
        return 2
    scores = score(Path(folder))
    known = {rule.cause for rule in build()}
    _print_by_cause(scores, known)
    for item in scores:
        if not item.is_right and (line := _mistake(item, known)):
            print(line)
    print(f"overall {_num_right(scores)} of {len(scores)}")
    return 0


def _print_by_cause(scores: Sequence[Score], known: Collection[str]) -> None:
    by_cause: dict[str, list[Score]] = defaultdict(list)
    for item in scores:
        by_cause[item.labels[0]].append(item)
    for cause, items in sorted(by_cause.items()):
        covered = "" if cause in known or cause == HEALTHY else "  (no rule for this cause)"
        print(f"{cause:<36}{_num_right(items):>3} of {len(items)}{covered}")


def _num_right(scores: Sequence[Score]) -> int:
    return sum(item.is_right for item in scores)


def _mistake(item: Score, known: Collection[str]) -> str:
    """Empty for a log that was missed because no rule has its cause."""
    if item.is_healthy:
        return f"false alarm  {item.log}: {item.found}"
    if item.found is not None:
        return f"wrong        {item.log}: {item.found}, labelled {' or '.join(item.labels)}"
    return f"miss         {item.log}: labelled {' or '.join(item.labels)}" if item.labels[0] in known else ""


if __name__ == "__main__":
    sys.exit(main())
