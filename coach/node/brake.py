"""The brake of a sweep: a starting run checks if the runs before it have all failed alike.

Each run checks for itself, in its own job: no coach has to be open, no job is cancelled from outside, and
Slurm is not queried. A run that has not ended is not counted. A run that ended well releases the brake.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any, Iterable, NamedTuple, Optional

from coach import runs

CAUSE = "sweep_brake"
DEFAULT_AFTER = 3
"""Number of failures alike that end a sweep, if the launch asks for a brake without a number."""
_RULE = re.compile(r"[A-Z]{3}\d{3}")
_EXCEPTION = re.compile(r"[\w.]+(?=: |$)")
_MAX_SUMMARY = 120


class Ended(NamedTuple):
    """A run that has ended."""

    has_failed: bool
    sign: str
    """The verdict's rule, or the exit status if there is no verdict. Failures are alike if sign and kind are
    equal."""
    summary: str
    kind: str = ""
    """For a rule of many causes, the cause: the type of the exception, or the words of an unknown error."""


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of `brake`."""
    parser.add_argument("--runs-dir", required=True, metavar="DIR", help="the directory of the group's runs")
    parser.add_argument(
        "--after",
        required=True,
        type=int,
        metavar="N",
        help="number of runs that must fail with the same cause",
    )
    parser.add_argument("run_ids", nargs="*", metavar="RUN", help="the runs of the group before this one")


def run(args: argparse.Namespace) -> int:
    """Print the reason why this run must not start. Exit status 1: it may start."""
    why = reason((look(Path(args.runs_dir, run_id)) for run_id in args.run_ids), args.after)
    if why is None:
        return 1
    print(why)
    return 0


def reason(found: Iterable[Optional[Ended]], after: int) -> Optional[str]:
    """The reason why the rest of the group must not start; None: it may."""
    ended = [each for each in found if each is not None]
    failed = [each for each in ended if each.has_failed]
    if (
        len(failed) < len(ended)
        or len(failed) < max(1, after)
        or len({(each.sign, each.kind) for each in failed}) > 1
    ):
        return None
    first = failed[0]
    words = f"{first.sign}: {first.summary}" if first.summary else first.sign
    runs_that = f"the first {len(failed)} runs" if len(failed) > 1 else "the first run"
    return f"stopped by the sweep's brake: {runs_that} failed alike ({words})"


def look(run_dir: Path) -> Optional[Ended]:
    """How one run ended. None if it still runs, its end is unknown, somebody cancelled it, or the brake
    stopped it."""
    paths = runs.RunPaths(run_dir)
    end = runs.read_json_if_any(paths.exit_json)
    state, refused = end.get("state"), end.get("refused")
    if not isinstance(state, str) or state in ("PENDING", "RUNNING", "CANCELLED", "PREEMPTED"):
        return None
    if isinstance(refused, dict) and refused.get("cause") == CAUSE:
        return None
    if state == "COMPLETED":
        return Ended(False, "", "")
    findings: Any = runs.read_json_if_any(paths.verdict_json).get("findings")
    first = findings[0] if isinstance(findings, list) and findings else {}
    rule = first.get("rule") if isinstance(first, dict) else None
    if isinstance(rule, str) and _RULE.fullmatch(rule):
        summary = first.get("summary")
        summary = summary[:_MAX_SUMMARY] if isinstance(summary, str) else ""
        return Ended(True, rule, summary, kind_of_cause(rule, summary))
    status = end.get("exit_code")
    return Ended(True, f"{state}, exit status {status}" if isinstance(status, int) else state, "")


def kind_of_cause(rule: str, summary: str) -> str:
    """The cause, for COD001 (any exception of the program) and END001 (any error that no rule knows)."""
    exception = _EXCEPTION.match(summary) if rule == "COD001" else None
    return exception[0] if exception is not None else summary if rule == "END001" else ""
