"""Judges the end of a large log while all of it is still being read: most causes stand in the last lines.

It is a first look: the whole log may show an earlier cause.
"""

from __future__ import annotations

from pathlib import Path

from coach.analysis.teaching.withheld_findings import as_told
from coach.config import Settings
from coach.launch.recipe import drill_names
from coach.lookback.history import History
from coach.model.judging.finding import Finding, Severity
from coach.model.snapshot import TargetSnapshot
from coach.rules.engine import Engine
from coach.rules.registry import signatures
from coach.sources.io import Io
from coach.sources.logs.scanner import LogScanner
from coach.sources.runs.run_files import run_around
from coach.workflows.judging.lazy_engine import rules_of

END_BYTES = 4 << 20


def cause_at_end(io: Io, path: Path, settings: Settings) -> Finding | None:
    """The cause that the last END_BYTES of a log show by themselves; None if they show none. Raises OSError,
    or UserError for settings that cannot be used."""
    start = max(0, io.size(path) - END_BYTES)
    data = io.read(path, start, END_BYTES)
    engine = Engine(rules_of(settings))
    scanner = LogScanner(signatures(engine.rules), str(path))
    whole_lines = data[data.find(b"\n") + 1 :] if start else data
    hits = [*scanner.feed(whole_lines), *scanner.flush()]
    if scanner.is_binary:
        return None
    snapshot = TargetSnapshot(str(path), None, log_hits=tuple(hits), log_tails=(scanner.tail(),))
    found = as_told(engine.diagnose(snapshot, History()), run_around(io, path), drill_names())
    return next((finding for finding in found.findings if finding.severity >= Severity.WARNING), None)
