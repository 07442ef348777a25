"""`coach why`: why a job ended, in at most six lines; without a job, for the own job that ended badly last.

A stored verdict is printed as it is. Rules and logs are only loaded for a job without a verdict.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coach.analysis.judging.verdict_object import pending_of, public_object, worst_severity
from coach.cli.cluster import ENDED_JOB_HELP, add_options
from coach.cli.reading_io import Io, reading_io
from coach.cli.text import print_line, say
from coach.config import Settings
from coach.late import late
from coach.model.errors import UnknownTarget
from coach.model.judging.finding import Severity
from coach.render.why import log_lines, why_lines
from coach.workflows.backend import resolve_backend

if TYPE_CHECKING:
    from coach.workflows import sharing
    from coach.workflows.judging import check, kept_verdicts, newest_bad
else:
    sharing = late("coach.workflows", "sharing")
    check, kept_verdicts, newest_bad = late("coach.workflows.judging", "check", "kept_verdicts", "newest_bad")

_FAIL_ON = {severity.word: severity for severity in Severity}
_WIDTH = 160
_ENDS = ("COMPLETED", "FAILED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL", "CANCELLED", "PREEMPTED", "DEADLINE")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", nargs="?", metavar="JOB", help=ENDED_JOB_HELP)
    parser.add_argument(
        "--ended",
        metavar="STATE",
        choices=_ENDS,
        help="the job's final state, while its epilog runs and Slurm does not report it yet (for a site's "
        "hooks)",
    )
    parser.add_argument("--write-verdict", metavar="RUN_DIR", help=argparse.SUPPRESS)
    parser.add_argument(
        "--fail-on",
        choices=tuple(_FAIL_ON),
        default="warning",
        help="exit with status 1 at a finding of this severity or a higher one (default: warning)",
    )
    add_options(parser)


def run(args: argparse.Namespace, settings: Settings) -> int:
    io = reading_io(settings)
    if args.write_verdict is not None:
        return _write_verdict(Path(args.write_verdict), settings, io)
    backend = resolve_backend(args.backend or settings.launch.backend, os.environ)
    job = args.job if args.job is not None else newest_bad.newest_bad(settings, io, backend)
    if job is None:
        if args.format == "json":
            print(json.dumps({"schema": 1, "jobs": []}))
        else:
            print_line("No job of yours is known to have ended badly.")
        return 0
    verdict = _verdict_of(job, settings, io, args)
    if args.format == "json":
        print(json.dumps(public_object(verdict), indent=2))
    else:
        for line in why_lines(verdict, io.now()):
            print_line(line)
    return int(_is_grave(verdict, _FAIL_ON[args.fail_on]))


def _is_grave(verdict: Mapping[str, Any], least: Severity) -> bool:
    """True for a finding of this severity or a higher one. A job that never starts counts as a warning."""
    never = (pending_of(verdict) or {}).get("never_starts") is True
    worst = max(filter(None, (worst_severity(verdict), Severity.WARNING if never else None)), default=None)
    return worst is not None and worst >= least


def _verdict_of(job: str, settings: Settings, io: Io, args: argparse.Namespace) -> Mapping[str, Any]:
    try:
        verdict, note = kept_verdicts.verdict_of(job, settings, io, args.backend, args.ended)
    except UnknownTarget:
        kept = kept_verdicts.kept_of_forgotten(job, settings)
        if kept is None:
            raise
        print("coach: Slurm has forgotten this job; this is coach's own record of it", file=sys.stderr)
        return kept
    if note is not None:
        say(note)
    return verdict


def _write_verdict(run_dir: Path, settings: Settings, io: Io) -> int:
    """Called by a job at its own end: judge the run by its files alone, and print the lines for its log."""
    checked = check.Checker(settings, io, "local").ended_run(run_dir)
    verdict = checked.verdict()
    kept_verdicts.keep(settings, io, checked.snapshot, verdict, is_by_job=True)
    for line in log_lines(verdict):
        print_line(line)
    sys.stdout.flush()  # the next step may hang on a shared directory until the time is over
    sharing.share_own_verdict(checked.snapshot.run, checked.diagnosis)
    return 0
