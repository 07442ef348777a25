"""Count false alarms: the findings in a folder of logs whose programs all ended well.

The logs are other people's and stay outside the project: COACH_HEALTHY_LOGS names the folder with the *.log
files. Every finding at warning or above is a false alarm and is named with its line. Exit status 1: END001
fired, or a log could not be judged within its bounds of time and memory.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.score_corpus import findings_in  # noqa: E402 (the repository is on the path only now)
from coach.analysis.spelling.printable import printable  # noqa: E402
from coach.model.judging.finding import Finding, Severity  # noqa: E402
from coach.rules.engine import Engine  # noqa: E402
from coach.rules.registry import build  # noqa: E402

UNKNOWN_FAILURE = "END001"
SECONDS_PER_LOG = 60.0  # the largest that were measured take about one
MEMORY_BYTES = 4 << 30
MAX_LINE_CHARS = 160

_TRACEBACK = b"Traceback (most recent call last)"
_OVERLAP = len(_TRACEBACK) - 1
_PIECE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Judged:
    """One log: its findings, or why it could not be judged."""

    log: str
    num_bytes: int
    has_traceback: bool
    findings: tuple[Finding, ...]
    seconds: float
    error: str | None = None

    @property
    def alarms(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity >= Severity.WARNING]


class _TooSlow(Exception):
    """A log took longer than it may."""


def judge(folder: Path, seconds: float = SECONDS_PER_LOG) -> list[Judged]:
    """Judge every log of the folder, each by a new engine."""
    rules = build()
    return [_judge_one(path, Engine(rules), seconds) for path in sorted(folder.glob("*.log"))]


def _judge_one(path: Path, engine: Engine, seconds: float) -> Judged:
    begin = time.monotonic()
    findings: tuple[Finding, ...] = ()
    error = None
    num_bytes, has_traceback = 0, False
    try:
        num_bytes, has_traceback = path.stat().st_size, _has_traceback(path)
        with _at_most(seconds):
            findings = findings_in(path, engine)
    except OSError as why:
        error = f"cannot be read: {why.strerror}"
    except _TooSlow:
        error = f"not judged within {seconds:g} s"
    except MemoryError:
        error = f"needs more than {MEMORY_BYTES >> 30} GiB"
    took = time.monotonic() - begin
    return Judged(path.name, num_bytes, has_traceback, findings, took, error)


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Raise _TooSlow in the block after some seconds.

    Python's `re` looks for signals while it searches.
    """

    def raise_too_slow(_signal: int, _frame: FrameType | None) -> None:
        raise _TooSlow

    before = signal.signal(signal.SIGALRM, raise_too_slow)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _has_traceback(path: Path) -> bool:
    before = b""
    with open(path, "rb") as file:
        while piece := file.read(_PIECE_BYTES):
            if _TRACEBACK in before + piece:
                return True
            before = piece[-_OVERLAP:]
    return False


def report(logs: Sequence[Judged]) -> list[str]:
    """The counts, then each alarm, then each log that could not be judged."""
    tracebacks = [log for log in logs if log.has_traceback]
    megabytes = sum(log.num_bytes for log in logs) / 1e6
    slowest = max(logs, key=lambda log: log.seconds)
    lines = [
        f"{len(logs)} logs, {megabytes:.0f} MB, {_share(len(tracebacks), len(logs))} with a traceback",
        (
            f"{sum(log.seconds for log in logs):.1f} s, the slowest {slowest.seconds:.1f} s "
            f"({printable(slowest.log)})"
        ),
        f"silent: {_silent(logs)}; of those with a traceback: {_silent(tracebacks)}",
    ]
    findings = [finding for log in logs for finding in log.findings]
    lines += [_count(severity, findings) for severity in sorted(Severity, reverse=True)]
    lines += [f"false alarm  {_named(log, finding)}" for log in logs for finding in log.alarms]
    lines += [f"not judged   {printable(log.log)}: {log.error}" for log in logs if log.error]
    return lines


def _count(severity: Severity, findings: Sequence[Finding]) -> str:
    """The number of findings, and their rules."""
    found = Counter(finding.rule for finding in findings if finding.severity is severity)
    rules = ", ".join(f"{rule} {count}" for rule, count in found.most_common())
    return f"{severity.word:<9}{found.total():>4} findings{': ' + rules if rules else ''}"


def _silent(logs: Sequence[Judged]) -> str:
    return _share(sum(not log.alarms and log.error is None for log in logs), len(logs))


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({100 * part / whole:.1f} %)" if whole else "none"


def _named(log: Judged, finding: Finding) -> str:
    proof = next((evidence for evidence in finding.evidence if evidence.line is not None), None)
    line = f"{log.log}: {finding.rule} {finding.cause} ({finding.severity.word})"
    if proof is not None:
        line += f", line {proof.line}: {proof.text[:MAX_LINE_CHARS]}"
    return printable(line)


def has_failed(logs: Sequence[Judged]) -> bool:
    return any(log.error or UNKNOWN_FAILURE in {finding.rule for finding in log.findings} for log in logs)


def main() -> int:
    folder = os.environ.get("COACH_HEALTHY_LOGS")
    if not folder:
        print("COACH_HEALTHY_LOGS is not set: it names the folder with the *.log files", file=sys.stderr)
        return 2
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))
    logs = judge(Path(folder))
    if not logs:
        print(f"no *.log in {printable(folder)}", file=sys.stderr)
        return 2
    for line in report(logs):
        print(line)
    return 1 if has_failed(logs) else 0


if __name__ == "__main__":
    sys.exit(main())
