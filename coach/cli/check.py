"""`coach check`: diagnoses a run, a job or a log; without a target, all own jobs.

The object that `--format json` prints is a public contract: other programs act on it and on the exit status.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from coach.analysis.judging.verdict_object import diagnosis_object
from coach.cli.cluster import add_options
from coach.cli.diagnosis_text import checked_lines
from coach.cli.reading_io import Io, reading_io
from coach.cli.text import print_line, say
from coach.cli.verdict import WIDTH, verdict_lines
from coach.config import Settings
from coach.model.errors import UserError
from coach.model.judging.finding import Diagnosis, Severity
from coach.workflows.judging.check import Checker

_FAIL_ON = {severity.word: severity for severity in Severity}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target",
        nargs="?",
        metavar="TARGET",
        help="a run id, a job id, a directory, a log file, or - for standard input: a log, an nvidia-smi"
        " table, a py-spy dump or `scontrol show job`"
        " (default: your jobs that run, wait or ended within a day)",
    )
    parser.add_argument(
        "-u",
        "--user",
        metavar="NAME",
        help="without TARGET: this user's jobs, as far as you may read their logs",
    )
    parser.add_argument(
        "--log",
        action="append",
        default=[],
        metavar="FILE",
        help="read this log instead of the logs that coach finds; may be given many times",
    )
    parser.add_argument(
        "--metrics",
        action="append",
        default=[],
        metavar="FILE",
        help="read metrics from this file instead of the files that coach finds; may be given many times",
    )
    parser.add_argument(
        "--fail-on",
        choices=tuple(_FAIL_ON),
        default="warning",
        help="exit with status 1 at a finding of this severity or a higher one (default: warning)",
    )
    add_options(parser)


def run(args: argparse.Namespace, settings: Settings) -> int:
    io = reading_io(settings)
    if args.target in (None, "-") and (args.log or args.metrics):
        raise UserError("--log and --metrics need one TARGET", "coach check JOB --log FILE")
    if args.user is not None and args.target is not None:
        raise UserError("--user and TARGET: a target is one job, whoever's it is", "leave out one of them")
    checker = Checker(settings, io, args.backend)
    if args.target is not None:
        diagnoses, is_stuck = _check_one(args, checker, settings, io)
    else:
        diagnoses, is_stuck = _check_own(args, checker, io)
    limit = _FAIL_ON[args.fail_on]
    is_bad = any(finding.severity >= limit for found in diagnoses for finding in found.findings)
    return int(is_bad or (is_stuck and limit <= Severity.WARNING))


def _check_one(
    args: argparse.Namespace, checker: Checker, settings: Settings, io: Io
) -> tuple[list[Diagnosis], bool]:
    """The diagnosis, and True if the job can never start."""
    logs, metrics = (tuple(_existing(path) for path in paths) for paths in (args.log, args.metrics))
    checked = checker.target(args.target, logs, metrics)
    _tell_left_out(checked.num_left_out)
    if checked.note is not None:
        say(checked.note)
    taken_for = checked.snapshot.taken_for
    if args.format == "json":
        if taken_for:
            say(taken_for)
        print(json.dumps(checked.as_json(), indent=2))
    else:
        if taken_for:
            print_line(taken_for)
        for line in checked_lines(checked, io.now(), settings.muted_rules):
            print_line(line)
    return [checked.diagnosis], checked.waiting is not None and checked.waiting["never_starts"]


def _check_own(args: argparse.Namespace, checker: Checker, io: Io) -> tuple[list[Diagnosis], bool]:
    """The diagnoses of all own jobs, or those of `--user`, and True if one of them can never start."""
    judged, num_left_out = checker.own_jobs(args.user)
    _tell_left_out(num_left_out)
    diagnoses = [each.diagnosis for each in judged]
    if args.format == "json":
        jobs = [diagnosis_object(each) for each in diagnoses]
        print(json.dumps({"schema": 1, "jobs": jobs}, indent=2))
    else:
        for line in verdict_lines(judged, io.now(), width=_width(), user=args.user):
            print_line(line)
    return diagnoses, any(each.why_never is not None for each in judged)


def _width() -> int | None:
    """Cut lines for a terminal; a file or a pipe gets all of them, whole."""
    return WIDTH if sys.stdout.isatty() else None


def _tell_left_out(number: int) -> None:
    if number:
        jobs = "1 more job was" if number == 1 else f"{number} more jobs were"
        say(f"{jobs} not checked: coach check JOB checks one")


def _existing(text: str) -> Path:
    path = Path(os.path.expanduser(text)).absolute()  # noqa: PTH111 (Path raises for an unknown ~user)
    if not path.is_file():
        raise UserError(f"{text}: no such file")
    return path
